"""`exact`: a score depends on the query and the document alone, not on threads or neighbours."""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from reliability import Recorder
from step_clock import StepClock

from glassrank.embeddings import Store, encode_index
from glassrank.explanations import explain
from glassrank.index import Index
from glassrank.models.io.load import load_named
from glassrank.models.io.model_folder import SavedModel
from glassrank.rerank import Pipeline, Reranker
from glassrank.types import Doc

sys.path.append(str(Path(__file__).parents[1] / "embeddings"))
from small_mores import small_bert, small_index, small_mores

THREADS = (1, 2, 4)
SAME = "live scores with --exact on 1, 2 and 4 threads", "the same bytes"


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def packaged() -> SavedModel:
    return load_named("default")


@pytest.fixture(scope="module")
def texts(packaged: SavedModel) -> list[str]:
    """Of all lengths, in words that the model knows."""
    drawn = random.Random(0)
    words = packaged.vocabulary[2000:4000]  # whole words, each of them one piece
    return [" ".join(drawn.choices(words, k=drawn.randint(1, 90))) for _ in range(20)]


def saved_models() -> dict[str, SavedModel]:
    pytest.importorskip("tokenizers")
    return {"bert": small_bert(), "mores": small_mores()}


@pytest.mark.parametrize("name", ["default", "bert", "mores"])
@pytest.mark.long
def test_live_scores_are_the_same_bytes_with_any_number_of_threads(
    packaged: SavedModel, texts: list[str], name: str, reliability: Recorder
) -> None:
    saved = packaged if name == "default" else saved_models()[name]
    query = " ".join(texts[0].split()[:5])
    first = np.linspace(20, 1, len(texts))
    found = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        reranker = Reranker(saved, exact=True)
        found.append(reranker.scores(query, texts, list(first)).values.tobytes())
        # Nor do neighbours matter.
        some = reranker.scores(query, texts[7:20:3], list(first[7:20:3])).values
        assert some.tobytes() == np.frombuffer(found[0], np.float32)[7:20:3].tobytes()
        assert torch.get_num_threads() == threads
    assert len(set(found)) == 1
    reliability("Standing", *SAME, tries=len(THREADS) * len(texts))


def test_explanations_are_the_same_bytes_with_any_number_of_threads(
    packaged: SavedModel, texts: list[str]
) -> None:
    query, found = " ".join(texts[0].split()[:5]), []
    for threads in THREADS:
        torch.set_num_threads(threads)
        reranker = Reranker(packaged, exact=True)
        shown = [explain(reranker, query, text, first_stage=3.0) for text in texts[:3]]
        found.append(json.dumps([one.to_json() for one in shown]))
        ranked = reranker.scores(query, texts[:3], [3.0] * 3).values
        assert [one.score for one in shown] == pytest.approx(ranked.tolist(), abs=1e-5)
    assert len(set(found)) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_rankings_of_a_transformer_are_the_same_with_any_number_of_threads(
    tmp_path: Path, stored: bool
) -> None:
    saved, index = small_mores(), small_index(tmp_path / "index")
    store = None
    if stored:
        encode_index(index, saved, tmp_path / "store", "float32")
        store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    first = index.top_k(["return the list of a class"], 60)[0]
    found = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        pipeline = Pipeline(index, Reranker(saved, exact=True), store=store, calibrate=False)
        found.append(pipeline.rerank("a list", first.docs, first.scores).hits)
    assert found[0] == found[1] == found[2]


def test_a_budget_does_not_change_the_scores_that_it_allows(
    tmp_path: Path, packaged: SavedModel, texts: list[str]
) -> None:
    """Pieces are cut by the clock; a document's score is the same in each."""
    docs = (Doc(str(n), f"{texts[0][:30]} {text}") for n, text in enumerate(texts))
    index = Index.build(docs, tmp_path / "index")
    pipeline = Pipeline(index, Reranker(packaged, exact=True), calibrate=False, clock=StepClock())
    query = texts[0][:30]
    whole = {hit.doc_id: hit.score for hit in pipeline(query, 200)}
    ranking = pipeline(query, 200, budget_ms=10)
    assert 0 < ranking.depth < len(whole)
    assert all(hit.score == whole[hit.doc_id] for hit in ranking.hits[: ranking.depth])
