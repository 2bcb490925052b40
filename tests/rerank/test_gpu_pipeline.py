"""A model on a GPU ranks as it does on the CPU: stored words in each type, and texts."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from test_pipeline import WORDS, texts, tiny_model

from glassrank.embeddings import Store, encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import PACKAGED, SavedModel
from glassrank.models.io.torch_files import save_model
from glassrank.models.model import make_batch
from glassrank.rerank import Pipeline, Reranker, rank
from glassrank.rerank.gpu_scoring import GPUInteraction, GPUPooling
from glassrank.rerank.stored_scorer import choose_fused_scorer
from glassrank.research.papers.subword_table import SubwordTable
from glassrank.research.papers.tk import TK
from glassrank.types import Doc

sys.path.append(str(Path(__file__).parents[1] / "embeddings"))
from small_mores import small_index, small_mores

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or find_spec("triton") is None,
        reason="there is no GPU that torch and triton can use",
    ),
]


def of_subwords() -> SavedModel:
    """TK whose words are means of two rows each: a look-up that cannot be recorded."""
    saved = tiny_model()
    count = len(WORDS)
    rows = torch.tensor([row for word in range(count) for row in (word, count + word % 5)])
    offsets, ngrams = torch.arange(0, 2 * count + 1, 2), torch.tensor([5, 3, 4])
    table = SubwordTable(torch.randn(count + 5, 8), offsets, rows, ngrams)
    model = TK(saved.model.config, table)
    model.mix_first_stage(0.5)
    return SavedModel(model.eval(), saved.usage, WORDS)


MODELS = {"tk": tiny_model, "tk of subwords": of_subwords, "mores": small_mores}
QUERIES = {
    "tk": ["the cat sat", "cold sea", "bird"],
    "tk of subwords": ["the cat sat", "cold sea", "birds unseen"],
    "mores": ["return the list of a class", "import an object of a class"],
}


def on_both(saved: SavedModel, folder: Path) -> tuple[Reranker, Reranker]:
    save_model(folder, saved.model, saved.usage, saved.vocabulary, "a model for tests")
    return tuple(  # type: ignore[return-value]
        Reranker(load_model(folder), device, exact=True) for device in ("cpu", "cuda")
    )


def an_index(name: str, folder: Path) -> Index:
    if name == "mores":
        return small_index(folder)
    return Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(40))], folder)


@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bf16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_processors(name: str, dtype: str | None, tmp_path: Path) -> None:
    saved = MODELS[name]()
    index = an_index(name, tmp_path / "index")
    here, there = on_both(saved, tmp_path / "model")
    stores: list[Store | None] = [None, None]
    if dtype is not None:
        encode_index(index, saved, tmp_path / "store", dtype)
        stores = [
            Store.open(tmp_path / "store", ranks.model, index.snapshot) for ranks in (here, there)
        ]
    plain, fast = (
        Pipeline(index, ranks, store=store)
        for ranks, store in zip((here, there), stores, strict=True)
    )
    for query in QUERIES[name]:
        expected, found = (
            {hit.doc_id: hit.score for hit in way(query, k=100)} for way in (plain, fast)
        )
        assert expected.keys() == found.keys() and len(found) > 5
        for doc, score in expected.items():
            assert found[doc] == pytest.approx(score, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize(("name", "way"), [("tk", GPUPooling), ("mores", GPUInteraction)])
def test_stored_words_take_the_fused_way(name: str, way: type, tmp_path: Path) -> None:
    saved = MODELS[name]()
    index = an_index(name, tmp_path / "index")
    _, there = on_both(saved, tmp_path / "model")
    encode_index(index, saved, tmp_path / "store", "bf16")
    store = Store.open(tmp_path / "store", there.model, index.snapshot)
    assert isinstance(choose_fused_scorer(there.fast_model, store), way)


@pytest.mark.parametrize("name", MODELS)
def test_replayed_queries_are_encoded_as_plain_ones(name: str, tmp_path: Path) -> None:
    _, there = on_both(MODELS[name](), tmp_path / "model")
    for query in [*QUERIES[name], "", " ".join(["the list"] * 40)] * 2:
        found = there.encode_query(query)
        ids = [there.read_query(query).ids]
        with torch.no_grad():
            expected = there.model.encode_query(make_batch(ids, torch.device("cuda")))
        for ours, own in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.cpu(), own.cpu(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", PACKAGED)
def test_models_in_the_package_rank_alike(name: str) -> None:
    here, there = Reranker.load(name, exact=True), Reranker.load(name, "cuda")  # int8 is not exact
    some = ["A csv file is read line by line.", "A list holds objects.", "", "Rows " * 300]
    expected, found = (
        {hit.doc_id: hit.score for hit in rank("how do I read a csv file?", some, model=model)}
        for model in (here, there)
    )
    for place, score in expected.items():  # bf16 there
        assert found[place] == pytest.approx(score, rel=0.02, abs=0.05)
