"""TK without PyTorch: its contextual layers as an ONNX graph. The plain form is `tk.py`."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import ScoringHead
from glassrank.backends.onnx_encoders import Builder, Weights, add_term_weights
from glassrank.backends.onnx_file import Graph
from glassrank.errors import InputError
from glassrank.models.onnx_models import (
    Array,
    OnnxKernelModel,
    StoredTable,
    add_outputs,
    softplus,
)
from glassrank.research.papers.tk_config import TK_INFO, ContextualConfig, sinusoidal_positions

_EPSILON = 1e-6


class OnnxTK(OnnxKernelModel):
    """TK."""

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
        hidden = build.activate(build.multiply(x, first, size, inner), first, inner, "relu")
        made = build.add_bias(build.multiply(hidden, second, inner, size), second, size)
        x = _norm(build, graph, graph.add("Add", made, x), f"{layer}.feed_forward_norm", size)
        scale, projection = config.scale(size), f"{layer}.query_key_value"
        seen = build.attend(x, projection, size, total, config.heads, scale=scale)
        made = build.multiply(seen, f"{layer}.output", total, size)
        made = build.add_bias(made, f"{layer}.output", size)
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
    return build.add_bias(scaled, name, size)
