"""Transformers as ONNX graphs, made of plain arrays: BERT's encoder, whose plain form is
`nn.transformer.Encoder`, and TK's, whose plain form is `nn.transformer.ContextualLayers`.

Weights are named as the plain forms name them. The operators are the fused ones that ONNX Runtime's
optimiser would put there, so that nothing is left to optimise when a model is opened. A graph takes
one text at a time, so there is no padding and no mask.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import ContextualConfig, EncoderConfig, distance_kinds
from glassrank.backends.onnx_file import CONTRIB, Graph

Array = NDArray[Any]


class Quantized(NamedTuple):
    """An int8 matrix, and a scale for each row."""

    values: Array  # (N, K) int8
    scales: Array  # (N,) float32


Weight = Array | Quantized
Weights = Mapping[str, Weight]
"""By name, as a model's file has them."""
Linear = Callable[[Graph, str, str, Weight], str]
"""Multiplies rows (1, L, K) by a weight (N, K): graph, rows, the weight's name, the weight."""

_BLOCK = 128
"""Activations of a row that share a scale. Smaller blocks are nearer to float32, and slower."""
_INTEGERS = 4
"""`accuracy_level`: activations are quantized to int8 block by block, and sums are integers."""
_EPSILON = 1e-13
_CONTEXTUAL_EPSILON = 1e-6
"""Of the plain norm."""


def within(weights: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those of one part of a model, by their names in it."""
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }


def as_float32(weight: Weight) -> Array:
    """The numbers that a quantized matrix stands for."""
    if isinstance(weight, Quantized):
        return weight.values.astype(np.float32) * weight.scales[:, None]
    return np.asarray(weight, np.float32)


def int8_linear(graph: Graph, rows: str, name: str, weight: Quantized) -> str:
    """8-bit weights and activations. Each row is quantized by itself: it does not matter what it is
    computed with."""
    outputs, inputs = weight.values.shape
    blocks = -(-inputs // _BLOCK)
    filled = np.zeros((outputs, blocks * _BLOCK), np.uint8)
    filled[:, :inputs] = weight.values.view(np.uint8)
    filled ^= 0x80  # the operator's zero is 128
    return graph.add(
        "MatMulNBits",
        rows,
        graph.weight(name, filled.reshape(outputs, blocks, _BLOCK)),
        graph.weight(f"{name}.scales", np.repeat(weight.scales, blocks)),
        domain=CONTRIB,
        K=inputs,
        N=outputs,
        bits=8,
        block_size=_BLOCK,
        accuracy_level=_INTEGERS,
    )


def float_linear(graph: Graph, rows: str, name: str, weight: Weight) -> str:
    """Weights and activations in float32."""
    turned = np.ascontiguousarray(as_float32(weight).T)  # (K, N)
    return graph.add("MatMul", rows, graph.weight(name, turned))


def as_kept(graph: Graph, rows: str, name: str, weight: Weight) -> str:
    """As precise as the weights are kept: in 8 bits, or in float32."""
    if isinstance(weight, Quantized):
        return int8_linear(graph, rows, name, weight)
    return float_linear(graph, rows, name, weight)


def add_bert(
    graph: Graph, ids: str, config: EncoderConfig, weights: Weights, linear: Linear = as_kept
) -> str:
    """Ids (1, L) to states (1, L, H)."""
    build = _Builder(graph, weights, linear)
    table = within(weights, "embeddings.")
    pieces = _look_up(graph, ids, table["pieces.weight"])  # (1, L, H)
    places = as_float32(table["positions.weight"]) + as_float32(table["types.weight"])[0]
    length = graph.add("Shape", ids, start=1)
    bounds = graph.constant(0), length, graph.constant(1)
    x = build.norm(pieces, graph.add("Slice", graph.weight("places", places[None]), *bounds),
                   "embeddings.norm", config.epsilon)  # fmt: skip
    bias = _distances(graph, config, weights, length) if config.distances else ""
    for number in range(config.layers):
        attention, feed_forward = (f"layers.{number}.{n}" for n in ("attention", "feed_forward"))
        attended = build.attend(x, f"{attention}.query_key_value", config.heads, bias)
        made = build.multiply(attended, f"{attention}.output")
        x = build.norm(made, x, f"{attention}.norm", config.epsilon, f"{attention}.output")
        inner = build.multiply(x, f"{feed_forward}.inner")
        inner = build.activate(inner, f"{feed_forward}.inner", config.activation)
        made = build.multiply(inner, f"{feed_forward}.outer")
        x = build.norm(made, x, f"{feed_forward}.norm", config.epsilon, f"{feed_forward}.outer")
    return x


def add_contextual(
    graph: Graph,
    words: str,
    places: str,
    size: int,
    config: ContextualConfig,
    weights: Weights,
    linear: Linear = as_kept,
) -> str:
    """Word vectors and sinusoidal positions, both (1, L, E), to contextual vectors (1, L, E), mixed
    with the words themselves."""
    build = _Builder(graph, weights, linear)
    x = graph.add("Add", words, places)
    for number in range(config.layers):
        layer = f"layers.{number}"
        inner = build.multiply(x, f"{layer}.feed_forward.0")
        inner = build.activate(inner, f"{layer}.feed_forward.0", "relu")
        made = build.add_bias(build.multiply(inner, f"{layer}.feed_forward.2"),
                              f"{layer}.feed_forward.2")  # fmt: skip
        x = build.contextual_norm(graph.add("Add", made, x), f"{layer}.feed_forward_norm")
        attended = build.attend(
            x, f"{layer}.query_key_value", config.heads, scale=config.scale(size)
        )
        made = build.add_bias(build.multiply(attended, f"{layer}.output"), f"{layer}.output")
        x = build.contextual_norm(graph.add("Add", made, x), f"{layer}.attention_norm")
    mix = graph.weight("mix", as_float32(weights["mix"]))
    return graph.add("Add", x, graph.add("Mul", mix, graph.add("Sub", words, x)))


def add_unit(graph: Graph, rows: str) -> str:
    """Rows of length one; a row of zeros stays as it is."""
    lengths = graph.add("ReduceL2", rows, graph.constant(-1), keepdims=1)
    return graph.add("Div", rows, graph.add("Add", lengths, graph.constant(_EPSILON)))


def add_term_weights(graph: Graph, rows: str, weights: Weights) -> str:
    """Rows (1, L, H) to weights (1, L) between 0 and 2."""
    weight, bias = (as_float32(weights[f"term_weight.{kind}"]) for kind in ("weight", "bias"))
    logits = graph.add("MatMul", rows, graph.weight("term_weight", weight[0]))
    shares = graph.add("Sigmoid", graph.add("Add", logits, graph.weight("term_bias", bias)))
    return graph.add("Mul", shares, graph.constant(2.0))


class _Builder:
    """Steps that layers have in common."""

    def __init__(self, graph: Graph, weights: Weights, linear: Linear) -> None:
        self._graph, self._weights, self._linear = graph, weights, linear

    def multiply(self, rows: str, name: str) -> str:
        """Without its bias."""
        return self._linear(self._graph, rows, f"{name}.weight", self._weights[f"{name}.weight"])

    def add_bias(self, rows: str, name: str) -> str:
        """Of a layer, or of a norm."""
        return self._graph.add("Add", rows, self._constant(f"{name}.bias"))

    def attend(self, rows: str, name: str, heads: int, bias: str = "", scale: float = 0.0) -> str:
        """What each row attends to: (1, L, H * A). Scores have a scale by a head's size, unless
        told otherwise."""
        projected = self.add_bias(self.multiply(rows, name), name)
        three = [f"{name} {part}" for part in ("query", "key", "value")]
        self._graph.add("Split", projected, outputs=three, axis=2, num_outputs=3)
        optional = ("", "", bias) if bias else ()  # a bias and a mask of keys come before
        return self._graph.add(
            "MultiHeadAttention", *three, *optional, domain=CONTRIB, num_heads=heads, scale=scale
        )

    def norm(self, rows: str, residual: str, name: str, epsilon: float, added: str = "") -> str:
        """The norm of a sum: rows, the bias of the layer that made them, and the residual."""
        gain, shift = (self._constant(f"{name}.{kind}") for kind in ("weight", "bias"))
        biases = [self._constant(f"{added}.bias")] if added else []
        given = [rows, residual, gain, shift, *biases]
        return self._graph.add(
            "SkipLayerNormalization", *given, domain=CONTRIB, epsilon=float(epsilon)
        )

    def contextual_norm(self, rows: str, name: str) -> str:
        """Epsilon is not inside of the root."""
        graph = self._graph
        last = graph.constant(-1)
        centred = graph.add("Sub", rows, graph.add("ReduceMean", rows, last, keepdims=1))
        squares = graph.add("ReduceMean", graph.add("Mul", centred, centred), last, keepdims=1)
        deviation = graph.add(
            "Add", graph.add("Sqrt", squares), graph.constant(_CONTEXTUAL_EPSILON)
        )
        scaled = graph.add(
            "Mul", graph.add("Div", centred, deviation), self._constant(f"{name}.gain")
        )
        return self.add_bias(scaled, name)

    def activate(self, rows: str, name: str, activation: str) -> str:
        """Of rows and their layer's bias."""
        if activation == "relu":
            return self._graph.add("Relu", self.add_bias(rows, name))
        operator = {"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}[activation]
        return self._graph.add(operator, rows, self._constant(f"{name}.bias"), domain=CONTRIB)

    def _constant(self, name: str) -> str:
        return self._graph.weight(name, as_float32(self._weights[name]))


def _look_up(graph: Graph, ids: str, table: Weight) -> str:
    """Rows of a table, which stays as small as its file has it."""
    if not isinstance(table, Quantized):
        return graph.add("Gather", graph.weight("pieces", as_float32(table)), ids)
    rows = graph.add("Cast", graph.add("Gather", graph.weight("pieces", table.values), ids), to=1)
    scales = graph.weight("pieces.scales", np.ascontiguousarray(table.scales[:, None], np.float32))
    return graph.add("Mul", rows, graph.add("Gather", scales, ids))


def _distances(graph: Graph, config: EncoderConfig, weights: Weights, length: str) -> str:
    """What heads add to scores by how far apart two pieces stand: (1, heads, L, L)."""
    kinds = distance_kinds(config.positions, config.distances)  # (2 * positions - 1,)
    table = as_float32(weights["distances.bias.weight"])[kinds]  # (2 * positions - 1, heads)
    count = graph.add("Squeeze", length)
    start, step = (graph.weight(f"range {n}", np.array(n, np.int64)) for n in (0, 1))
    place = graph.add("Range", start, count, step)  # (L,)
    after = graph.add("Sub", place, graph.add("Unsqueeze", place, graph.constant(1)))  # (L, L)
    row = graph.add("Add", after, graph.constant(config.positions - 1))
    found = graph.add("Gather", graph.weight("distances", table), row)  # (L, L, heads)
    by_head = graph.add("Transpose", found, perm=(2, 0, 1))
    return graph.add("Unsqueeze", by_head, graph.constant(0))
