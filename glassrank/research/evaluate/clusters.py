"""Clusters of queries by k-means, and where a model helps or hurts: section 5.3 and Table 3 of the
TK paper. A cluster's rank is the median rank of the first relevant document over its queries.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import unescape

import numpy as np

from glassrank.errors import InputError
from glassrank.research.evaluate.judged import Judged
from glassrank.research.evaluate.measures import Floats, Ints
from glassrank.text import split_words
from glassrank.text.english import remove_function_words
from glassrank.types import Qrels, Run

_ROUNDS = 100
_SAMPLE = 2000
_MOST_GROUPS = 60
_LEAST_POINTS = 5  # the smallest mean size of a group that is tried


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Points in groups."""

    labels: Ints  # (N,), the group of each point
    centers: Floats  # (K, E)
    inertia: float
    """The sum of squared distances from points to their group's mean."""


def k_means(points: Floats, k: int, *, restarts: int = 4) -> Grouping:
    """The best of several runs from different centers. Fewer than `k` groups if fewer points are
    distinct.

    >>> grouping = k_means(np.array([[0.0], [0.1], [5.0], [5.2]]), 2)
    >>> grouping.labels.tolist(), round(grouping.inertia, 3)
    ([0, 0, 1, 1], 0.025)
    """
    if not 1 <= k <= len(points):
        raise InputError(f"k must be 1 to {len(points)}, the number of points, found {k}")
    rng = np.random.default_rng(0)
    points = np.asarray(points, np.float64)
    different = len(np.unique(points, axis=0))
    attempts = (_run_once(points, min(k, different), rng) for _ in range(restarts))
    return _number_groups(min(attempts, key=lambda grouping: grouping.inertia))


def _run_once(points: Floats, k: int, rng: np.random.Generator) -> Grouping:
    """Lloyd's algorithm. A center without points stays where it is."""
    centers, labels = _choose_centers(points, k, rng), np.full(len(points), -1)
    for _ in range(_ROUNDS):
        # Squared distances without each point's own square, which does not change the order.
        before, labels = labels, ((centers**2).sum(1) - 2 * points @ centers.T).argmin(1)
        if (labels == before).all():
            break
        members = (labels == np.arange(k)[:, None]).astype(np.float64)  # (K, N)
        counts = members.sum(1, keepdims=True)  # (K, 1)
        centers = np.where(counts, members @ points / np.maximum(counts, 1), centers)
    inertia = ((points - centers[labels]) ** 2).sum()
    return Grouping(labels, centers, float(inertia))


def _choose_centers(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """k-means++: the chance of a point grows with its squared distance to the nearest center."""
    chosen = [int(rng.integers(len(points)))]
    nearest = np.full(len(points), np.inf)  # (N,)
    while len(chosen) < k:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
    return points[chosen]


def _number_groups(grouping: Grouping) -> Grouping:
    """Number groups by their first point, and drop empty ones."""
    used, first, labels = np.unique(grouping.labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.argsort(order)
    return Grouping(place[labels], grouping.centers[used[order]], grouping.inertia)


def candidate_ks(points: int) -> list[int]:
    """1, 2, 3, …, then about an eighth more each time.

    >>> candidate_ks(100)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20]
    """
    most = max(1, min(_MOST_GROUPS, points // _LEAST_POINTS))
    ks = [1]
    while ks[-1] < most:
        ks.append(min(most, ks[-1] + max(1, round(ks[-1] / 8))))
    return ks


def compute_inertias(points: Floats, ks: Iterable[int]) -> list[float]:
    """The inertia for each k, of a sample of the points: its elbow is the same."""
    some = np.random.default_rng(0).permutation(len(points))[:_SAMPLE]
    return [k_means(points[some], k, restarts=2).inertia for k in ks]


def find_elbow(ks: Iterable[int], inertias: Iterable[float]) -> int:
    """The k at which the curve of inertias is farthest below the line between its ends, with both
    axes scaled to 0 to 1.

    >>> find_elbow([1, 2, 3, 4, 5], [100.0, 40.0, 10.0, 8.0, 6.0])
    3
    """
    k, inertia = np.array(list(ks), np.float64), np.array(list(inertias), np.float64)
    fall = inertia[0] - inertia[-1]
    if len(k) < 3 or fall <= 0:
        return int(k[0])
    across, down = (k - k[0]) / (k[-1] - k[0]), (inertia[0] - inertia) / fall
    return int(k[np.argmax(down - across)])


_TERMS = 4
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """A query with the ranks of its first relevant document; inf if the run lacks it."""

    query_id: str
    text: str
    baseline: float
    model: float

    @property
    def gain(self) -> float:
        """By how many ranks the model moves it up."""
        return rank_gain(self.baseline, self.model)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Queries of one type, and the ranks of their first relevant documents."""

    terms: tuple[str, ...]
    """In their usual order in the queries."""
    queries: tuple[RankedQuery, ...]
    """The most typical first: by distance to the cluster's mean."""

    @property
    def name(self) -> str:
        """Its terms."""
        return " ".join(self.terms) or "(no distinctive words)"

    @property
    def baseline(self) -> float:
        """The median rank."""
        return float(np.median([query.baseline for query in self.queries]))

    @property
    def model(self) -> float:
        """The median rank."""
        return float(np.median([query.model for query in self.queries]))

    @property
    def gain(self) -> float:
        """By how many ranks the median moves up."""
        return rank_gain(self.baseline, self.model)

    @property
    def better(self) -> int:
        """The number of queries that the model improves."""
        return sum(query.model < query.baseline for query in self.queries)

    @property
    def worse(self) -> int:
        """The number of queries that the model makes worse."""
        return sum(query.model > query.baseline for query in self.queries)

    @property
    def examples(self) -> tuple[RankedQuery, ...]:
        """Queries near the middle of the cluster."""
        return self.queries[:_EXAMPLES]


def rank_gain(before: float, after: float) -> float:
    """
    >>> rank_gain(9, 2), rank_gain(2, float("inf")), rank_gain(float("inf"), float("inf"))
    (7, -inf, 0.0)
    """
    return 0.0 if before == after else before - after


def first_relevant_ranks(run: Run, qrels: Qrels) -> dict[str, float]:
    """For each judged query the rank of its first relevant document, inf where none was found.

    >>> run = Run.from_dict({"q": {"a": 2.0, "b": 1.0}})
    >>> first_relevant_ranks(run, {"q": {"b": 1}, "r": {"a": 1}})
    {'q': 2.0, 'r': inf}
    """
    judged = Judged.join(run, qrels)
    return dict(zip(judged.query_ids, judged.ranks[:, 0].tolist(), strict=True))


def make_clusters(
    queries: Sequence[RankedQuery], vectors: Floats, grouping: Grouping
) -> list[Cluster]:
    """Clusters by gain, the largest first; their queries, the most typical first."""
    names = label_clusters([query.text for query in queries], grouping.labels.tolist())
    distances = ((vectors - grouping.centers[grouping.labels]) ** 2).sum(1)  # (N,)
    clusters = []
    for label, terms in enumerate(names):
        members = np.flatnonzero(grouping.labels == label)
        typical = members[np.argsort(distances[members], kind="stable")]
        clusters.append(Cluster(terms, tuple(queries[i] for i in typical)))
    return sorted(clusters, key=lambda cluster: (-cluster.gain, -len(cluster.queries)))


def label_clusters(texts: Sequence[str], labels: Sequence[int]) -> list[tuple[str, ...]]:
    """The content words that distinguish each group's texts from the others.

    A word's weight is the share of the group's texts that contain it, times the log of its ratio
    to the share elsewhere. Words of a single text, and function words, are a last resort.

    >>> texts = ["how long is a day", "how long is an hour", "what is rust", "what is gold"]
    >>> label_clusters(texts, [0, 0, 1, 1])
    [('long',), ('gold', 'rust')]
    """
    words = [_split_words(text) for text in texts]
    groups = [[w for w, label_of in zip(words, labels, strict=True) if label_of == label]
              for label in range(max(labels) + 1)]  # fmt: skip
    everywhere = _count_texts_with(words)
    return [
        _find_terms([remove_function_words(w) for w in group], everywhere, len(texts))
        or _find_terms(group, everywhere, len(texts))
        for group in groups
    ]


def _split_words(text: str) -> list[str]:
    """Words of a query without punctuation; queries from web pages contain &amp; and &lt;."""
    words = split_words(unescape(text))
    return [word for word in words if any(letter.isalnum() for letter in word)]


def _find_terms(
    group: Sequence[list[str]], everywhere: Counter[str], texts: int
) -> tuple[str, ...]:
    inside = _count_texts_with(group)
    values = {}
    for word, count in inside.items():
        # Half a text more on both sides: the weight of a word of no other group stays finite.
        here = (count + 0.5) / (len(group) + 1)
        elsewhere = (everywhere[word] - count + 0.5) / (texts - len(group) + 1)
        values[word] = here * np.log(here / elsewhere)
    distinctive = [word for word in values if values[word] > 0]
    common = [word for word in distinctive if inside[word] > 1] or distinctive
    best = sorted(common, key=lambda word: (-values[word], word))[:_TERMS]
    positions = {word: np.mean([w.index(word) for w in group if word in w]) for word in best}
    return tuple(sorted(best, key=positions.__getitem__))


def _count_texts_with(texts: Sequence[list[str]]) -> Counter[str]:
    return Counter(word for words in texts for word in set(words))
