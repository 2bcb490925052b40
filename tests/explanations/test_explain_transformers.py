"""BERT[CLS] and MORES: what the score loses without a word, and which words are coloured for it."""

import math

import pytest
import torch
from explain_cases import DEFINITION, QUERY
from subword_cases import (
    SUBWORDS,
    TRANSFORMERS,
    VARIANTS,
    by_name,
    explain_subwords,
    make_batch,
    make_subword_ranker,
    make_subword_reranker,
    own_reranker,
    texts,
)

from glassrank.explanations.subword_merging import group_subwords
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.rerank import Reranker
from glassrank.research.papers.explainers import transformers
from glassrank.research.papers.mores import MORES

every_transformer = pytest.mark.parametrize("name", TRANSFORMERS)
every_variant = pytest.mark.parametrize(("name", "changes"), VARIANTS)


@every_variant
@pytest.mark.parametrize("exact", [True, False])
def test_the_explained_score_is_the_ranked_score(
    name: str, changes: dict[str, object], exact: bool
) -> None:
    """Also where layers are rounded for speed, as they are on some processors."""
    model = make_subword_ranker(name, **changes)
    model.mix_first_stage(0.5)
    own = Reranker(SavedModel(model, Usage(16, 48), SUBWORDS), exact=exact)
    for text in (DEFINITION, "androgen", ""):
        found = explain_subwords(own, QUERY, text, first_stage=3.0)
        # Passages are ranked in one batch, whose shape may move a sum's last bits.
        near = pytest.approx(own.scores(QUERY, [text], [3.0]).values[0], abs=0 if exact else 2e-6)
        assert found.score == near
        assert not found.is_additive
        assert any(note.startswith("Approximate") for note in found.notes)
        assert found.parts.value == pytest.approx(found.score, abs=1e-6)
        shares = [mark.share for mark in found.marks] + [part.value for part in found.rest]
        assert math.fsum(shares) == pytest.approx(found.score, abs=1e-6)
        said = any("rounded for speed" in note for note in found.notes)
        assert said == (own.fast_model is not own.model)


@every_variant
def test_marks_and_signals_are_one_sum(name: str, changes: dict[str, object]) -> None:
    found = explain_subwords(own_reranker(name, **changes), QUERY, DEFINITION)
    assert len(found.marks) == len(found.doc.words)
    for mark in found.marks:
        assert math.fsum(mark.by_signal) == pytest.approx(mark.share, abs=1e-12)
    for place, signal in enumerate(found.signals):
        own = math.fsum(mark.by_signal[place] for mark in found.marks)
        assert signal.value == signal.paths[0].value == pytest.approx(own, abs=1e-12)
        assert len(signal.strength) == len(found.doc.words)
        assert all(0 <= value <= 1 for value in signal.strength)
    assert any(mark.signal is not None for mark in found.marks)


@every_transformer
def test_a_query_words_value_is_what_the_score_loses_without_it(name: str) -> None:
    own = own_reranker(name)
    found = explain_subwords(own, QUERY, DEFINITION)
    pieces = [found.query.words[term.word].text for term in found.terms]
    assert pieces == ["andro", "##gen", "recep", "##tor", "define"]
    words = QUERY.split()
    for place, several in enumerate(([0, 1], [2, 3], [4])):
        shorter = " ".join(words[:place] + words[place + 1 :])
        lost = found.score - own.scores(shorter, [DEFINITION]).values[0]
        for term in several:
            assert found.terms[term].value == pytest.approx(lost / len(several), abs=1e-5)


def test_a_document_words_value_is_what_bert_loses_without_it() -> None:
    own = own_reranker("bert")
    text = "androgen therapy of cells"
    found = explain_subwords(own, QUERY, text)
    words, at = text.split(), 0
    for place, size in enumerate((2, 2, 1, 1)):
        shorter = " ".join(words[:place] + words[place + 1 :])
        lost = found.score - own.scores(QUERY, [shorter]).values[0]
        for mark in found.marks[at : at + size]:
            assert mark.share == pytest.approx(lost / size, abs=1e-5)
        at += size
    assert found.marks[-1].share == 0  # [SEP]


@pytest.mark.parametrize("changes", [{}, {"reuse": "s2", "two_logits": True}, {"blocks": 3}])
def test_a_document_words_value_is_what_mores_loses_when_it_is_out_of_sight(
    changes: dict[str, object],
) -> None:
    """The model's own `interact`, with the word's pieces masked and all others as they are."""
    model = make_subword_ranker("mores", **changes)
    found = explain_subwords(make_subword_reranker(model), QUERY, DEFINITION)
    query, doc = texts(found)
    words = group_subwords(doc)
    assert max(map(len, words)) > 1
    with torch.no_grad():
        asked, encoded = model.encode_query(make_batch(query)), model.encode_doc(make_batch(doc))
        for places in words:
            mask = encoded.mask.clone()
            mask[0, list(places)] = 0
            left = model.interact(asked, encoded._replace(mask=mask)).score.item()
            for place in places:
                expected = (found.score - left) / len(places)
                assert found.marks[place].share == pytest.approx(expected, abs=1e-5)
    assert [found.marks[place].share for place in (0, -1)] == [0, 0]


def test_blocks_are_kept_from_looking_one_after_the_other() -> None:
    """With one block it is the whole share; the last of two adds what is left of it. That block 1
    alone is blind shows in nothing but a hand-make_reranker pass through both."""
    model = make_subword_ranker("mores")
    assert isinstance(model, MORES)
    found = explain_subwords(make_subword_reranker(model), QUERY, DEFINITION)
    query, doc = texts(found)
    with torch.no_grad():
        asked, encoded = model.encode_query(make_batch(query)), model.encode_doc(make_batch(doc))
        first, second = model.interaction.stack()
        for place, piece in enumerate(doc):
            if [place] not in group_subwords(doc):
                continue
            blind = torch.zeros(1, 1, 1, len(doc))
            blind[..., place] = -1e32
            x = first(asked.vectors, encoded.vectors, None, blind)
            x = second(x, encoded.vectors, None, None)
            left = model.interaction.head(x[:, 0]).item()
            share = found.marks[place].by_signal[0]
            assert share == pytest.approx(found.score - left, abs=1e-5), piece
    assert [signal.name for signal in found.signals] == ["block 1", "block 2", "document module"]
    alone = explain_subwords(own_reranker("mores", blocks=1), QUERY, DEFINITION)
    assert all(mark.by_signal[0] == mark.share for mark in alone.marks)


@every_transformer
def test_a_coloured_piece_adds_and_is_closest_to_a_piece_of_the_query(name: str) -> None:
    found = explain_subwords(own_reranker(name), QUERY, DEFINITION)
    query, doc = texts(found)
    for place, mark in enumerate(found.marks):
        assert mark.similarity is None
        special = doc[place] in ("[CLS]", "[SEP]")
        assert (mark.term is None) == special
        if mark.term is not None:
            assert query[mark.term] not in ("[CLS]", "[SEP]")
        if mark.signal is not None:
            assert mark.share > 0
            assert mark.by_signal[mark.signal] == max(mark.by_signal)
    looks = {"mores": "block 2: query to document", "bert": "layer 1: query to document"}[name]
    values = by_name(found)[looks].values
    for place, mark in enumerate(found.marks):
        column = [row[place] for row in values[1:-1]]  # without [CLS] and [SEP]
        assert mark.term in (None, 1 + column.index(max(column)))


@every_transformer
def test_how_much_is_computed_at_once_does_not_matter(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_reranker(name)
    found = explain_subwords(own, QUERY, DEFINITION)
    monkeypatch.setattr(transformers, "_TOKENS_AT_ONCE", 80)
    monkeypatch.setattr("glassrank.explanations.leave_one_out._TOKENS_AT_ONCE", 80)
    again = explain_subwords(own, QUERY, DEFINITION)
    for mark, other in zip(found.marks, again.marks, strict=True):
        assert mark.share == pytest.approx(other.share, abs=1e-5)
    for term, other_term in zip(found.terms, again.terms, strict=True):
        assert term.value == pytest.approx(other_term.value, abs=1e-5)


def test_long_documents_are_left_out_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers, "MAX_ABLATIONS", 2)
    own = own_reranker("bert")
    found = explain_subwords(own, QUERY, "androgen therapy of cells")
    shares = [mark.share for mark in found.marks]
    for rest, places in (("of cells", range(4)), ("androgen therapy", range(4, 6))):
        lost = found.score - own.scores(QUERY, [rest]).values[0]
        for place in places:
            assert shares[place] == pytest.approx(lost / len(places), abs=1e-5)
    assert any("4 words are left out in 2 runs" in note for note in found.notes)
    assert not any("runs" in note for note in explain_subwords(own, QUERY, "of cells").notes)
