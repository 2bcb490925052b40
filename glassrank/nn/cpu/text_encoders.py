"""Encoders as compiled code, made of plain arrays: texts in, rows out, one after another.

`BERTRows` is BERT's encoder, whose plain form is `nn.transformer.Encoder`; `ContextualRows` is
TK's, whose plain form is `nn.transformer.ContextualLayers`. Weights are named as the plain forms
name them, rounded to 16 bits and taken over as they are now; rows, norms and shares of attention
are float32. Several threads may call them. Built once, since weights are brought into another
order, and code is compiled or loaded.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.nn.configs import ContextualConfig, EncoderConfig, distance_kinds, waves
from glassrank.nn.cpu.block_layout import Block
from glassrank.nn.cpu.few_rows import FewRows
from glassrank.nn.cpu.few_rows_pass import Entry
from glassrank.nn.cpu.row_products import Way
from glassrank.nn.cpu.row_steps import GELU, GELU_TANH, RELU

Weights = Mapping[str, NDArray[Any]]
"""By name, as a model's file has them."""

_ACTIVATIONS = {"relu": RELU, "gelu": GELU, "gelu_tanh": GELU_TANH}
_CONTEXTUAL_EPSILON = 1e-6
"""Of the plain norm."""


def within(weights: Weights, prefix: str) -> dict[str, NDArray[Any]]:
    """Those of one part of a model, by their names in it."""
    return {
        name.removeprefix(prefix): array
        for name, array in weights.items()
        if name.startswith(prefix)
    }


class BERTRows:
    """Pieces' ids to states."""

    def __init__(
        self,
        config: EncoderConfig,
        weights: Weights,
        *,
        threads: int | None = None,
        way: Way | None = None,
    ) -> None:
        blocks = [
            block
            for number in range(config.layers)
            for block in _encoder_layer(config, within(weights, f"layers.{number}."))
        ]
        distances = _distances(config, weights) if config.distances else None
        self.rows = FewRows(blocks, config.size, distances=distances, threads=threads, way=way)
        table = within(weights, "embeddings.")
        places = _floats(table["positions.weight"]) + _floats(table["types.weight"])[0]
        self._entry = Entry(
            table=_floats(table["pieces.weight"]),
            places=np.ascontiguousarray(places),
            norm=self.rows.norm(table["norm.weight"], table["norm.bias"]),
            epsilon=np.float32(config.epsilon),
        )
        self(np.zeros(1, np.int64))  # compiled before it is needed

    def __call__(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Of one text, or of texts of these lengths, one after another: (T,) to (T, H)."""
        return self.rows(ids, self._entry, lengths)


def _distances(config: EncoderConfig, weights: Weights) -> NDArray[np.float32]:
    """(heads, 2 * positions - 1)."""
    kinds = distance_kinds(config.positions, config.distances)
    return np.ascontiguousarray(_floats(weights["distances.bias.weight"])[kinds].T)


def _encoder_layer(config: EncoderConfig, layer: Weights) -> list[Block]:
    attention, feed_forward = within(layer, "attention."), within(layer, "feed_forward.")
    heads = {"heads": config.heads, "scale": (config.attention // config.heads) ** -0.5}
    activation = {"activation": _ACTIVATIONS[config.activation]}
    return [
        _encoder_block(attention, "query_key_value", "output", config.epsilon, **heads),
        _encoder_block(feed_forward, "inner", "outer", config.epsilon, **activation),
    ]


def _encoder_block(part: Weights, first: str, second: str, epsilon: float, **kind: Any) -> Block:
    return Block(
        *_linear(part, first),
        *_linear(part, second),
        part["norm.weight"],
        part["norm.bias"],
        inside=epsilon,
        **kind,
    )


class ContextualRows:
    """Word vectors to contextual ones, mixed with the words themselves."""

    def __init__(
        self,
        size: int,
        config: ContextualConfig,
        weights: Weights,
        *,
        threads: int | None = None,
        way: Way | None = None,
    ) -> None:
        blocks = [
            block
            for number in range(config.layers)
            for block in _contextual_layer(size, config, within(weights, f"layers.{number}."))
        ]
        self.rows = FewRows(blocks, size, threads=threads, way=way)
        self._no_norm = self.rows.norm()
        self._mix = np.float32(weights["mix"])
        self._waves = waves(16, size)
        self(np.zeros((1, size), np.float32))  # compiled before it is needed

    def __call__(
        self, words: NDArray[np.float32], lengths: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Of one text, or of texts of these lengths, one after another: (T, E) to (T, E)."""
        words = np.ascontiguousarray(words, np.float32)
        entry = Entry(words, self._places(len(words)), self._no_norm, np.float32(0))
        context = self.rows(np.arange(len(words)), entry, lengths)  # (T, E)
        context += self._mix * (words - context)
        return context

    def _places(self, longest: int) -> NDArray[np.float32]:
        if longest > len(self._waves):
            self._waves = waves(1 << (longest - 1).bit_length(), self._waves.shape[1])
        return self._waves


def _contextual_layer(size: int, config: ContextualConfig, layer: Weights) -> list[Block]:
    ahead = "feed_forward."
    attention = {"heads": config.heads, "scale": config.scale(size)}
    return [
        _contextual_block(layer, f"{ahead}0", f"{ahead}2", "feed_forward_norm", activation=RELU),
        _contextual_block(layer, "query_key_value", "output", "attention_norm", **attention),
    ]


def _contextual_block(layer: Weights, first: str, second: str, norm: str, **kind: Any) -> Block:
    return Block(
        *_linear(layer, first),
        *_linear(layer, second),
        layer[f"{norm}.gain"],
        layer[f"{norm}.bias"],
        outside=_CONTEXTUAL_EPSILON,
        **kind,
    )


def _linear(part: Weights, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    return part[f"{name}.weight"], part[f"{name}.bias"]


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)
