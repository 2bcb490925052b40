"""Groups of points against an obvious version, the find_elbow, names, and ranks of clusters."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glassrank.errors import InputError
from glassrank.research.evaluate.clusters import (
    Cluster,
    RankedQuery,
    candidate_ks,
    compute_inertias,
    find_elbow,
    first_relevant_ranks,
    k_means,
    label_clusters,
    make_clusters,
)
from glassrank.research.evaluate.measures import Floats
from glassrank.types import Run

INF = float("inf")


def inertia_of(points: Floats, labels: np.ndarray) -> float:
    groups = [points[labels == label] for label in np.unique(labels)]
    return float(sum(((group - group.mean(0)) ** 2).sum() for group in groups))


def blobs(centers: int, each: int, spread: float = 0.05, size: int = 8) -> Floats:
    rng = np.random.default_rng(3)
    means = rng.normal(size=(centers, 1, size))
    points: Floats = (means + spread * rng.normal(size=(centers, each, size))).reshape(-1, size)
    return points


def lloyds_rounds(points: Floats, centers: Floats) -> float:
    """The inertia where they come to rest, in the most obvious way."""
    before = None
    while True:
        labels = ((points[:, None] - centers) ** 2).sum(2).argmin(1)
        if before is not None and (labels == before).all():
            return inertia_of(points, labels)
        before = labels
        used = [points[labels == label] for label in range(len(centers))]
        centers = np.array([p.mean(0) if len(p) else c for p, c in zip(used, centers, strict=True)])


@given(st.integers(0, 10_000), st.integers(1, 3))
@example(seed=1075, k=2)  # from none of the points do Lloyd's rounds lead to the best grouping
@settings(max_examples=25, deadline=None)
def test_few_points_are_grouped_as_well_as_can_be(seed: int, k: int) -> None:
    """As well as Lloyd's rounds can do that begin with any of the points as centers."""
    points = np.random.default_rng(seed).normal(size=(6, 2))
    best = min(
        lloyds_rounds(points, points[list(chosen)])
        for chosen in combinations(range(len(points)), k)
    )
    grouping = k_means(points, k, restarts=200)
    assert grouping.inertia == pytest.approx(inertia_of(points, grouping.labels))
    assert grouping.inertia == pytest.approx(best)


@given(st.integers(0, 10_000), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_every_point_is_with_its_nearest_mean(seed: int, k: int) -> None:
    points = np.random.default_rng(seed).normal(size=(40, 5))
    found = k_means(points, k)
    for label, center in enumerate(found.centers):
        assert center == pytest.approx(points[found.labels == label].mean(0))
    distance = ((points[:, None] - found.centers) ** 2).sum(2)
    own = distance[np.arange(len(points)), found.labels]
    assert (own <= distance.min(1) + 1e-9).all()


def test_groups_that_are_there_are_found() -> None:
    found = k_means(blobs(centers=6, each=20), 6)
    assert found.labels.tolist() == np.repeat(np.arange(6), 20).tolist()


def test_points_that_are_all_alike_are_one_group() -> None:
    found = k_means(np.ones((9, 4)), 3)
    assert found.labels.tolist() == [0] * 9
    assert found.centers.shape == (1, 4)


@given(st.integers(0, 10_000), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_points_that_come_many_times_make_no_empty_groups(seed: int, k: int) -> None:
    """Nor a warning, which would be an error here."""
    points = np.random.default_rng(seed).integers(0, 3, size=(30, 2)).astype(float)
    grouping = k_means(points, k)
    assert grouping.labels.max() + 1 == len(grouping.centers) <= k
    assert set(grouping.labels.tolist()) == set(range(len(grouping.centers)))


@pytest.mark.parametrize("k", [0, 7])
def test_as_many_groups_as_points_at_most(k: int) -> None:
    with pytest.raises(InputError, match="k must be 1 to 6"):
        k_means(np.eye(6), k)


def test_the_elbow_is_at_the_number_of_groups_there_are() -> None:
    points = blobs(centers=7, each=30)
    ks = candidate_ks(len(points))
    assert find_elbow(ks, compute_inertias(points, ks)) == 7


def test_without_a_curve_there_is_no_elbow() -> None:
    assert candidate_ks(4) == [1]
    assert find_elbow([1], [3.0]) == 1
    assert find_elbow([1, 2, 3], [0.0, 0.0, 0.0]) == 1


@given(st.integers(1, 100_000))
def test_numbers_of_groups_rise_and_leave_points_for_each(points: int) -> None:
    ks = candidate_ks(points)
    assert ks[0] == 1 and sorted(set(ks)) == ks
    assert ks[-1] == 1 or ks[-1] * 5 <= points


def test_words_that_all_groups_have_tell_nothing() -> None:
    texts = ["insurance for cars", "insurance of cars", "insurance for homes", "insurance of homes"]
    assert label_clusters(texts, [0, 0, 1, 1]) == [("cars",), ("homes",)]


def test_words_stand_in_the_order_of_the_queries() -> None:
    texts = ["how long is a day ?", "how long is an hour ?", "what rusts", "who bends"]
    assert label_clusters(texts, [0, 0, 1, 1])[0] == ("long",)
    texts = ["bake dark bread", "bake white bread", "what rusts", "who bends"]
    assert label_clusters(texts, [0, 0, 1, 1])[0] == ("bake", "bread")


def test_function_words_name_a_group_only_where_there_is_nothing_else() -> None:
    texts = ["when is the day", "when is a feast", "who are you", "who am i"]
    assert label_clusters(texts, [0, 0, 1, 1]) == [("day", "feast"), ("who",)]


def test_characters_of_web_pages_are_no_words() -> None:
    texts = ["salt &amp; pepper", "&lt;b&gt; salt &amp; oil", "x", "y"]
    assert label_clusters(texts, [0, 0, 1, 1])[0] == ("salt",)


def test_texts_with_nothing_in_common_are_named_by_what_each_has() -> None:
    assert label_clusters(["red cats", "blue fish"], [0, 1]) == [("red", "cats"), ("blue", "fish")]


def test_texts_without_words_have_no_name() -> None:
    assert label_clusters(["?", "!"], [0, 1]) == [(), ()]
    assert Cluster((), (RankedQuery("q", "?", 1, 1),)).name == "(no distinctive words)"


def test_the_first_relevant_rank_is_by_score_and_grade() -> None:
    run = Run.from_dict({"q": {"a": 1.0, "b": 9.0, "c": 5.0}, "r": {"a": 1.0}})
    qrels = {"q": {"a": 2, "b": 0, "c": 1}, "r": {"z": 1}, "s": {"a": 1}}
    assert first_relevant_ranks(run, qrels) == {"q": 2, "r": INF, "s": INF}


def test_medians_gains_and_counts() -> None:
    ranks = [(9, 1), (4, 6), (2, 2), (INF, 3)]
    queries = tuple(RankedQuery(str(n), "x", *pair) for n, pair in enumerate(ranks))
    cluster = Cluster(("x",), queries)
    assert (cluster.baseline, cluster.model, cluster.gain) == (6.5, 2.5, 4)
    assert (cluster.better, cluster.worse) == (2, 1)
    assert [query.gain for query in queries] == [8, -2, 0, INF]


def test_clusters_come_by_gain_and_queries_by_how_typical_they_are() -> None:
    vectors = np.array([[0.0], [0.9], [0.3], [9.0], [9.1]])
    texts = ["a cat", "a dog", "a cow", "gold", "iron"]
    ranks = [(5, 9), (5, 9), (5, 9), (8, 1), (8, 1)]
    queries = [RankedQuery(text, text, *pair) for text, pair in zip(texts, ranks, strict=True)]
    found = make_clusters(queries, vectors, k_means(vectors, 2))
    assert [cluster.gain for cluster in found] == [7, -4]
    assert [query.text for query in found[1].queries] == ["a cow", "a cat", "a dog"]
