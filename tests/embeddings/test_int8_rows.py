"""Rows of int8 are as wide as the processor's tiles take them, whatever the vectors' width."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_store import ANIMALS, LONGEST, WORDS, some_docs

from glassrank.backends.configs import Kernels
from glassrank.backends.cpu import amx, kernels
from glassrank.backends.cpu.kernels import StoredRows, pool_cpu
from glassrank.embeddings import Store, encode_index
from glassrank.index import Index
from glassrank.models import MODELS, EmbeddingTable
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.settings import from_plain

WIDTH = 200


def wide_saved() -> SavedModel:
    torch.manual_seed(0)
    vectors = torch.randn(len(WORDS), WIDTH)
    vectors[0] = 0
    small = {"size": WIDTH, "contextual": {"heads": 2, "attention_size": 4}}
    table = EmbeddingTable(vectors, torch.rand(len(WORDS)), trained=False)
    model = MODELS["tk"](from_plain(MODELS["tk"].info.config_type, small), table)
    return SavedModel(model.eval(), Usage(6, LONGEST), WORDS)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.build(some_docs(1, ANIMALS), tmp_path / "index")


@pytest.mark.parametrize("dtype", ["int8", "bf16"])
def test_a_store_of_any_width_is_scored_by_tiles(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    saved = wide_saved()
    encode_index(index, saved, tmp_path / "store", dtype)
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    (segment,) = index.snapshot.segments
    part = store.part(segment.record.name)
    rows = StoredRows(part.vectors, part.scales)
    monkeypatch.setattr(amx, "usable", lambda: True)  # what would be taken where there are tiles
    assert kernels._kind(rows, 0, WIDTH, None) == dtype


@pytest.mark.skipif(not amx.usable(), reason="this processor has no AMX tiles")
def test_tiles_give_the_scores_that_vectors_give(index: Index, tmp_path: Path) -> None:
    saved = wide_saved()
    encode_index(index, saved, tmp_path / "store", "int8")
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    part = store.part(index.snapshot.segments[0].record.name)
    rows = StoredRows(part.vectors, part.scales)
    starts, lengths = part.offsets[:-1], np.diff(part.offsets)
    query, ones = np.full((3, WIDTH), WIDTH**-0.5, np.float32), np.ones(11, np.float32)
    tiles, vectors = (
        pool_cpu(query, ones[:3], rows, starts, lengths, Kernels.eleven(), ones, ones, tiles=tiles)
        for tiles in (True, False)
    )
    np.testing.assert_allclose(tiles, vectors, rtol=1e-5)
