"""Families over a pretrained encoder: exact sums over pieces, or texts without a word."""

import math

import pytest
from explain_cases import DEFINITION, QUERY
from piece_cases import PIECES, explain_pieces, own_reranker, piece_ranker

from glassrank.models.checkpoint import SavedModel, Usage
from glassrank.ranking import Reranker

EXACT = ("kernel_bert", "maxsim")


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", [*EXACT, "single_vector"])
def test_the_explained_score_is_the_ranked_score(name: str, exact: bool) -> None:
    model = piece_ranker(name)
    model.mix_first_stage(0.5)
    own = Reranker(SavedModel(model, Usage(16, 48), PIECES), exact=exact)
    for text in (DEFINITION, "androgen", ""):
        found = explain_pieces(own, QUERY, text, first_stage=3.0)
        assert found.exact == (name in EXACT)
        ranked = own.scores(QUERY, [text], [3.0]).values[0]
        assert found.score == pytest.approx(ranked, rel=1e-6)
        assert found.parts.value == pytest.approx(found.score, abs=1e-4)
        shares = [mark.share for mark in found.marks] + [part.value for part in found.rest]
        assert math.fsum(shares) == pytest.approx(found.score, abs=1e-4)


@pytest.mark.parametrize("name", EXACT)
def test_query_pieces_add_up(name: str) -> None:
    found = explain_pieces(own_reranker(name), QUERY, DEFINITION)
    assert math.fsum(term.value for term in found.terms) == pytest.approx(found.score, abs=1e-4)
    assert [word.text for word in found.query.words][:3] == ["[CLS]", "andro", "##gen"]
    assert len(found.marks) == len(found.doc.words)


def test_a_word_that_is_matched_best_is_missed_when_it_goes() -> None:
    """The share of a document piece is what MaxSim loses with it masked."""
    own = own_reranker("maxsim")
    found = explain_pieces(own, QUERY, DEFINITION)
    best = max(range(len(found.marks)), key=lambda d: found.marks[d].share)
    assert found.marks[best].share > 0
    assert found.marks[best].signal == 0
    assert sum(mark.share for mark in found.marks) <= found.score + 1e-6 or found.score < 0
