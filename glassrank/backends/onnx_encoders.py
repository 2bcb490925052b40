"""Transformers as ONNX graphs: BERT's encoder, whose plain form is `backends.transformer.Encoder`,
and the steps that other encoders share with it.

Weights of another shape than expected are refused. Operators are the fused ones that ONNX Runtime's
optimiser would choose. A graph takes one text at a time, without padding or a mask.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import EncoderConfig, relative_position_buckets
from glassrank.backends.cpu import has_vnni
from glassrank.backends.onnx_file import CONTRIB, Graph
from glassrank.errors import InputError

Array = NDArray[Any]


class Quantized(NamedTuple):
    """An int8 matrix, and a scale for each row."""

    values: Array  # (N, K) int8
    scales: Array  # (N,) float32


Weight = Array | Quantized
Linear = Callable[[Graph, str, str, Any, Array | None], str]
"""Multiplies rows (1, L, K) by a weight (N, K) and adds a bias (N,), if there is one: graph, rows,
the weight's name, the weight, the bias."""

_BLOCK = 128
"""Activations of a row that share a scale. Smaller blocks are nearer to float32, and slower."""
_INTEGERS = 4
"""`accuracy_level`: activations are quantized to int8 block by block, and sums are integers."""
_EPSILON = 1e-13
_FEW_LAYERS = 2
"""So many forgive coarse activations: cosines to float32 are .999, with six layers .995."""
_MISMATCH = "its config and its weights do not belong together"


class Weights:
    """A model's weights by name, as its file has them."""

    def __init__(self, arrays: Mapping[str, Weight], prefix: str = "") -> None:
        self.arrays = dict(arrays)
        self._prefix = prefix
        self._taken: set[str] = set()

    def part(self, name: str) -> "Weights":
        """Those of one part of the model, by their names in it."""
        part = Weights({}, f"{self._prefix}{name}.")
        part.arrays, part._taken = self.arrays, self._taken
        return part

    def take(self, name: str, *shape: int) -> Weight:
        """A weight, which must be of this shape, and of floats."""
        name = self._prefix + name
        if name not in self.arrays:
            raise InputError(f"{_MISMATCH}: {name[:100]} is not among the weights")
        weight = self.arrays[name]
        values = weight.values if isinstance(weight, Quantized) else weight
        is_float = isinstance(weight, Quantized) or weight.dtype == np.float32
        if values.shape != shape or not is_float:
            raise InputError(
                f"{_MISMATCH}: {name} should have the shape {shape}, found {values.shape} of type "
                f"{values.dtype}"
            )
        self._taken.add(name)
        return weight

    def floats(self, name: str, *shape: int) -> Array:
        """The same in float32."""
        return as_float32(self.take(name, *shape))

    def check_all_taken(self) -> None:
        """Refuses weights that no part of the model has used."""
        for name in sorted(self.arrays.keys() - self._taken):
            raise InputError(f"{_MISMATCH}: {name[:100]} is no weight of this model")


def as_float32(weight: Weight) -> Array:
    """The numbers that a quantized matrix stands for."""
    if isinstance(weight, Quantized):
        return weight.values.astype(np.float32) * weight.scales[:, None]
    return np.asarray(weight, np.float32)


def row_linear(
    graph: Graph, rows: str, name: str, weight: Quantized, bias: Array | None = None
) -> str:
    """8-bit weights and activations; all activations of a row share a scale. Without VNNI, sums of
    two products overflow on x86."""
    peaks = graph.add("ReduceMax", graph.add("Abs", rows), graph.constant(-1), keepdims=1)
    peaks = graph.add("Add", peaks, graph.constant(_EPSILON))  # (1, L, 1)
    step = graph.weight("activation step", np.array(1 / 127, np.float32))
    zero = graph.weight("zero uint8", np.array(128, np.uint8))
    weight_zero = graph.weight("zero int8", np.array(0, np.int8))
    given = graph.add("QuantizeLinear", graph.add("Div", rows, peaks), step, zero)
    transposed = graph.weight(name, np.ascontiguousarray(weight.values.T))  # (K, N)
    scales = graph.weight(f"{name}.scales", weight.scales)
    made = graph.add(
        "MatMulIntegerToFloat", given, transposed, step, scales, zero, weight_zero, domain=CONTRIB
    )
    return _add_bias(graph, graph.add("Mul", made, peaks), name, bias)


def text_linear(
    graph: Graph, rows: str, name: str, weight: Quantized, bias: Array | None = None
) -> str:
    """8-bit weights and activations; all rows of a text share a scale. With small matrices the
    scales of `row_linear` take more time than its products."""
    transposed = graph.weight(name, np.ascontiguousarray(weight.values.T))  # (K, N)
    given = [rows, transposed, graph.weight(f"{name}.scales", weight.scales)]
    if bias is not None:
        given += ["", graph.weight(f"{name}.bias", bias)]  # a zero point comes before
    return graph.add("DynamicQuantizeMatMul", *given, domain=CONTRIB)


def block_linear(
    graph: Graph, rows: str, name: str, weight: Quantized, bias: Array | None = None
) -> str:
    """8-bit weights and activations; each block of a row has a scale."""
    outputs, inputs = weight.values.shape
    blocks = -(-inputs // _BLOCK)
    filled = np.zeros((outputs, blocks * _BLOCK), np.uint8)
    filled[:, :inputs] = weight.values.view(np.uint8)
    filled ^= 0x80  # the operator's zero is 128
    made = graph.add(
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
    return _add_bias(graph, made, name, bias)


def float_linear(
    graph: Graph, rows: str, name: str, weight: Weight, bias: Array | None = None
) -> str:
    """Weights and activations in float32."""
    transposed = np.ascontiguousarray(as_float32(weight).T)  # (K, N)
    return _add_bias(graph, graph.add("MatMul", rows, graph.weight(name, transposed)), name, bias)


def _add_bias(graph: Graph, rows: str, name: str, bias: Array | None) -> str:
    return rows if bias is None else graph.add("Add", rows, graph.weight(f"{name}.bias", bias))


def stored_linear(
    graph: Graph,
    rows: str,
    name: str,
    weight: Weight,
    bias: Array | None = None,
    *,
    shallow: bool = False,
) -> str:
    """As precise as the weights are stored: in 8 bits, or in float32; `shallow` encoders have few
    layers."""
    if not isinstance(weight, Quantized):
        return float_linear(graph, rows, name, weight, bias)
    if not has_vnni():
        return block_linear(graph, rows, name, weight, bias)
    # VNNI multiplies whole rows 1.6 times as fast as blocks; elsewhere they are equally fast.
    linear = row_linear
    if shallow:
        # Errors of a scale for the whole text average out over many inputs, and add up over layers.
        # With few inputs, scales take more time than float32.
        linear = text_linear if weight.values.shape[1] >= _BLOCK else float_linear
    elif ".attention." in name:
        linear = text_linear  # its rows have no outliers: vectors are as near to float32's
    return linear(graph, rows, name, weight, bias)


def add_bert(
    graph: Graph,
    ids: str,
    config: EncoderConfig,
    weights: Weights,
    linear: Linear | None = None,
) -> str:
    """Ids (1, L) to states (1, L, H)."""
    size = config.size
    shallow = config.layers <= _FEW_LAYERS
    build = Builder(graph, weights, linear or partial(stored_linear, shallow=shallow))
    table = weights.part("embeddings")
    rows = _look_up(graph, ids, table.take("pieces.weight", config.vocabulary, size))  # (1, L, H)
    places = table.floats("positions.weight", config.positions, size)
    places = places + table.floats("types.weight", config.types, size)[0]
    length = graph.add("Shape", ids, start=1)
    bounds = graph.constant(0), length, graph.constant(1)
    positions = graph.add("Slice", graph.weight("places", places[None]), *bounds)
    x = build.norm(rows, positions, "embeddings.norm", size, config.epsilon)
    bias = _relative_positions(graph, config, weights, length) if config.distances else ""
    for number in range(config.layers):
        attention, feed_forward = (f"layers.{number}.{n}" for n in ("attention", "feed_forward"))
        inner_size = config.feed_forward
        qkv = f"{attention}.query_key_value"
        seen = build.attend(x, qkv, size, config.attention, config.heads, bias)
        made = build.linear(seen, f"{attention}.output", config.attention, size)
        x = build.norm(made, x, f"{attention}.norm", size, config.epsilon)
        inner = build.linear(x, f"{feed_forward}.inner", size, inner_size)
        inner = build.activate(inner, config.activation)
        made = build.linear(inner, f"{feed_forward}.outer", inner_size, size)
        x = build.norm(made, x, f"{feed_forward}.norm", size, config.epsilon)
    return x


def add_unit(graph: Graph, rows: str) -> str:
    """Rows of length one; a row of zeros stays as it is."""
    lengths = graph.add("ReduceL2", rows, graph.constant(-1), keepdims=1)
    return graph.add("Div", rows, graph.add("Add", lengths, graph.constant(_EPSILON)))


def add_term_weights(graph: Graph, rows: str, weights: Weights, size: int) -> str:
    """Rows (1, L, H) to weights (1, L) between 0 and 2."""
    weight = weights.floats("term_weight.weight", 1, size)
    bias = weights.floats("term_weight.bias", 1)
    logits = graph.add("MatMul", rows, graph.weight("term_weight", weight[0]))
    shares = graph.add("Sigmoid", graph.add("Add", logits, graph.weight("term_bias", bias)))
    return graph.add("Mul", shares, graph.constant(2.0))


class Builder:
    """Adds the steps that layers have in common."""

    def __init__(self, graph: Graph, weights: Weights, linear: Linear = stored_linear) -> None:
        self._graph, self._weights, self._linear = graph, weights, linear

    def linear(self, rows: str, name: str, inputs: int, outputs: int) -> str:
        """A linear layer with its bias."""
        weight = self._weights.take(f"{name}.weight", outputs, inputs)
        bias = self._weights.floats(f"{name}.bias", outputs)
        return self._linear(self._graph, rows, name, weight, bias)

    def attend(
        self,
        rows: str,
        name: str,
        inputs: int,
        total: int,
        heads: int,
        bias: str = "",
        scale: float = 0.0,
    ) -> str:
        """What each row attends to, by heads of `total` values together: (1, L, total). Scores are
        scaled by a head's size unless `scale` says otherwise."""
        projected = self.linear(rows, name, inputs, 3 * total)
        three = [f"{name} {part}" for part in ("query", "key", "value")]
        self._graph.add("Split", projected, outputs=three, axis=2, num_outputs=3)
        optional = ("", "", bias) if bias else ()  # a bias and a mask of keys come before
        return self._graph.add(
            "MultiHeadAttention", *three, *optional, domain=CONTRIB, num_heads=heads, scale=scale
        )

    def norm(self, rows: str, residual: str, name: str, size: int, epsilon: float) -> str:
        """The norm of the sum of rows and the residual."""
        total = self._graph.add("Add", rows, residual)
        given = [total, *(self.vector(f"{name}.{part}", size) for part in ("weight", "bias"))]
        # A quarter of the time of `SkipLayerNormalization`, which adds the residual itself.
        return self._graph.add("LayerNormalization", *given, axis=-1, epsilon=float(epsilon))

    def activate(self, rows: str, activation: str) -> str:
        """The activation of rows. The operators that add a bias first are slower."""
        if activation == "relu":
            return self._graph.add("Relu", rows)
        operator = {"gelu": "Gelu", "gelu_tanh": "FastGelu"}[activation]
        return self._graph.add(operator, rows, domain=CONTRIB)

    def vector(self, name: str, size: int) -> str:
        """A weight (size,) in float32."""
        return self._graph.weight(name, self._weights.floats(name, size))


def _look_up(graph: Graph, ids: str, table: Weight) -> str:
    if not isinstance(table, Quantized):
        return graph.add("Gather", graph.weight("pieces", as_float32(table)), ids)
    rows = graph.add("Cast", graph.add("Gather", graph.weight("pieces", table.values), ids), to=1)
    scales = graph.weight("pieces.scales", np.ascontiguousarray(table.scales[:, None], np.float32))
    return graph.add("Mul", rows, graph.add("Gather", scales, ids))


def _relative_positions(graph: Graph, config: EncoderConfig, weights: Weights, length: str) -> str:
    """What heads add to scores by how far apart two subwords stand: (1, heads, L, L)."""
    kinds = relative_position_buckets(config.positions, config.distances)  # (2 * positions - 1,)
    table = weights.floats("distances.bias.weight", config.distances, config.heads)[kinds]
    count = graph.add("Squeeze", length)
    start, step = (graph.weight(f"range {n}", np.array(n, np.int64)) for n in (0, 1))
    place = graph.add("Range", start, count, step)  # (L,)
    after = graph.add("Sub", place, graph.add("Unsqueeze", place, graph.constant(1)))  # (L, L)
    row = graph.add("Add", after, graph.constant(config.positions - 1))
    found = graph.add("Gather", graph.weight("distances", table), row)  # (L, L, heads)
    by_head = graph.add("Transpose", found, perm=(2, 0, 1))
    return graph.add("Unsqueeze", by_head, graph.constant(0))
