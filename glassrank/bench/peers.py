"""Stored documents scored by us, and by what people use for stored documents today."""

from collections.abc import Sequence
from importlib import import_module
from itertools import count

import numpy as np
import torch

from glassrank.bench.clocks import medians_ms
from glassrank.bench.results import MissingError, Result
from glassrank.bench.stored import DOCS, RandomStore, tiny_table_tk

WORDS, PIECE_SIZE, QUERY_PIECES = 64, 128, 32


def against_late_interaction() -> Sequence[Result]:
    """1,000 documents of 64 words: TK's kernels on its vectors of 300 values, and PyLate's
    `rank.rerank` on as many vectors of 128, as its models have them; other documents each time."""
    try:
        rank = import_module("pylate.rank")
    except ImportError:
        raise MissingError("pylate is not installed; pip install 'glassrank[bench]'") from None
    model, store, turns = tiny_table_tk(), RandomStore("bf16", WORDS), count()
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, QUERY_PIECES, PIECE_SIZE, generator=generator)
    docs = [torch.randn(DOCS, WORDS, PIECE_SIZE, generator=generator) for _ in range(4)]
    ids = [list(range(DOCS))]

    def theirs() -> object:
        return rank.rerank(ids, query, [docs[next(turns) % len(docs)]])

    ours_ms, theirs_ms = medians_ms(
        [lambda: store.fused(model, next(turns)), theirs], repeats=15, warm_ups=2
    )
    details: dict[str, float | str] = {
        "ours_ms": ours_ms,
        "theirs_ms": theirs_ms,
        "ours_bytes": float(np.prod(store.rows.shape[1:]) * store.rows.itemsize * WORDS),
        "theirs_bytes": float(WORDS * PIECE_SIZE * 4),
    }
    name = "1,000 stored documents of 64 words: TK against PyLate's rerank"
    return [Result(name, theirs_ms / ours_ms, "times", None, details=details)]
