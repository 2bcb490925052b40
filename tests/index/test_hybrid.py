"""Lists of several first stages as one, by numbers made by hand."""

import pytest

from glassrank.errors import GlassrankError, InputError
from glassrank.index.first_stage import Hybrid, reciprocal_rank_fusion, weighted_sum


class Fixed:
    """The same list for every query."""

    def __init__(self, **scores: float) -> None:
        self.scores = scores

    def search(self, query: str, k: int) -> tuple[list[str], list[float]]:
        return list(self.scores)[:k], list(self.scores.values())[:k]


class Dead:
    """Never answers."""

    def search(self, query: str, k: int) -> tuple[list[str], list[float]]:
        raise OSError("no route to host")


WORDS = Fixed(a=9.0, b=5.0, c=1.0)
VECTORS = Fixed(c=0.75, d=0.5, a=0.25)


def test_ranks_are_summed_as_the_paper_has_it() -> None:
    ids, scores = reciprocal_rank_fusion([["a", "b", "c"], ["c", "d", "a"]])
    assert ids == ["a", "c", "b", "d"]  # equal ones in the order in which they came
    assert scores == pytest.approx(
        [1 / (60 + 1) + 1 / (60 + 3), 1 / (60 + 3) + 1 / (60 + 1), 1 / (60 + 2), 1 / (60 + 2)]
    )


def test_weights_and_the_constant_count() -> None:
    ids, scores = reciprocal_rank_fusion([["a"], ["b"]], weights=[1, 3], constant=0)
    assert (ids, scores) == (["b", "a"], [3.0, 1.0])


def test_scores_are_summed_on_one_scale() -> None:
    ids, scores = weighted_sum([(["a", "b", "c"], [9, 5, 1]), (["c", "d", "a"], [0.75, 0.5, 0.25])])
    assert ids == ["a", "c", "b", "d"]
    assert scores == pytest.approx([1.0 + 0.0, 0.0 + 1.0, 0.5, 0.5])
    ids, scores = weighted_sum([(["a", "b"], [9, 5]), (["b"], [3])], [0.5, 2], rescale=False)
    assert (ids, scores) == (["b", "a"], [0.5 * 5 + 2 * 3, 0.5 * 9])


def test_lists_without_differences_and_without_documents() -> None:
    assert weighted_sum([(["a", "b"], [4.0, 4.0]), ([], [])]) == (["a", "b"], [1.0, 1.0])
    assert reciprocal_rank_fusion([]) == ([], [])


def test_first_stages_become_one() -> None:
    assert Hybrid([WORDS, VECTORS]).search("a query", 3).ids == ["a", "c", "b"]
    assert Hybrid([WORDS, VECTORS], weights=[1, 1.5]).search("a query", 3).ids == ["c", "a", "d"]
    by_score = Hybrid([WORDS, VECTORS], by="score", weights=[1, 2]).search("a query", 4)
    assert by_score == (["c", "a", "d", "b"], pytest.approx([2.0, 1.0, 1.0, 0.5]))


def test_mistakes_and_dead_ones_are_named() -> None:
    with pytest.raises(GlassrankError, match="the first stage Dead failed"):
        Hybrid([WORDS, Dead()]).search("a query", 3)
    with pytest.raises(InputError, match="there are 1 weights for 2 lists"):
        Hybrid([WORDS, VECTORS], weights=[1])
    with pytest.raises(InputError, match="by 'rank' or by 'score'"):
        Hybrid([WORDS], by="luck")  # type: ignore[arg-type]
