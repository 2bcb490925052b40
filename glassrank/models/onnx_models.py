"""Models that rank without PyTorch: encoders as ONNX graphs, kernel pooling as compiled code, with
the weights and the fingerprint of what `bi_encoders.py` and `research/papers/tk.py` train.

A graph is built when a model is loaded, and computes in int8 with matrices that are stored in int8.
It takes texts one by one, so that each has the same vectors in any batch.
"""

import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import FLOOR, Kernels, ScoringHead
from glassrank.backends.onnx_encoders import (
    Builder,
    Quantized,
    Weight,
    Weights,
    add_bert,
    add_term_weights,
    add_unit,
    float_linear,
)
from glassrank.backends.onnx_file import Graph
from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError, sanitize
from glassrank.models.late_interaction import (
    KERNEL_BERT,
    MAXSIM,
    TK_INFO,
    ContextualConfig,
    sinusoidal_positions,
)
from glassrank.models.model import Floats, Model, Output, TokenBatch, TokenEmbeddings

Array = NDArray[Any]
_ROWS_AT_ONCE = 1 << 14
_FATAL = 4  # log level: the library prints only fatal errors, since others are raised too
_EPSILON = 1e-6  # of TK's layers


class OnnxSession:
    """A graph that ONNX Runtime computes in the calling thread: inputs by name in, outputs in the
    order of `outputs` out. One thread computes one text, and several threads may call at once: a
    text gives the same bytes however many there are."""

    def __init__(self, graph: bytes, *, optimised: bool = False, threads: int = 1) -> None:
        """`optimised` graphs are not optimised again, which takes most of the opening time."""
        # From 1.29 on the library uploads telemetry and keeps a device id, unless this is set
        # before it is imported.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = _FATAL
        if optimised:
            levels = onnxruntime.GraphOptimizationLevel
            options.graph_optimization_level = levels.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the library has a class for each kind, and no common one
            raise InputError(f"ONNX Runtime cannot open this graph: {_reason(error)}") from None
        self._session: Any = session
        self.inputs = {value.name: value for value in session.get_inputs()}
        self.outputs = {value.name: value for value in session.get_outputs()}

    def run(
        self, inputs: dict[str, NDArray[Any]], outputs: Sequence[str] | None = None
    ) -> list[NDArray[np.float32]]:
        """The named outputs, or all."""
        try:
            made: list[NDArray[np.float32]] = self._session.run(outputs, inputs)
        except Exception as error:
            reason = _reason(error)
            raise InputError(f"ONNX Runtime could not compute this text: {reason}") from None
        return made


def _reason(error: Exception) -> str:
    return sanitize(" ".join(str(error).split()))[:300]


class StoredTable:
    """A vector for each id, in float32 or int8 as its file has it; id 0 is padding."""

    has_buckets = True

    def __init__(self, weight: Weight) -> None:
        self._vectors: Array = weight.values if isinstance(weight, Quantized) else weight
        self._scales = weight.scales if isinstance(weight, Quantized) else None

    @property
    def vector_count(self) -> int:
        """How many vectors there are."""
        return len(self._vectors)

    def __getitem__(self, ids: Any) -> NDArray[np.float32]:
        """The vectors of some ids: (T, E)."""
        vectors = self._vectors[ids]
        if self._scales is None:
            return np.asarray(vectors, np.float32)
        floats: NDArray[np.float32] = vectors.astype(np.float32)
        floats *= self._scales[ids][..., None]
        return floats

    def chunks(self) -> Iterator[NDArray[np.float32]]:
        """All of them, some at a time."""
        for start in range(0, len(self._vectors), _ROWS_AT_ONCE):
            yield self[start : start + _ROWS_AT_ONCE]


class OnnxModel(Model):
    """Made of its settings, and of its weights by name. A subclass takes all of its weights while
    its graph and its scoring heads are made."""

    words: StoredTable | None = None

    def __init__(self, config: Any, weights: Weights, table: tuple[int, ...] | None = None) -> None:
        """`table` is the shape of its word vectors, where it has any."""
        self.config = config
        self.weights = weights
        self.first_stage_weight: np.float32 | None = None
        self._session = OnnxSession(self.graph().serialize(), optimised=True)
        self._heads = self.scoring_heads()

    @classmethod
    def can_compute(cls, config: Any) -> bool:
        """Whether there is something to encode."""
        return True

    @property
    def device(self) -> None:
        return None

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        for name, weight in self.weights.arrays.items():
            is_table = isinstance(weight, Quantized)
            yield name, StoredTable(weight).chunks() if is_table else iter([np.asarray(weight)])

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        """Encodes one query, (1, L)."""
        length = int(batch.mask.sum())
        vectors = np.zeros((*batch.mask.shape, self.config.size), np.float32)  # (1, L, E)
        weights = np.zeros(batch.mask.shape, np.float32)
        if length:
            vectors[0, :length], weights[0, :length] = self._encode(batch.ids[0, :length])
        return TokenEmbeddings(vectors, batch.mask, weights)

    def encode_doc(self, batch: TokenBatch, deadline: Deadline = NEVER) -> TokenEmbeddings:
        """Encodes documents (B, L) one by one; raises a LateError between two when late."""
        vectors = np.zeros((*batch.mask.shape, self.config.size), np.float32)  # (B, L, E)
        lengths = batch.mask.sum(1).astype(np.int64)  # (B,)
        for row, length in enumerate(lengths.tolist()):
            deadline.check("these texts")
            if length:
                vectors[row, :length] = self._encode(batch.ids[row, :length])[0]
        return TokenEmbeddings(vectors, batch.mask, batch.mask)

    @abstractmethod
    def graph(self) -> Graph:
        """Its encoder: takes one text, gives unit `vectors` (1, L, E), and the `weights` (1, L) of
        its tokens as a query, where they differ."""

    @abstractmethod
    def _inputs(self, ids: NDArray[np.integer]) -> dict[str, Array]:
        """What its graph takes for one text (L,)."""

    def _encode(self, ids: NDArray[np.integer]) -> tuple[Array, Array]:
        """One text (L,), not empty: unit vectors (L, E), and weights (L,)."""
        vectors, *weights = self._session.run(self._inputs(ids))
        return vectors[0], weights[0][0] if weights else np.ones(len(ids), np.float32)

    def rank(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, first_stage: Array | None = None
    ) -> Output:
        """The score as for stored embeddings, without its parts; `interact` gives those."""
        score = self._scores(query, doc)
        if self.first_stage_weight is not None and first_stage is not None:
            score = score + self.first_stage_weight * first_stage
        return Output(score, {})

    def _scores(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Array:
        """Scores (B,)."""
        return np.asarray(self.interact(query, doc).score)


def compute_kernels(similarity: Floats, kernels: Kernels) -> Iterator[Floats]:
    """Each kernel's values of similarities; an `at_least` kernel is 1 from its center on."""
    settings = np.array([kernels.centers, kernels.widths], np.float32)  # (2, K)
    for center, width in settings.T:
        distance = similarity - center
        scale = np.float32(-0.5) / (width * width)
        if kernels.at_least:  # twice what is below zero: quicker than a minimum
            distance -= np.abs(distance)
            scale = scale / np.float32(4)
        distance *= distance
        distance *= scale
        np.exp(distance, out=distance)
        yield distance


class OnnxKernelModel(OnnxModel):
    """Kernel pooling on two paths: logarithms of soft counts, and counts by document length."""

    def _scores(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Array:
        """Without compiled code: to load it takes longer than to rank ten texts. Nothing is summed
        in an order that depends on other texts, so that a score does not."""
        (head,) = self._heads
        lengths = doc.mask.sum(1).astype(np.int64)  # (B,)
        scores = np.zeros(len(lengths), np.float32)
        some = np.flatnonzero(lengths)
        if not len(some):
            return scores
        rows = [doc.vectors[row, : lengths[row]] @ query.vectors[0].T for row in some.tolist()]
        similarity = np.concatenate(rows)  # (T, Q), T tokens of all texts
        starts = np.cumsum(lengths[some]) - lengths[some]  # (b,)
        divisors = (lengths[some] + 1).astype(np.float32)[:, None]  # (b, 1)
        shares = np.zeros((len(some), similarity.shape[1]), np.float32)  # (b, Q)
        values = compute_kernels(similarity, self.config.kernels)
        for log, length, each in zip(head.log, head.length, values, strict=True):
            counts = np.add.reduceat(each, starts)  # (b, Q)
            shares += log * np.log(np.maximum(counts, np.float32(FLOOR)))
            shares += length * (counts / divisors)
        scores[some] = (shares * query.idf[0]).sum(1)
        return scores

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity, real = _match(query, doc)  # (B, Q, D)
        values = compute_kernels(similarity, self.config.kernels)
        counts = np.stack([(each * real).sum(2) for each in values], axis=2)  # (B, Q, K)
        (head,) = self._heads
        weight = query.idf[..., None]  # (1, Q, 1)
        length = doc.mask.sum(1, dtype=np.float32)[:, None, None] + 1  # (B, 1, 1)
        log = head.log * (np.log(np.maximum(counts, np.float32(FLOOR))) * weight)  # (B, Q, K)
        by_length = head.length * (counts / length * weight)  # (B, Q, K)
        parts = {"log": log, "length": by_length, "similarity": similarity}
        return Output(log.sum((1, 2)) + by_length.sum((1, 2)), parts)


class _LateInteraction(OnnxModel):
    """Subwords of a pretrained encoder."""

    def graph(self) -> Graph:
        """Over the ids of subwords; what follows the encoder is float32."""
        graph = Graph(self.name)
        ids = graph.input("input_ids", "int64", [1, "length"])
        encoder, size = self.config.encoder, self.config.size
        states = add_bert(graph, ids, encoder, self.weights.part("encoder"))  # (1, L, H)
        projection = self.weights.take("projection.weight", size, encoder.size)
        rows = float_linear(graph, states, "projection", projection)
        weights = add_term_weights(graph, states, self.weights, encoder.size)
        add_outputs(graph, rows, weights, size)
        return graph

    def _inputs(self, ids: NDArray[np.integer]) -> dict[str, Array]:
        encoder = self.config.encoder
        if len(ids) > encoder.positions:
            raise InputError(
                f"a text of {len(ids)} subwords is longer than the {encoder.positions} positions "
                "of this model; cut it before it is encoded"
            )
        if not 0 <= ids.min() <= ids.max() < encoder.vocabulary:
            raise InputError(
                f"ids must lie between 0 and {encoder.vocabulary - 1}, not {ids.min()} and "
                f"{ids.max()}; read texts with the vocabulary that belongs to the model"
            )
        return {"input_ids": np.ascontiguousarray(ids[None], np.int64)}


class OnnxKernelBERT(_LateInteraction, OnnxKernelModel):
    """KernelBERT."""

    info = KERNEL_BERT

    def scoring_heads(self) -> list[ScoringHead]:
        names = "log_weights", "length_weights"
        log, length = (self.weights.floats(name, len(self.config.kernels)) for name in names)
        if self.config.monotone:
            return [ScoringHead(softplus(log), softplus(length))]
        return [ScoringHead(log, length)]


class OnnxMaxSim(_LateInteraction):
    """MaxSim."""

    info = MAXSIM

    def __init__(self, config: Any, weights: Weights, table: tuple[int, ...] | None = None) -> None:
        self._scale = np.exp(weights.floats("scale"))
        super().__init__(config, weights, table)

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity, best = find_best_matches(query, doc)  # (B, Q, D), (B, Q)
        part = self._scale * query.idf * best * query.mask  # (B, Q)
        return Output(part.sum(1), {"best match": part, "similarity": similarity})


def add_outputs(graph: Graph, rows: str, weights: str | None, size: int) -> None:
    """Unit vectors, and weights of query tokens where there are any."""
    graph.output("vectors", add_unit(graph, rows), "float32", [1, "length", size])
    if weights is not None:
        graph.output("weights", weights, "float32", [1, "length"])


def softplus(weights: Array) -> Array:
    """Weights that are never negative."""
    return np.logaddexp(np.float32(0), weights)


def find_best_matches(query: TokenEmbeddings, doc: TokenEmbeddings) -> tuple[Array, Array]:
    """Cosines (B, Q, D), and the largest of each query token (B, Q)."""
    similarity, real = _match(query, doc)
    # Padding, or a document without subwords, is as far away as can be.
    return similarity, np.where(real > 0, similarity, np.float32(-1)).max(2, initial=-1.0)


def _match(query: TokenEmbeddings, doc: TokenEmbeddings) -> tuple[Array, Array]:
    """Cosines (B, Q, D), zero for padding, and the mask of pairs."""
    real = query.mask[:, :, None] * doc.mask[:, None, :]  # (B, Q, D)
    return np.matmul(query.vectors, doc.vectors.swapaxes(1, 2)) * real, real


class OnnxTK(OnnxKernelModel):
    """TK: its contextual layers, over word vectors."""

    info = TK_INFO

    def __init__(self, config: Any, weights: Weights, table: tuple[int, ...] | None = None) -> None:
        rows, size = table or (0, 0)
        if size != config.size:
            raise InputError(f"it reads words of {config.size} values, and its table has {size}")
        self.words = self._table = StoredTable(weights.take("words.embedding.weight", rows, size))
        weights.take("words.idf", rows)
        self._positions = sinusoidal_positions(16, config.size)
        super().__init__(config, weights, table)

    @classmethod
    def can_compute(cls, config: Any) -> bool:
        return bool(config.contextual.layers > 0)

    def graph(self) -> Graph:
        """Over word vectors and their positions."""
        size = self.config.size
        graph = Graph(self.name)
        words = graph.input("words", "float32", [1, "length", size])
        positions = graph.input("places", "float32", [1, "length", size])
        layers = self.weights.part("contextual")
        rows = add_contextual(graph, words, positions, size, self.config.contextual, layers)
        weights = None
        if self.config.term_weights:
            weights = add_term_weights(graph, words, self.weights, size)
        add_outputs(graph, rows, weights, size)
        return graph

    def _inputs(self, ids: NDArray[np.integer]) -> dict[str, Array]:
        if len(ids) > len(self._positions):
            longest = 1 << (len(ids) - 1).bit_length()
            self._positions = sinusoidal_positions(longest, self.config.size)
        return {"words": self._table[ids][None], "places": self._positions[None, : len(ids)]}

    def scoring_heads(self) -> list[ScoringHead]:
        kernels, weights = len(self.config.kernels), self.weights
        scale, (log, length) = weights.floats("scale"), weights.floats("path_weights", 2)
        by_log = weights.floats("log_weights", kernels)
        by_length = weights.floats("length_weights", kernels)
        if self.config.monotone:
            by_log, by_length = softplus(by_log) * abs(log), softplus(by_length) * abs(length)
        else:
            by_log, by_length = log * by_log, length * by_length
        return [ScoringHead(by_log * scale / np.float32(math.log(2)), by_length * scale)]


def add_contextual(
    graph: Graph, words: str, positions: str, size: int, config: ContextualConfig, weights: Weights
) -> str:
    """Word vectors and sinusoidal positions, both (1, L, E), to contextual vectors (1, L, E), mixed
    with the words themselves."""
    build, inner, total = Builder(graph, weights), config.feed_forward, config.total
    x = graph.add("Add", words, positions)
    for number in range(config.layers):
        layer = f"layers.{number}"
        first, second = f"{layer}.feed_forward.0", f"{layer}.feed_forward.2"
        hidden = build.activate(build.linear(x, first, size, inner), "relu")
        made = build.linear(hidden, second, inner, size)
        x = _norm(build, graph, graph.add("Add", made, x), f"{layer}.feed_forward_norm", size)
        scale, projection = config.scale(size), f"{layer}.query_key_value"
        seen = build.attend(x, projection, size, total, config.heads, scale=scale)
        made = build.linear(seen, f"{layer}.output", total, size)
        x = _norm(build, graph, graph.add("Add", made, x), f"{layer}.attention_norm", size)
    mix = graph.weight("mix", weights.floats("mix"))
    return graph.add("Add", x, graph.add("Mul", mix, graph.add("Sub", words, x)))


def _norm(build: Builder, graph: Graph, rows: str, name: str, size: int) -> str:
    """Epsilon is not inside of the root."""
    last = graph.constant(-1)
    centred = graph.add("Sub", rows, graph.add("ReduceMean", rows, last, keepdims=1))
    squares = graph.add("ReduceMean", graph.add("Mul", centred, centred), last, keepdims=1)
    deviation = graph.add("Add", graph.add("Sqrt", squares), graph.constant(_EPSILON))
    gain = build.vector(f"{name}.gain", size)
    scaled = graph.add("Mul", graph.add("Div", centred, deviation), gain)
    return graph.add("Add", scaled, build.vector(f"{name}.bias", size))
