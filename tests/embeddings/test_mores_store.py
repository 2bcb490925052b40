"""Stores of MORES: what is kept of a document changes the time and the room, not the score."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from small_mores import QUERIES, USAGE, small_bert, small_index, small_mores, some_pydocs

from glassrank.cli.encode import encode
from glassrank.embeddings import Progress, Store, encode_index
from glassrank.embeddings import encode as encode_module
from glassrank.embeddings.manifest import Layout, stride
from glassrank.embeddings.rows import pack_tensor as pack
from glassrank.embeddings.rows import row_bytes
from glassrank.embeddings.rows import unpack_tensor as unpack
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.io.model_folder import Passages, SavedModel
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Pipeline, Reranker

pytest.importorskip("tokenizers")
SHAPES = [(1, False), (2, False), (2, True)]
SHAPES_AND_QUERIES = [
    pytest.param(*shape, query, marks=() if place == number else pytest.mark.slow)
    for place, shape in enumerate(SHAPES)
    for number, query in enumerate(QUERIES)
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(tmp_path_factory.mktemp("mores") / "index")


def stored(index: Index, saved: SavedModel, path: Path, dtype: str, reuse: str) -> Store:
    encode_index(index, saved, path, dtype, reuse=reuse)
    return Store.open(path, saved.model, index.snapshot)


def scores(index: Index, reranker: Reranker, store: Store | None, query: str) -> np.ndarray:
    """Of every document."""
    numbers = np.arange(len(index), dtype=np.int64)
    pipeline = Pipeline(index, reranker, store=store, calibrate=False)
    found = pipeline.rerank(query, numbers, np.zeros(len(numbers)))
    by_id = {hit.doc_id: hit.score for hit in found}
    return np.array([by_id[doc.doc_id] for doc in some_pydocs()])


@cache
def live_scores(query: str, blocks: int = 2, tie: bool = False) -> np.ndarray:
    """The model's own, each text alone, so that nothing is padded."""
    reranker = Reranker(small_mores(blocks, tie), exact=True)
    return np.array([reranker.scores(query, [doc]).values[0] for doc in some_pydocs()])


@pytest.mark.parametrize(("blocks", "tie", "query"), SHAPES_AND_QUERIES)
def test_live_s1_and_s2_give_one_score(
    index: Index, blocks: int, tie: bool, query: str, tmp_path: Path
) -> None:
    saved = small_mores(blocks, tie)
    exact = Reranker(saved, exact=True)
    live = live_scores(query, blocks, tie)
    assert np.ptp(live) > 0.1
    ways = [stored(index, saved, tmp_path / reuse, "float32", reuse) for reuse in ("s1", "s2")]
    for way in (None, *ways):
        found = scores(index, exact, way, query)
        np.testing.assert_allclose(found, live, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def rounded(
    index: Index, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], tuple[SavedModel, Store]]:
    """Stores of one model by what they hold, each of which is made once."""
    saved, folder = small_mores(), tmp_path_factory.mktemp("rounded")
    return cache(
        lambda dtype, reuse: (
            saved,
            stored(index, saved, folder / f"{dtype}-{reuse}", dtype, reuse),
        )
    )


@pytest.mark.parametrize("reuse", ["s1", "s2"])
@pytest.mark.parametrize("dtype", ["float16", "bf16", "int8"])
@pytest.mark.parametrize(("exact", "share"), [(True, 0.03), (False, 0.05)])
@pytest.mark.long
def test_rounding_moves_no_score_far(
    index: Index,
    rounded: Callable[[str, str], tuple[SavedModel, Store]],
    reuse: str,
    dtype: str,
    exact: bool,
    share: float,
) -> None:
    """At most `share` of the range of scores; documents further apart keep their order. Without
    `exact` the interaction is rounded too, where this processor multiplies short floats."""
    saved, store = rounded(dtype, reuse)
    for query in QUERIES:
        live = live_scores(query)
        found = scores(index, Reranker(saved, exact=exact), store, query)
        far = share * np.ptp(live)
        assert 0 < np.abs(found - live).max() <= far
        clear = live[:, None] > live[None, :] + 2 * far
        assert clear.mean() > 0.2
        assert (found[:, None] > found[None, :])[clear].all()
        assert len(set(np.argsort(-live)[:10]) & set(np.argsort(-found)[:10])) >= 8


@pytest.mark.parametrize("reuse", ["s1", "s2"])
def test_the_store_says_what_it_holds(index: Index, reuse: str, tmp_path: Path) -> None:
    saved = small_mores(2)
    report = encode_index(index, saved, dtype="int8", reuse=reuse)
    assert report.path == index.path / "stores" / f"mores-{reuse}-int8"
    store = Store.open(report.path, saved.model, index.snapshot)
    assert store.layout.axes == {"s1": (24,), "s2": (2, 2, 24)}[reuse]
    assert f"{reuse.upper()} in int8" in repr(store)
    part = store.part(index.snapshot.segments[0].record.name)
    assert part.scales is not None
    assert len(part.scales) == len(part.vectors) * {"s1": 1, "s2": 4}[reuse]


def test_each_key_and_each_value_has_its_own_scale() -> None:
    """A key a thousand times larger than the value beside it takes nothing from it."""
    layout = Layout("mores", "", "", 40, "int8", (1, 2, 8), (), stride(16, "int8"), "s2")
    torch.manual_seed(0)
    vectors = torch.randn(5, 16) * torch.tensor([1000.0] * 8 + [1.0] * 8)
    found = unpack(pack(vectors, layout), layout, torch.device("cpu"))
    steps = torch.stack([part.abs().amax(1) / 127 for part in vectors.split(8, 1)], 1)  # (5, 2)
    error = (found - vectors).abs().unflatten(1, (2, 8))
    assert (error <= 0.5001 * steps[..., None]).all()
    assert row_bytes(layout) == 64 + 2 * 4


def interrupted(after: int) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        if progress.documents > after:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize(("dtype", "reuse"), [("float32", "s1"), ("int8", "s2")])
def test_work_that_was_interrupted_ends_with_the_same_bytes(
    index: Index, dtype: str, reuse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = small_mores()
    monkeypatch.setattr(encode_module, "BLOCK_DOCS", 8)
    whole = encode_index(index, saved, tmp_path / "whole", dtype, reuse=reuse)
    for after in (10, 25):
        with pytest.raises(KeyboardInterrupt):
            encode_index(index, saved, tmp_path / "again", dtype, interrupted(after), reuse=reuse)
    resumed = encode_index(index, saved, tmp_path / "again", dtype, reuse=reuse)
    assert 0 < resumed.encoded < whole.encoded
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def test_a_merge_copies_rows_with_all_their_scales(tmp_path: Path) -> None:
    index, saved = small_index(tmp_path / "index"), small_mores(1)
    store = stored(index, saved, tmp_path / "store", "int8", "s2")
    before = scores(index, Reranker(saved, exact=True), store, QUERIES[0])
    index.merge()
    report = encode_index(index, saved, tmp_path / "store", "int8")
    assert (report.encoded, report.reused) == (0, len(index))
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    after = scores(index, Reranker(saved, exact=True), store, QUERIES[0])
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


def test_another_store_is_refused(index: Index, tmp_path: Path) -> None:
    saved, other = small_mores(), small_mores(seed=2)
    stored(index, saved, tmp_path / "store", "bf16", "s1")
    with pytest.raises(InputError, match="was encoded by another model") as raised:
        Store.open(tmp_path / "store", other.model)
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="belongs to another model"):
        encode_index(index, other, tmp_path / "store", reuse="s1")
    wanted = r"holds S1 in bf16 in .* of 40 words, not S2 in bf16 in .* words; choose another name"
    with pytest.raises(InputError, match=wanted) as raised:
        encode_index(index, saved, tmp_path / "store", "bf16", reuse="s2")
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="reuse: expected s1 or s2, found 's3'"):
        encode_index(index, saved, tmp_path / "other", reuse="s3")


def test_a_bert_has_nothing_to_store(index: Index, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a bert reads query and document as one text") as raised:
        encode_index(index, small_bert(), tmp_path / "store")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "store").exists()


def test_what_was_cut_is_reported(index: Index, tmp_path: Path) -> None:
    for doc_words in (None, 3):
        saved = small_mores(doc_words=doc_words)
        saved = replace(saved, usage=replace(USAGE, passages=Passages(most=3)))
        found = Reranker(saved).scores("file", some_pydocs())
        report = encode_index(index, saved, tmp_path / str(doc_words))
        assert 0 < report.cut == (found.cut > 0).sum() < len(some_pydocs())
        # Pieces of words are counted with [CLS] and [SEP].
        assert report.words < report.passages * USAGE.doc_length


def test_the_command_line_makes_a_store_and_the_pipeline_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, folder = small_mores(), tmp_path / "model"
    save_model(folder, saved.model, saved.usage, saved.vocabulary, "")
    index = small_index(tmp_path / "index")
    assert Pipeline.open(index.path, folder).store is None
    for reuse in ("s1", "s2"):
        encode(index.path, str(folder), "bf16", reuse, quiet=True, json=True)
        numbers = json.loads(capsys.readouterr().out)
        assert numbers["path"].endswith(f"mores-{reuse}-bf16")
        assert numbers["cut"] > 0
        pipeline = Pipeline.open(index.path, folder)
        # Of two, that which ranks faster.
        assert pipeline.store is not None and pipeline.store.layout.reuse == reuse
        assert len(pipeline("return a list", k=5)) == 5
