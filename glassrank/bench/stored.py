"""Scoring stored words: fused against plain on the same rows, and stored against live."""

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.bench.clocks import medians_ms
from glassrank.bench.results import Result
from glassrank.models import TokenBatch, Words, WordTable
from glassrank.models.tk import TK, TKConfig
from glassrank.nn.contextual import ContextualConfig

DOCS, WORDS, SIZE, STRIDE, TERMS = 1000, 200, 300, 320, 30
_SETS = 4
"""Different documents in turn, so that caches do not help: each set is larger than they are."""
_IN_CACHE = 50
"""Documents whose match matrices suit the caches: the plain form is fastest with about so many."""


def tiny_table_tk(layers: int = 2) -> TK:
    """A TK as the packaged one is, with random weights: speed does not depend on their values."""
    torch.manual_seed(0)
    contextual = ContextualConfig(
        layers, heads=10, attention_size=32, per_head=True, feed_forward=300
    )
    model = TK(TKConfig(contextual=contextual), WordTable(torch.randn(20_000, SIZE), trained=False))
    return model.eval().requires_grad_(False)


class RandomStore:
    """Rows as a store has them, and one query."""

    def __init__(self, dtype: str, words: int = WORDS) -> None:
        generator = torch.Generator().manual_seed(0)
        self.words = words
        rows = torch.zeros(_SETS * DOCS * words, STRIDE, dtype=torch.bfloat16)
        self.scales: NDArray[np.float32] | None = None
        for start in range(0, len(rows), DOCS * words):
            vectors = torch.randn(DOCS * words, SIZE, generator=generator)
            rows[start : start + DOCS * words, :SIZE] = torch.nn.functional.normalize(vectors)
        query = torch.randn(TERMS, SIZE, generator=generator)
        self.query = torch.nn.functional.normalize(query)  # (Q, E)
        self.weights = torch.rand(TERMS, generator=generator)  # (Q,)
        if dtype == "bf16":
            self.rows = rows.view(torch.uint16).numpy()
        elif dtype == "int8":
            largest = rows.float().abs().amax(1)
            self.scales = (largest / 127).numpy()
            self.rows = (rows.float() / (largest / 127)[:, None]).round().to(torch.int8).numpy()
        else:
            self.rows = rows.float().numpy()
        order = torch.randperm(_SETS * DOCS, generator=generator).numpy()
        self.starts = [
            order[n * DOCS : (n + 1) * DOCS].astype(np.int64) * words for n in range(_SETS)
        ]
        self.lengths = np.full(DOCS, words, np.int64)

    def plain(self, model: TK, turn: int, at_once: int) -> NDArray[np.float32]:
        """Rows to float32, then what the model itself does, with so many documents at a time."""
        query = Words(self.query[None], torch.ones(1, TERMS), self.weights[None])
        found = []
        starts = self.starts[turn % _SETS]
        for begin in range(0, DOCS, at_once):
            part = starts[begin : begin + at_once]
            places = (part[:, None] + np.arange(self.words)).ravel()
            raw = torch.from_numpy(self.rows[places])
            vectors = raw.view(torch.bfloat16).float() if raw.dtype == torch.uint16 else raw.float()
            if self.scales is not None:
                vectors *= torch.from_numpy(self.scales[places])[:, None]
            docs = torch.unflatten(vectors[:, :SIZE], 0, (len(part), self.words))
            ones = torch.ones(len(part), self.words)
            same = query.rows(torch.zeros(len(part), dtype=torch.long))
            found.append(model.interact(same, Words(docs, ones, ones)).score)
        return torch.cat(found).numpy()

    def fused(self, model: TK, turn: int) -> NDArray[np.float32]:
        from glassrank.nn.cpu.kernels import StoredRows, pool_cpu

        readout = model.readouts()[0]
        return pool_cpu(
            self.query.numpy(), self.weights.numpy(), StoredRows(self.rows, self.scales),
            self.starts[turn % _SETS], self.lengths, model.config.kernels,
            readout.log.numpy(), readout.length.numpy(),
        )  # fmt: skip


def fused_against_plain() -> Sequence[Result]:
    return [row for dtype in ("bf16", "int8", "float32") for row in _fused_against_plain(dtype)]


def _fused_against_plain(dtype: str) -> Sequence[Result]:
    """Plain as it is written, all documents in one call, and in parts that suit the caches."""
    model, store, turns = tiny_table_tk(), RandomStore(dtype), count()
    difference = np.abs(store.fused(model, 0) / store.plain(model, 0, _IN_CACHE) - 1).max()
    (fused,) = medians_ms([lambda: store.fused(model, next(turns))], repeats=30, warm_ups=3)
    again, plain, in_parts = medians_ms(
        [
            lambda: store.fused(model, next(turns)),
            lambda: store.plain(model, next(turns), DOCS),
            lambda: store.plain(model, next(turns), _IN_CACHE),
        ]
    )
    fused = max(fused, again)  # the plain forms leave colder caches behind
    details: dict[str, float | str] = {
        "fused_ms": fused,
        "plain_ms": plain,
        "plain_in_parts_ms": in_parts,
        "difference": float(difference),
    }
    name = f"stored scoring, {dtype}: fused against plain"
    target = 25.0 if dtype == "bf16" else None
    return [
        Result(name, plain / fused, "times", target, details=details),
        Result(f"{name} in parts of {_IN_CACHE}", in_parts / fused, "times", None),
    ]


def stored_against_live() -> Sequence[Result]:
    model = tiny_table_tk()
    store, turns = RandomStore("bf16"), count()
    ids = torch.randint(2, 20_000, (DOCS, WORDS))
    query = Words(store.query[None], torch.ones(1, TERMS), store.weights[None])

    @torch.no_grad()
    def live() -> None:
        for begin in range(0, DOCS, _IN_CACHE):
            part = ids[begin : begin + _IN_CACHE]
            docs = model.encode_doc(TokenBatch(part, torch.ones(part.shape)))
            same = query.rows(torch.zeros(len(part), dtype=torch.long))
            model.interact(same, docs)

    fused, lived = medians_ms([lambda: store.fused(model, next(turns)), live], repeats=3)
    details: dict[str, float | str] = {"stored_ms": fused, "live_ms": lived}
    return [
        Result("stored TK against the same TK live", lived / fused, "times", 100.0, details=details)
    ]
