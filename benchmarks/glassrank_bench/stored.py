"""Scoring stored words: fused against plain on the same rows, stored against live, and against what
people use for stored documents today."""

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch

from glassrank.models import TokenBatch, TokenEmbeddings
from glassrank_bench.measuring import Result, medians_ms, peer
from glassrank_bench.workloads import DOCS, TERMS, WORDS, RandomStore, random_tk

_IN_CACHE = 50
"""Documents whose match matrices suit the caches: the plain form is fastest with about so many."""
_SHORT, _PIECE_SIZE, _QUERY_PIECES = 64, 128, 32


def fused_against_plain() -> Sequence[Result]:
    return [row for dtype in ("bf16", "int8", "float32") for row in _fused_against_plain(dtype)]


def _fused_against_plain(dtype: str) -> Sequence[Result]:
    """Plain as it is written, all documents in one call, and in parts that suit the caches."""
    model, store, turns = random_tk(), RandomStore(dtype, WORDS), count()
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
    model = random_tk()
    store, turns = RandomStore("bf16", WORDS), count()
    ids = torch.randint(2, 20_000, (DOCS, WORDS))
    query = TokenEmbeddings(store.query[None], torch.ones(1, TERMS), store.weights[None])

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


def against_late_interaction() -> Sequence[Result]:
    """1,000 documents of 64 words: TK's kernels on its vectors of 300 values, and PyLate's
    `rank.rerank` on as many vectors of 128, as its models have them; other documents each time."""
    rank = peer("pylate.rank")
    model, store, turns = random_tk(), RandomStore("bf16", _SHORT), count()
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, _QUERY_PIECES, _PIECE_SIZE, generator=generator)
    docs = [torch.randn(DOCS, _SHORT, _PIECE_SIZE, generator=generator) for _ in range(4)]
    ids = [list(range(DOCS))]

    def theirs() -> object:
        return rank.rerank(ids, query, [docs[next(turns) % len(docs)]])

    ours_ms, theirs_ms = medians_ms(
        [lambda: store.fused(model, next(turns)), theirs], repeats=15, warm_ups=2
    )
    details: dict[str, float | str] = {
        "ours_ms": ours_ms,
        "theirs_ms": theirs_ms,
        "ours_bytes": float(np.prod(store.rows.shape[1:]) * store.rows.itemsize * _SHORT),
        "theirs_bytes": float(_SHORT * _PIECE_SIZE * 4),
    }
    name = "1,000 stored documents of 64 words: TK against PyLate's rerank"
    return [Result(name, theirs_ms / ours_ms, "times", None, details=details)]
