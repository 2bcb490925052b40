"""Models that rank without PyTorch: encoders as ONNX graphs, soft counts as compiled code.

They encode, score and explain what `tk.py` and `bi_encoders.py` train, with the same weights and
the same fingerprint. A graph is built from the weights when a model is loaded
(`backends/onnx_encoders.py`); it computes in int8 with matrices that are kept in int8, and in
float32 with others. Texts pass it one by one, so that each gives the same vectors in any batch.
Scores are those of `backends/cpu/kernels.py`, as for stored words. `interact` gives the parts of
a score.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import FLOOR, Readout, kernel_value, waves
from glassrank.backends.cpu.kernels import StoredRows, pool_cpu
from glassrank.backends.onnx_encoders import (
    Quantized,
    Weight,
    add_bert,
    add_contextual,
    add_term_weights,
    add_unit,
    as_float32,
    float_linear,
    within,
)
from glassrank.backends.onnx_file import Graph
from glassrank.backends.onnx_session import OnnxSession
from glassrank.deadline import must_end
from glassrank.errors import InputError
from glassrank.models.ranker import AnyRanker, Output, TokenBatch, Words
from glassrank.models.served_families import (
    KernelBERTFamily,
    LateInteractionFamily,
    MaxSimFamily,
    ServedTable,
    TKFamily,
)

Array = NDArray[Any]


class ServedRanker(AnyRanker):
    """Made of its settings, and of its weights by name."""

    def __init__(self, config: Any, weights: dict[str, Weight]) -> None:
        self.config = config
        self.weights = weights
        self.words: ServedTable | None = None
        mixed = weights.get("first_stage_weight")
        self.first_stage_weight = None if mixed is None else np.float32(as_float32(mixed))
        self._session = OnnxSession(self.graph().serialized(), optimised=True)

    @property
    def device(self) -> None:
        """None: PyTorch does not compute it."""

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """By name, as floats."""
        for name, weight in self.weights.items():
            if isinstance(weight, Quantized):
                yield name, ServedTable(*weight).chunks()
            else:
                yield name, iter([weight])

    def encode_query(self, batch: TokenBatch) -> Words:
        """One query, (1, L)."""
        length = int(batch.mask.sum())
        made = np.zeros((*batch.mask.shape, self.config.size), np.float32)
        weight = np.zeros(batch.mask.shape, np.float32)
        if length:
            made[0, :length], weight[0, :length] = self._encode(batch.ids[0, :length])
        return Words(made, batch.mask, weight)

    def encode_doc(self, batch: TokenBatch) -> Words:
        """Some documents, (B, L), one after another; ends between two of them if it is late."""
        vectors = np.zeros((*batch.mask.shape, self.config.size), np.float32)  # (B, L, E)
        lengths = batch.mask.sum(1).astype(np.int64)  # (B,)
        for row, length in enumerate(lengths.tolist()):
            must_end().check("these texts")
            if length:
                vectors[row, :length] = self._encode(batch.ids[row, :length])[0]
        return Words(vectors, batch.mask, batch.mask)

    @abstractmethod
    def graph(self) -> Graph:
        """Its encoder: one text in, `vectors` (1, L, E) of length one out, and the `weights` (1, L)
        of its words as a query, where they differ."""

    def _encode(self, ids: NDArray[np.integer]) -> tuple[Array, Array]:
        """One text (L,), not empty: unit vectors (L, E), and weights (L,)."""
        vectors, *weights = self._session.run(self._inputs(ids))
        return vectors[0], weights[0][0] if weights else np.ones(len(ids), np.float32)

    @abstractmethod
    def _inputs(self, ids: NDArray[np.integer]) -> dict[str, Array]:
        """What its graph takes for one text (L,)."""

    def floats(self, name: str) -> Array:
        """One of its weights."""
        return as_float32(self.weights[name])

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

    def __init__(self, config: Any, weights: dict[str, Weight]) -> None:
        table = weights.pop(_TABLE)
        given = table if isinstance(table, Quantized) else (table, None)
        super().__init__(config, weights)
        self.words = self._table = ServedTable(*given)
        self._waves = waves(16, config.size)

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """The table too, some rows at a time."""
        yield from super().weight_chunks()
        yield _TABLE, self._table.chunks()

    def graph(self) -> Graph:
        """Over word vectors and their places."""
        size = self.config.size
        graph = Graph(self.name)
        words = graph.input("words", "float32", [1, "length", size])
        places = graph.input("places", "float32", [1, "length", size])
        layers = within(self.weights, "contextual.")
        rows = add_contextual(graph, words, places, size, self.config.contextual, layers)
        weighs = self.config.term_weights
        weights = add_term_weights(graph, words, self.weights) if weighs else None
        _add_outputs(graph, rows, weights, size)
        return graph

    def _inputs(self, ids: NDArray[np.integer]) -> dict[str, Array]:
        if len(ids) > len(self._waves):
            self._waves = waves(1 << (len(ids) - 1).bit_length(), self.config.size)
        return {"words": self._table[ids][None], "places": self._waves[None, : len(ids)]}

    def readouts(self) -> list[Readout]:
        scale, (log, length) = self.floats("scale"), self.floats("path_weights")
        by_log, by_length = self.floats("log_weights"), self.floats("length_weights")
        if self.config.monotone:
            by_log, by_length = _rising(by_log) * abs(log), _rising(by_length) * abs(length)
        else:
            by_log, by_length = log * by_log, length * by_length
        return [Readout(by_log * scale / np.float32(math.log(2)), by_length * scale)]


class _LateInteraction(LateInteractionFamily, ServedRanker):
    """Pieces of a pretrained encoder."""

    def graph(self) -> Graph:
        """Over the ids of pieces; what follows the encoder is float32."""
        graph = Graph(self.name)
        ids = graph.input("input_ids", "int64", [1, "length"])
        encoder = within(self.weights, "encoder.")
        states = add_bert(graph, ids, self.config.encoder, encoder)  # (1, L, H)
        rows = float_linear(graph, states, "projection", self.weights["projection.weight"])
        weights = add_term_weights(graph, states, self.weights)
        _add_outputs(graph, rows, weights, self.config.size)
        return graph

    def _inputs(self, ids: NDArray[np.integer]) -> dict[str, Array]:
        encoder = self.config.encoder
        if len(ids) > encoder.positions:
            raise InputError(
                f"a text of {len(ids)} pieces is longer than the {encoder.positions} that there "
                "are positions for; cut it before it is encoded"
            )
        if not 0 <= ids.min() <= ids.max() < encoder.vocabulary:
            raise InputError(
                f"ids must lie between 0 and {encoder.vocabulary - 1}, not {ids.min()} and "
                f"{ids.max()}; read texts with the vocabulary that belongs to the model"
            )
        return {"input_ids": np.ascontiguousarray(ids[None], np.int64)}


class ServedKernelBERT(KernelBERTFamily, _LateInteraction, _Kernels):
    """KernelBERT."""

    def readouts(self) -> list[Readout]:
        log, length = self.floats("log_weights"), self.floats("length_weights")
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
        part = np.exp(self.floats("scale")) * query.idf * best * query.mask  # (B, Q)
        return Output(part.sum(1), {"best match": part, "similarity": similarity})


SERVED: dict[str, type[ServedRanker]] = {
    family.name: family for family in (ServedTK, ServedMaxSim, ServedKernelBERT)
}
"""By the names of their families."""


_TABLE = "words.embedding.weight"


def _add_outputs(graph: Graph, rows: str, weights: str | None, size: int) -> None:
    graph.output("vectors", add_unit(graph, rows), "float32", [1, "length", size])
    if weights is not None:
        graph.output("weights", weights, "float32", [1, "length"])


def _rising(weights: Array) -> Array:
    """Never negative."""
    return np.logaddexp(np.float32(0), weights)


def _match(query: Words, doc: Words) -> tuple[Array, Array]:
    """Cosines (B, Q, D) of one query and some documents, zero where either side is padding, and
    where it is not."""
    real = query.mask[:, :, None] * doc.mask[:, None, :]  # (B, Q, D)
    return np.matmul(query.vectors, doc.vectors.swapaxes(1, 2)) * real, real
