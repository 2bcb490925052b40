"""What if a word were not there, or another."""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import pytest
from explain_cases import DEFINITION, QUERY, THERAPY, reranker, small_ranker

from glassrank.deadline import Deadline, LateError
from glassrank.errors import InputError
from glassrank.explanations import Change, what_if
from glassrank.explanations.changes import apply_change, what_if_among
from glassrank.explanations.explainers import score_texts
from glassrank.models.model import TokenEmbeddings
from glassrank.rerank import Reranker
from glassrank.rerank.candidates import ScoredDocs
from glassrank.rerank.reranker import as_doc
from glassrank.text import split_words
from glassrank.types import Doc

TEXTS = [DEFINITION, THERAPY, "nuclear cells", "androgen"]


@pytest.fixture(scope="module")
def own() -> Reranker:
    return reranker(small_ranker("tk"))


def test_removing_a_word_of_a_document_moves_it_alone(own: Reranker) -> None:
    answer = what_if(own, QUERY, TEXTS, Change("document", "androgen"), doc=1)
    assert "androgen" not in split_words(answer.text)
    before = own.scores(QUERY, TEXTS).values.tolist()
    after = own.scores(QUERY, [TEXTS[0], answer.text, *TEXTS[2:]]).values.tolist()
    assert [row.score_before for row in answer.moved] == before
    assert [row.score_after for row in answer.moved] == pytest.approx(after, rel=1e-5)
    assert before[1] != after[1]
    assert answer.moved[0].score_before == answer.moved[0].score_after


def test_ranks_are_those_of_the_scores(own: Reranker) -> None:
    answer = what_if(own, QUERY, TEXTS, Change("query", "define", "nuclear"), doc=2)
    assert answer.query == "androgen receptor nuclear"
    assert answer.text == TEXTS[2]
    for scores, ranks in (
        ([row.score_before for row in answer.moved], [row.rank_before for row in answer.moved]),
        ([row.score_after for row in answer.moved], [row.rank_after for row in answer.moved]),
    ):
        assert ranks == [1 + sum(other > score for other in scores) for score in scores]
    assert [row.score_after for row in answer.moved] == pytest.approx(
        own.scores("androgen receptor nuclear", TEXTS).values.tolist()
    )


def test_the_first_stage_stays_what_it_was() -> None:
    model = small_ranker("knrm")
    model.mix_first_stage(0.5)
    change = Change("document", 0)
    answer = what_if(reranker(model), QUERY, TEXTS, change, first_stage=[9.0, 1.0, 1.0, 1.0])
    plain = what_if(reranker(model), QUERY, TEXTS, change)
    assert answer.moved[0].score_after == pytest.approx(plain.moved[0].score_after + 4.5)


@pytest.mark.parametrize("change", [Change("document", "androgen"), Change("query", "define")])
def test_a_document_moves_among_as_many_as_there_is_time_for(
    own: Reranker, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is told what becomes of itself, however late it is."""
    docs = [as_doc(text) for text in (TEXTS * 4)]
    whole = what_if(own, QUERY, docs, change, doc=5)
    answer, kept = what_if_among(own, QUERY, docs, change, doc=5)
    assert kept == list(range(16)) and answer.doc == 5
    for row, expected in zip(answer.moved, whole.moved, strict=True):
        assert astuple(row) == pytest.approx(astuple(expected), abs=1e-5)
    time = [0.0]

    def reads(
        reranker: Reranker, query: TokenEmbeddings, some: Sequence[Doc], *more: Any, **how: Any
    ) -> ScoredDocs:
        """Four documents take a minute, for all queries together."""
        time[0] += 60_000.0 * (len(some) == 4) / (2 if change.side == "query" else 1)
        return score_texts(reranker, query, some, *more, **how)

    monkeypatch.setattr("glassrank.explanations.changes.score_texts", reads)
    answer, kept = what_if_among(
        own, QUERY, docs, change, doc=5, deadline=Deadline(lambda: time[0], 150_000.0)
    )
    assert kept == [0, 1, 2, 3, 4, 5, 6, 7, 8] and answer.doc == 5
    late, kept = what_if_among(own, QUERY, docs, change, doc=5, deadline=Deadline(lambda: 9.0, 4.0))
    assert kept == [5] and late.doc == 0
    scores = late.moved[0].score_before, late.moved[0].score_after
    expected = whole.moved[5].score_before, whole.moved[5].score_after
    assert scores == pytest.approx(expected, abs=1e-5)
    assert (late.moved[0].rank_before, late.moved[0].rank_after) == (1, 1)


def test_a_word_by_its_number_is_one_word(own: Reranker) -> None:
    words = split_words(DEFINITION)
    place = len(words) - 1 - words[::-1].index("receptor")
    changed = apply_change(DEFINITION, Change("document", place, "cells"))
    expected = [*words]
    expected[place] = "cells"
    assert split_words(changed) == expected


@pytest.mark.parametrize(
    ("text", "word", "by", "expected"),
    [
        ("csv-file", "-", "", ["csv", "file"]),
        ("csv-file", "-", "x", ["csv", "x", "file"]),
        ("can't", "n't", "not", ["ca", "not"]),
        ("Cats, CATS", "cats", "dogs", ["dogs", ",", "dogs"]),
        ("one", "one", "", []),
    ],
)
def test_neighbours_stay_words_of_their_own(
    text: str, word: str, by: str, expected: list[str]
) -> None:
    assert split_words(apply_change(text, Change("document", word, by))) == expected


@pytest.mark.parametrize("word", ["zebra", 99, -1])
def test_a_word_that_is_not_there_is_named(own: Reranker, word: str | int) -> None:
    with pytest.raises(InputError, match="the query has no word"):
        what_if(own, QUERY, TEXTS, Change("query", word))


def test_a_document_that_is_not_there_is_named(own: Reranker) -> None:
    with pytest.raises(InputError, match="expected a number below 4"):
        what_if(own, QUERY, TEXTS, Change("query", "define"), doc=4)


@pytest.mark.parametrize("after", range(1, 9))
def test_a_late_change_is_an_error_at_whatever_moment_its_time_ends(
    own: Reranker, after: int
) -> None:
    """The clock stands still until it has been read so many times."""
    reads = iter(range(1000))
    deadline = Deadline(lambda: 9.0 if next(reads) > after else 0.0, 1.0)
    with pytest.raises(LateError, match="not enough time for this change"):
        what_if(own, QUERY, TEXTS * 4, Change("query", "define", "nuclear"), deadline=deadline)
