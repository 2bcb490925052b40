"""BERT[CLS] and MORES: where they look is what their own layers say."""

import pytest
import torch
from explain_cases import DEFINITION, QUERY
from subword_cases import (
    SUBWORDS,
    VARIANTS,
    by_name,
    explain_subwords,
    make_batch,
    make_subword_ranker,
    make_subword_reranker,
    own_reranker,
    texts,
)

from glassrank.research.papers.explainers import transformers

every_variant = pytest.mark.parametrize(("name", "changes"), VARIANTS)


@every_variant
def test_matrices_have_a_row_and_a_column_for_each_piece(
    name: str, changes: dict[str, object]
) -> None:
    for text in (DEFINITION, ""):
        found = explain_subwords(own_reranker(name, **changes), QUERY, text)
        sizes = {"query": len(found.query.words), "document": len(found.doc.words)}
        assert found.matrices
        for matrix in found.matrices:
            assert len(matrix.values) == sizes[matrix.rows]
            assert {len(row) for row in matrix.values} == {sizes[matrix.columns]}


@pytest.mark.parametrize("reuse", ["s1", "s2"])
def test_the_attention_of_mores_is_the_models_own(reuse: str) -> None:
    model = make_subword_ranker("mores", reuse=reuse)
    found = explain_subwords(make_subword_reranker(model), QUERY, DEFINITION)
    with torch.no_grad():
        out = model.explain(*map(make_batch, texts(found))).parts
    wanted = {
        "document module, layer 2": out["doc_attention"][0, 1],
        "query module, layer 1": out["query_attention"][0, 0],
        "block 1: query to document": out["cross_attention"][0, 0],
        "block 2: query to document": out["cross_attention"][0, 1],
    }
    assert list(by_name(found)) == list(wanted)
    for name, heads in wanted.items():
        values = torch.tensor(by_name(found)[name].values)
        torch.testing.assert_close(values, heads.mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(values.sum(1), torch.ones(len(values)))
    weights = wanted["document module, layer 2"].mean((0, 1))  # that each piece has from all
    signal = found.signals[-1]
    assert (signal.name, signal.value, signal.is_highlighted) == ("document module", 0.0, False)
    largest = weights[1:-1].max()
    assert signal.strength[1:-1] == pytest.approx((weights / largest)[1:-1].tolist(), rel=1e-4)


def test_the_attention_of_bert_is_the_models_own() -> None:
    found = explain_subwords(own_reranker("bert"), QUERY, DEFINITION)
    matrices = by_name(found)
    assert list(matrices) == [
        "layer 2: query to query",
        "layer 2: query to document",
        "layer 1: query to document",
        "layer 1: document to query",
    ]
    # A row looks at both texts, and at nothing else.
    inside, across = (torch.tensor(found.matrices[number].values) for number in (0, 1))
    torch.testing.assert_close(inside.sum(1) + across.sum(1), torch.ones(len(inside)))
    query, doc = texts(found)
    assert (query[0], query[-1], doc[0], doc[-1]) == ("[CLS]", "[SEP]", "the", "[SEP]")
    # One text of both, by the layers alone.
    model = make_subword_ranker("bert")
    ids = torch.tensor([[SUBWORDS.index(piece) for piece in (*query, *doc)]])
    types = torch.tensor([[0] * len(query) + [1] * len(doc)])
    maps: list[torch.Tensor] = []
    with torch.no_grad():
        x = model.encoder.embeddings(ids, types=types)
        for layer in model.encoder.stack():
            x = layer(x, None, maps)
    heads = [one[0].mean(0) for one in maps]  # (L, L) each
    rows = slice(len(query))
    torch.testing.assert_close(across, heads[1][rows, len(query) :], rtol=1e-4, atol=1e-5)
    other = torch.tensor(matrices["layer 1: document to query"].values)
    torch.testing.assert_close(other, heads[0][len(query) :, rows], rtol=1e-4, atol=1e-5)


def test_a_bert_of_one_layer_has_that_one() -> None:
    encoder = {**make_subword_ranker("bert").config.encoder.__dict__, "layers": 1}
    found = explain_subwords(own_reranker("bert", encoder=encoder), QUERY, DEFINITION)
    assert list(by_name(found)) == ["layer 1: query to query", "layer 1: query to document"]


def test_attention_is_to_the_document_as_it_was_ranked() -> None:
    """Stored documents are rounded; here, by so much that nobody could miss it."""
    own = own_reranker("mores")
    live = explain_subwords(own, QUERY, DEFINITION)
    _, doc = texts(live)
    encoded = own.model.encode_doc(make_batch(doc))
    rounded = encoded._replace(vectors=encoded.vectors.detach().round())
    found = explain_subwords(own, QUERY, DEFINITION, embeddings=rounded)
    with torch.no_grad():
        asked = own.model.encode_query(make_batch(texts(live)[0]))
        out = own.model.interact(asked, rounded, explain=True)  # type: ignore[call-arg]
    assert found.score == pytest.approx(out.score.item(), abs=1e-6)
    for block, matrix in zip(out.parts["cross_attention"][0], found.matrices[2:], strict=True):
        torch.testing.assert_close(torch.tensor(matrix.values), block.mean(0))
    assert found.matrices[:2] == live.matrices[:2]


def test_the_largest_matrix_is_left_out_where_nobody_could_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = own_reranker("mores")
    monkeypatch.setattr(transformers, "MAX_DRAWN", 12)
    short, long = explain_subwords(own, QUERY, "therapy"), explain_subwords(own, QUERY, DEFINITION)
    assert "document module, layer 2" in by_name(short)
    assert "document module, layer 2" not in by_name(long)
    assert "document module" in [signal.name for signal in long.signals]
    assert any("at most 12 are drawn" in note for note in long.notes)
    assert not any("are drawn" in note for note in short.notes)
