"""Families over a pretrained encoder: exact sums over pieces, or texts without a word."""

import math

import pytest
import torch
from explain_cases import DEFINITION, QUERY
from subword_cases import SUBWORDS, explain_subwords, make_subword_ranker, own_reranker

from glassrank.backends.match import kernel_values
from glassrank.explanations.reading import read
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.rerank import Reranker

ADDITIVE = ("kernel_bert", "maxsim")


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", [*ADDITIVE, "single_vector"])
def test_the_explained_score_is_the_ranked_score(name: str, exact: bool) -> None:
    model = make_subword_ranker(name)
    model.mix_first_stage(0.5)
    own = Reranker(SavedModel(model, Usage(16, 48), SUBWORDS), exact=exact)
    for text in (DEFINITION, "androgen", ""):
        found = explain_subwords(own, QUERY, text, first_stage=3.0)
        assert found.is_additive == (name in ADDITIVE)
        ranked = own.scores(QUERY, [text], [3.0]).values[0]
        assert found.score == pytest.approx(ranked, rel=1e-6)
        assert found.parts.value == pytest.approx(found.score, abs=1e-4)
        shares = [mark.share for mark in found.marks] + [part.value for part in found.rest]
        assert math.fsum(shares) == pytest.approx(found.score, abs=1e-4)


@pytest.mark.parametrize("name", ADDITIVE)
def test_query_pieces_add_up(name: str) -> None:
    found = explain_subwords(own_reranker(name), QUERY, DEFINITION)
    assert math.fsum(term.value for term in found.terms) == pytest.approx(found.score, abs=1e-4)
    assert [word.text for word in found.query.words][:3] == ["[CLS]", "andro", "##gen"]
    assert len(found.marks) == len(found.doc.words)


def test_a_word_that_is_matched_best_is_missed_when_it_goes() -> None:
    """The share of a document piece is what MaxSim loses with it masked."""
    own = own_reranker("maxsim")
    found = explain_subwords(own, QUERY, DEFINITION)
    best = max(range(len(found.marks)), key=lambda d: found.marks[d].share)
    assert found.marks[best].share > 0
    assert found.marks[best].signal == 0
    assert sum(mark.share for mark in found.marks) <= found.score + 1e-6 or found.score < 0


def test_shares_over_kernels_are_the_integral_of_gradients_from_a_text_without_words() -> None:
    """Against the sum over small steps, all words growing at once; [CLS] and [SEP] are there from
    the beginning and have no share."""
    own = own_reranker("kernel_bert")
    found = explain_subwords(own, QUERY, DEFINITION)
    model = own.model
    query = own.encode_query(QUERY)
    doc = own.encode_doc(read(own, DEFINITION, "document").batch)
    with torch.no_grad():
        similarity = model.interact(query, doc).parts["similarity"][0].double()  # (Q, D)
        values = kernel_values(similarity.float(), model.kernels).double()  # (Q, D, K)
        readout = model.scoring_heads()[0]
        weight = query.idf[0].double()[:, None]  # (Q, 1)
        log, length = (weight * row.double() for row in (readout.log, readout.length))  # (Q, K)
    words = [place for place, word in enumerate(found.doc.words) if word.start is not None]
    steps, inner = 4000, values[:, words]  # (Q, W, K)
    base = values.sum(1) - inner.sum(1)
    expected = torch.zeros(len(words), dtype=torch.float64)
    for step in range(steps):
        counts = base + (step + 0.5) / steps * inner.sum(1)
        slope = log / counts + length / (len(found.doc.words) + 1)  # (Q, K)
        expected += (slope[:, None] * inner).sum((0, 2)) / steps
    shares = [found.marks[place].share for place in words]
    assert shares == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-4)
    assert {found.marks[place].share for place in (0, -1)} == {0.0}
    (rest,) = found.rest
    assert rest.name == "without words"
    assert math.fsum([*shares, rest.value]) == pytest.approx(found.score, abs=1e-4)
