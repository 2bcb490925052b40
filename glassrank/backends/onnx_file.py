"""Writes ONNX graphs: nodes and weights in, the bytes of a `.onnx` file out.

The format is a protocol buffer of a few messages, with the field numbers of `onnx.proto`. Writing
them here avoids a dependency on the package `onnx`; tests check each graph with it.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONTRIB = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
_IR_VERSION, _OPSET = 9, 19
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}

Shape = Sequence[int | str]
"""Sizes, or names of sizes that differ from call to call."""
Attribute = float | int | str | tuple[int, ...]


class Graph:
    """Nodes in the order in which they are computed. Values are known by their names."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[bytes] = []
        self._weights: dict[str, tuple[bytes, NDArray[np.uint8]]] = {}
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def input(self, name: str, dtype: str, shape: Shape) -> str:
        """Declares an input."""
        self._inputs.append(_value(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: str, shape: Shape) -> None:
        """Declares an output, under a name of its own."""
        self.add("Identity", value, outputs=[name])
        self._outputs.append(_value(name, dtype, shape))

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Adds a constant. The array must stay as it is: it is copied by `serialize` alone."""
        self._weights[name] = _tensor(name, array)
        return name

    def constant(self, *values: float | int) -> str:
        """Adds a few numbers as a constant: int64, or float32."""
        dtype: Any = np.int64 if all(isinstance(value, int) for value in values) else np.float32
        name = f"constant {' '.join(map(repr, values))}"
        return self.weight(name, np.array(values, dtype))

    def add(
        self,
        operator: str,
        *inputs: str,
        outputs: Sequence[str] = (),
        domain: str = "",
        **attributes: Attribute,
    ) -> str:
        """Adds a node and returns its first output; an input that is left out is an empty name."""
        outputs = outputs or [f"{operator} {len(self._nodes)}"]
        fields = [_bytes(1, _text(name)) for name in inputs]
        fields += [_bytes(2, _text(name)) for name in outputs]
        fields += [_bytes(3, _text(outputs[0])), _bytes(4, _text(operator))]
        fields += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join([*fields, _bytes(7, _text(domain))]))
        return outputs[0]

    def serialize(self) -> bytes:
        """The content of a `.onnx` file. Weights, which are nearly all of it, are copied once."""
        graph: list[Any] = [_bytes(1, node) for node in self._nodes]  # bytes, and arrays of them
        graph.append(_bytes(2, _text(self._name)))
        for fields, values in self._weights.values():
            graph += [_head(5, len(fields) + len(values)), fields, values]
        graph += [_bytes(11, value) for value in self._inputs]
        graph += [_bytes(12, value) for value in self._outputs]
        opsets = (("", _OPSET), (CONTRIB, 1))
        return b"".join(
            [
                _integer(1, _IR_VERSION),
                _bytes(2, _text("glassrank")),
                _head(7, sum(map(len, graph))),
                *graph,
                *(_bytes(8, _bytes(1, _text(n)) + _integer(2, version)) for n, version in opsets),
            ]
        )


def _value(name: str, dtype: str, shape: Shape) -> bytes:
    dimensions = [
        _bytes(1, _integer(1, size) if isinstance(size, int) else _bytes(2, _text(size)))
        for size in shape
    ]
    tensor = _integer(1, _TYPES[dtype]) + _bytes(2, b"".join(dimensions))
    return _bytes(1, _text(name)) + _bytes(2, _bytes(1, tensor))


def _tensor(name: str, array: NDArray[Any]) -> tuple[bytes, NDArray[np.uint8]]:
    """The fields of a tensor, of which the last is its values, and these."""
    dimensions = [_integer(1, size) for size in array.shape]
    kind = _integer(2, _TYPES[array.dtype.name])
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return b"".join([*dimensions, kind, _bytes(8, _text(name)), _head(9, len(values))]), values


def _attribute(name: str, value: Attribute) -> bytes:
    named = _bytes(1, _text(name))
    if isinstance(value, tuple):
        return named + b"".join(_integer(8, number) for number in value) + _integer(20, 7)
    if isinstance(value, str):
        return named + _bytes(4, _text(value)) + _integer(20, 3)
    if isinstance(value, int):
        return named + _integer(3, value) + _integer(20, 2)
    return named + _varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, 1)


def _text(value: str) -> bytes:
    return value.encode()


def _bytes(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, length: int) -> bytes:
    """What stands before so many bytes."""
    return _varint(number << 3 | 2) + _varint(length)


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & (1 << 64) - 1)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
