"""Models without PyTorch beside those of PyTorch's: the same words, scores and reasons."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_cases import SMALL_PIECES, small_model
from model_folders import PIECES, WORDS

pytest.importorskip("numba")
from glassrank.backends.onnx_encoders import Quantized
from glassrank.embeddings import encode_index
from glassrank.explanations import explain_docs
from glassrank.index import Index
from glassrank.models import MODELS, EmbeddingTable, Ranker
from glassrank.models.families import ONNX_MODELS, import_object
from glassrank.models.io.load import load_for_inference, load_model
from glassrank.models.io.model_folder import Usage, fingerprint
from glassrank.models.io.torch_files import save_model
from glassrank.models.model import TokenBatch, TokenEmbeddings
from glassrank.rerank import Pipeline, Reranker
from glassrank.rerank.reranker import OnnxBackend
from glassrank.types import Doc

KINDS: dict[str, tuple[str, dict[str, object], dict[str, str]]] = {
    "tk": ("tk", {}, {}),
    "tk, small vectors": ("tk", {}, {"vectors": "int8", "layers": "float16"}),
    "tk, layers of 8 bits": ("tk", {}, {"layers": "int8"}),
    "tk, all settings": ("tk", {"term_weights": True, "monotone": True}, {"vectors": "float16"}),
    "maxsim": ("maxsim", {}, {}),
    "kernel_bert": ("kernel_bert", {}, {"vectors": "int8", "layers": "float16"}),
    "kernel_bert, layers of 8 bits": ("kernel_bert", {}, {"vectors": "int8", "layers": "int8"}),
    "kernel_bert, any weights": ("kernel_bert", {"monotone": False}, {}),
    "kernel_bert, over an MPNet": (
        "kernel_bert",
        {"encoder": {**SMALL_PIECES["kernel_bert"]["encoder"], "distances": 8}},
        {"vectors": "int8", "layers": "float16"},
    ),
}
PLACES = np.random.default_rng(0)


def texts(pieces: bool, count: int = 40) -> list[str]:
    names = PIECES[4:] if pieces else WORDS[2:]
    return [" ".join(PLACES.choice(names, PLACES.integers(1, 20))) for _ in range(count)]


def made(name: str, **changes: object) -> Ranker:
    model = small_model(name, **changes)
    if not model.info.uses_subwords:
        model.words = EmbeddingTable(
            torch.randn(24, 12), torch.rand(24), trained=False
        )  # with buckets
    model.mix_first_stage(0.3)
    return model.eval()


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    name, changes, kept = KINDS[request.param]
    model = made(name, **changes)
    vocabulary = PIECES if model.info.uses_subwords else WORDS
    save_model(tmp_path / "model", model, Usage(8, 14), vocabulary, "# a card\n", **kept)
    yield tmp_path / "model"


def both(folder: Path) -> tuple[Reranker, Reranker]:
    served, trained = Reranker.load(folder), Reranker(load_model(folder))
    assert isinstance(served._backend, OnnxBackend)
    assert not isinstance(trained._backend, OnnxBackend)
    return served, trained


def in_int8(served: Reranker) -> bool:
    return any(
        ".layers." in n and isinstance(w, Quantized) for n, w in served.model.weights.arrays.items()
    )


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ONNX_MODELS)
def test_what_is_known_of_a_family_is_the_same(name: str) -> None:
    assert import_object(ONNX_MODELS[name]).info == MODELS[name].info


def test_it_is_the_same_model(folder: Path) -> None:
    served, trained = load_for_inference(folder), load_model(folder)
    assert served.model.device is None and trained.model.device.type == "cpu"
    assert fingerprint(served.model) == fingerprint(trained.model)
    assert served.unknown_buckets == trained.unknown_buckets
    assert (served.usage, served.vocabulary) == (trained.usage, trained.vocabulary)
    assert isinstance(served.trained().model, Ranker)


def test_queries_are_those_of_the_trained_model(folder: Path) -> None:
    """But for matrices that are kept in int8: those are multiplied with int8 activations."""
    served, trained = both(folder)
    for query in ("w3 w4 unknown", "p1 p2p3 p7", ""):
        found, expected = served.encode_query(query), trained.encode_query(query)
        close(found.mask, expected.mask)
        if in_int8(served):
            cosines = (found.vectors * np.asarray(expected.vectors)).sum(-1)[found.mask > 0]
            assert cosines.min(initial=1.0) > 0.999
            np.testing.assert_allclose(found.idf, np.asarray(expected.idf), rtol=0.02, atol=0.02)
        else:
            close(found.vectors, expected.vectors)
            close(found.idf, expected.idf)
        for mine, theirs in zip(
            served.model.scoring_heads(), trained.model.scoring_heads(), strict=True
        ):
            close(mine.log, theirs.log.detach())
            close(mine.length, theirs.length.detach())


def test_a_document_is_encoded_beside_others_as_it_is_alone(folder: Path) -> None:
    served = load_for_inference(folder).model
    lengths = [5, 0, 1, 14, 9, *[7] * 60]
    mask = (np.arange(14) < np.array(lengths)[:, None]).astype(np.float32)
    ids = (PLACES.integers(4, 18, mask.shape) * mask).astype(np.int32)
    together = served.encode_doc(TokenBatch(ids, mask)).vectors
    for row in range(len(lengths)):
        alone = served.encode_doc(TokenBatch(ids[row : row + 1], mask[row : row + 1])).vectors
        np.testing.assert_array_equal(together[row], alone[0])
    assert not together[mask == 0].any()


def test_documents_are_encoded_no_further_from_the_truth(folder: Path) -> None:
    """Than PyTorch's rounded form, for which the same holds; or by the rounding of weights."""
    served, trained = both(folder)
    plain = Reranker(load_model(folder), exact=True)
    query, docs = "w3 w4 w5 p3 p4", texts(served.model.info.uses_subwords)
    first = np.linspace(3, 1, len(docs)).tolist()
    expected = plain.scores(query, docs, first).values
    off = np.abs(served.scores(query, docs, first).values - expected).max()
    usual = np.abs(trained.scores(query, docs, first).values - expected).max()
    assert off <= max(1.2 * usual, 0.02 * np.abs(expected).max())


def test_stored_documents_have_the_same_scores_and_reasons(folder: Path, tmp_path: Path) -> None:
    served, trained = both(folder)
    if in_int8(served):  # what is compared is scoring
        trained._backend.encode_query = lambda batch: TokenEmbeddings(  # type: ignore[method-assign]
            *map(torch.from_numpy, served.encode_query_ids(TokenBatch(*map(np.asarray, batch))))
        )
    docs = [Doc(f"d{n}", text) for n, text in enumerate(texts(served.model.info.uses_subwords))]
    index = Index.build(docs, tmp_path / "index")
    encode_index(index, trained.saved)
    found, expected = (Pipeline(index, model, calibrate=False) for model in (served, trained))
    assert found.store is not None and expected.store is not None
    query = docs[0].text
    mine, theirs = found(query, 40), expected(query, 40)
    scores = {hit.doc_id: hit.score for hit in theirs}
    assert {hit.doc_id for hit in mine} == set(scores) and mine.depth == theirs.depth
    close([hit.score for hit in mine], [scores[hit.doc_id] for hit in mine])
    for told, same in zip(
        explain_docs(found, query, ["d0", "d3"]),
        explain_docs(expected, query, ["d0", "d3"]),
        strict=True,
    ):
        notes = [note for note in same.notes if "beside other documents" not in note]
        agree(told.to_json(), {**same.to_json(), "notes": notes})


def agree(found: Any, expected: Any, where: str = "") -> None:
    """The same structure, words and places; numbers but for their last digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            agree(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for number, value in enumerate(expected):
            agree(found[number], value, f"{where}[{number}]")
    elif isinstance(expected, float) and found is not None:
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4), where
    else:
        assert found == expected, where


def test_stores_of_both_are_alike(folder: Path, tmp_path: Path) -> None:
    served, trained = both(folder)
    docs = [Doc(f"d{n}", text) for n, text in enumerate(texts(served.model.info.uses_subwords))]
    index = Index.build(docs, tmp_path / "index")
    numbers = np.arange(len(docs))
    for dtype in ("bf16", "int8", "float16", "float32"):
        vectors = []
        for number, model in enumerate((served, trained)):
            path = tmp_path / f"{dtype}-{number}"
            encode_index(index, model.saved, path, dtype)
            store = Pipeline(index, served, store=_opened(path, served), calibrate=False).store
            assert store is not None
            (located,) = store.locate(index.snapshot, numbers)
            words = store.read_embeddings(located.part, *located.part.passage_rows(located.first))
            vectors.append(np.asarray(words.vectors))
        off = np.abs(vectors[0] - vectors[1]).max()
        assert off <= (0 if dtype == "float32" else 0.06), dtype


def _opened(path: Path, reranker: Reranker) -> Any:
    from glassrank.embeddings import Store

    return Store.open(path, reranker.model)
