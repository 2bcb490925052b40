"""Models that rank without PyTorch: weights as arrays, encoders and soft counts as compiled code.

They encode, score and explain what `tk.py` and `bi_encoders.py` train, with the same weights and
the same fingerprint. Queries and documents pass the encoder as `nn/cpu/text_encoders.py` has it,
with weights rounded to bfloat16; scores are those of `nn/cpu/kernels.py`, as for stored words.
`interact` gives the parts of a score.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.models.ranker import AnyRanker, Output, TokenBatch, Words
from glassrank.models.served_families import (
    KernelBERTFamily,
    LateInteractionFamily,
    MaxSimFamily,
    ServedTable,
    TKFamily,
)
from glassrank.nn.configs import FLOOR, Readout, kernel_value
from glassrank.nn.cpu import amx
from glassrank.nn.cpu.kernels import StoredRows, pool_cpu
from glassrank.nn.cpu.text_encoders import BERTRows, ContextualRows, within

Array = NDArray[Any]
_ROWS_AT_ONCE = 256
"""Of documents, that pass an encoder together: fewer, and weights are read more often than they
have to be; more, and rows leave the processor's cache."""
_EPSILON = np.float32(1e-13)


class ServedRanker(AnyRanker):
    """Made of its settings, and of its weights by name."""

    def __init__(self, config: Any, weights: dict[str, Array]) -> None:
        self.config = config
        self.weights = weights
        self.words: ServedTable | None = None
        # By matrix tiles a document takes hardly longer than waking a thread does.
        self.threads_share_passes = not amx.usable()
        mixed = weights.get("first_stage_weight")
        self.first_stage_weight = None if mixed is None else np.float32(mixed)

    @property
    def device(self) -> None:
        """None: PyTorch does not compute it."""

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """By name, each in one."""
        for name, array in self.weights.items():
            yield name, iter([array])

    def encode_query(self, batch: TokenBatch) -> Words:
        """One query, (1, L)."""
        ids = _ids(batch)
        vectors, weights = self._query(ids)
        width = batch.mask.shape[1]
        made = np.zeros((1, width, vectors.shape[1]), np.float32)
        weight = np.zeros((1, width), np.float32)
        made[0, : len(ids)], weight[0, : len(ids)] = vectors, weights
        return Words(made, batch.mask, weight)

    def encode_doc(self, batch: TokenBatch) -> Words:
        """Some documents, (B, L); a few at a time pass the encoder."""
        lengths = batch.mask.sum(1).astype(np.int64)  # (B,)
        ids, real = _ids(batch), batch.mask > 0
        made = [
            self._docs(ids[first:last], lengths[start:stop])
            for start, stop, first, last in _passes(lengths)
        ]
        vectors = np.zeros((*real.shape, self.config.size), np.float32)  # (B, L, E)
        vectors[real] = np.concatenate([vectors[:0, 0], *made])
        return Words(vectors, batch.mask, batch.mask)

    @abstractmethod
    def _query(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        """One text (L,): unit vectors (L, E), and weights (L,)."""

    @abstractmethod
    def _docs(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Array:
        """Texts, one after another (T,): unit vectors (T, E)."""

    def for_many(self, query: Words, count: int) -> Words:
        """As it is: one query serves any number of documents."""
        return query

    def rank(self, query: Words, doc: Words, first_stage: Array | None = None) -> Output:
        """The score as stored words get it; its parts are asked of `interact`."""
        score = self._scores(query, doc)
        if self.first_stage_weight is not None and first_stage is not None:
            score = score + self.first_stage_weight * first_stage
        return Output(score, {})

    @abstractmethod
    def _scores(self, query: Words, doc: Words) -> Array:
        """(B,)"""


class _Kernels(ServedRanker):
    """Soft counts on two paths."""

    def _scores(self, query: Words, doc: Words) -> Array:
        count, width, size = doc.vectors.shape
        (readout,) = self.readouts()
        return pool_cpu(
            query.vectors[0],
            query.idf[0],
            StoredRows(np.ascontiguousarray(doc.vectors, np.float32).reshape(-1, size)),
            np.arange(count) * width,
            doc.mask.sum(1).astype(np.int64),
            self.config.kernels,
            readout.log,
            readout.length,
        )

    def interact(self, query: Words, doc: Words) -> Output:
        kernels = self.config.kernels
        similarity, real = _match(query, doc)  # (B, Q, D)
        counts = np.stack(
            [
                (kernel_value(similarity, kernels, number) * real).sum(2)
                for number in range(len(kernels))
            ],
            axis=2,
        )  # (B, Q, K)
        (readout,) = self.readouts()
        weight = query.idf[..., None]  # (1, Q, 1)
        length = doc.mask.sum(1, dtype=np.float32)[:, None, None] + 1  # (B, 1, 1)
        log = readout.log * (np.log(np.maximum(counts, np.float32(FLOOR))) * weight)  # (B, Q, K)
        by_length = readout.length * (counts / length * weight)  # (B, Q, K)
        parts = {"log": log, "length": by_length, "similarity": similarity}
        return Output(log.sum((1, 2)) + by_length.sum((1, 2)), parts)


class ServedTK(TKFamily, _Kernels):
    """TK."""

    def __init__(self, config: Any, weights: dict[str, Array]) -> None:
        super().__init__(config, weights)
        name = "words.embedding"
        self._table_name = f"{name}.weight"
        scales = weights.pop(f"{name}.scales", None)
        self.words = self._table = ServedTable(weights.pop(self._table_name), scales)
        self._contextual = ContextualRows(
            config.size, config.contextual, within(weights, "contextual.")
        )

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """The table as floats, some rows at a time."""
        yield from super().weight_chunks()
        yield self._table_name, self._table.chunks()

    def _query(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        words = self._table[ids]  # (L, E)
        weights = np.ones(len(ids), np.float32)
        if self.config.term_weights:
            weights = _term_weights(words, self.weights)
        return _unit(self._contextual(words)), weights

    def _docs(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Array:
        return _unit(self._contextual(self._table[ids], lengths))

    def readouts(self) -> list[Readout]:
        scale, (log, length) = self.weights["scale"], self.weights["path_weights"]
        by_log, by_length = self.weights["log_weights"], self.weights["length_weights"]
        if self.config.monotone:
            by_log, by_length = _rising(by_log) * abs(log), _rising(by_length) * abs(length)
        else:
            by_log, by_length = log * by_log, length * by_length
        return [Readout(by_log * scale / np.float32(math.log(2)), by_length * scale)]


class _LateInteraction(LateInteractionFamily, ServedRanker):
    """Pieces of a pretrained encoder."""

    def __init__(self, config: Any, weights: dict[str, Array]) -> None:
        super().__init__(config, weights)
        pieces, scales = (f"encoder.embeddings.pieces.{kind}" for kind in ("weight", "scales"))
        table = ServedTable(weights[pieces], weights.pop(scales, None))
        weights[pieces] = table[:]
        self._encoder = BERTRows(config.encoder, within(weights, "encoder."))
        self._projection = np.ascontiguousarray(weights["projection.weight"].T)  # (H, E)

    def _query(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        states = self._encoder(ids)  # (L, H)
        return _unit(_product(states, self._projection)), _term_weights(states, self.weights)

    def _docs(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Array:
        return _unit(_product(self._encoder(ids, lengths), self._projection))


class ServedKernelBERT(KernelBERTFamily, _LateInteraction, _Kernels):
    """KernelBERT."""

    def readouts(self) -> list[Readout]:
        log, length = self.weights["log_weights"], self.weights["length_weights"]
        if self.config.monotone:
            return [Readout(_rising(log), _rising(length))]
        return [Readout(log, length)]


class ServedMaxSim(MaxSimFamily, _LateInteraction):
    """MaxSim."""

    def _scores(self, query: Words, doc: Words) -> Array:
        return np.asarray(self.interact(query, doc).score)

    def interact(self, query: Words, doc: Words) -> Output:
        similarity, real = _match(query, doc)  # (B, Q, D)
        # A document without pieces, or padding, is as far away as can be.
        best = np.where(real > 0, similarity, np.float32(-1)).max(2, initial=-1.0)  # (B, Q)
        part = np.exp(self.weights["scale"]) * query.idf * best * query.mask  # (B, Q)
        return Output(part.sum(1), {"best match": part, "similarity": similarity})


SERVED: dict[str, type[ServedRanker]] = {
    family.name: family for family in (ServedTK, ServedMaxSim, ServedKernelBERT)
}
"""By the names of their families."""


_SMALL = 1 << 18
"""Multiplications for which numpy's BLAS takes no thread of its own. One that it has taken keeps a
processor busy afterwards, waiting for more: for half a second on ARM."""


def _ids(batch: TokenBatch) -> NDArray[np.int64]:
    """Those that are no padding, of one text after another."""
    return np.ascontiguousarray(batch.ids[batch.mask > 0], np.int64)


def _passes(lengths: NDArray[np.int64]) -> Iterator[tuple[int, int, int, int]]:
    """Texts from the first one to before the next, and the same of their rows: as many as pass an
    encoder together."""
    ends = np.cumsum(lengths)
    start = first = 0
    while start < len(lengths):
        fit = int(np.searchsorted(ends, first + _ROWS_AT_ONCE, side="right"))
        stop = max(start + 1, fit)
        last = int(ends[stop - 1])
        yield start, stop, first, last
        start, first = stop, last


def _product(rows: Array, weights: Array) -> Array:
    """(T, H) and (H, E) to (T, E), in this thread. As many rows at a time, always: BLAS adds those
    of a single row in another order, and a text must not depend on what is encoded with it."""
    step = max(2, _SMALL // weights.size)
    filled: Array = np.zeros((-(-len(rows) // step) * step, rows.shape[1]), np.float32)
    filled[: len(rows)] = rows
    made: Array = np.empty((len(filled), weights.shape[1]), np.float32)
    for first in range(0, len(filled), step):
        np.matmul(filled[first : first + step], weights, out=made[first : first + step])
    return made[: len(rows)]


def _unit(vectors: Array) -> Array:
    """Of length one; a zero vector stays zero."""
    lengths = np.sqrt(np.einsum("te,te->t", vectors, vectors))[:, None]
    made: Array = vectors / (lengths + _EPSILON)
    return made


def _term_weights(rows: Array, weights: dict[str, Array]) -> Array:
    """Between 0 and 2, of each row."""
    logits = np.einsum("te,e->t", rows, weights["term_weight.weight"][0])
    logits += weights["term_weight.bias"][0]
    weight: Array = np.float32(2) / (1 + np.exp(-logits.clip(-80, 80)))
    return weight


def _rising(weights: Array) -> Array:
    """Never negative."""
    return np.logaddexp(np.float32(0), weights)


def _match(query: Words, doc: Words) -> tuple[Array, Array]:
    """Cosines (B, Q, D) of one query and some documents, zero where either side is padding, and
    where it is not."""
    real = query.mask[:, :, None] * doc.mask[:, None, :]  # (B, Q, D)
    return np.matmul(query.vectors, doc.vectors.swapaxes(1, 2)) * real, real
