"""TK's transformer for one query on a CPU, by compiled code: `ContextualLayers` is the plain form,
and `contextual_cpu` the one for many documents."""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassrank.errors import InputError
from glassrank.nn.contextual import ContextualLayers, Layer, Norm, positions
from glassrank.nn.few_rows_cpu import FewRows, real_length, with_padding
from glassrank.nn.few_rows_pass import Entry
from glassrank.nn.packed_blocks import Block
from glassrank.nn.row_steps import RELU

_EPSILON = 1e-6
"""Of the plain norm."""


class ContextualQueryOnCPU(nn.Module):
    """Stands in for contextual layers, one or more, where one query at a time is encoded without
    gradients. Weights are rounded to bfloat16 and taken over as they are now. Several threads may
    call it."""

    def __init__(
        self, layers: ContextualLayers, *, threads: int | None = None, tiles: bool | None = None
    ) -> None:
        super().__init__()
        blocks = [own for layer in layers.layers for own in _blocks(cast(Layer, layer))]
        size = blocks[0].first.in_features
        self._rows = FewRows(blocks, size, threads=threads, tiles=tiles)
        self._no_norm = self._rows.norm()
        self._mix = layers.mix.item()
        self(torch.zeros(1, 1, size), torch.ones(1, 1))  # compiled before it is needed

    @torch.no_grad()
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(1, L, E) to (1, L, E); the mask (1, L) is 1 for the first words."""
        if vectors.ndim != 3 or len(vectors) != 1 or mask.shape != vectors.shape[:2]:
            raise InputError(f"one text at a time, with its mask, not {tuple(vectors.shape)}")
        length = real_length(mask)
        words = vectors[0, :length].float().contiguous()  # (L, E)
        entry = Entry(
            table=words.numpy(),
            places=positions(words[None]).contiguous().numpy(),
            norm=self._no_norm,
            epsilon=np.float32(0),
        )
        context = torch.from_numpy(self._rows(np.arange(length), entry))  # (L, E)
        made = torch.lerp(context, words, self._mix)
        return with_padding(made, vectors.shape[1]).to(vectors.dtype)


def _blocks(layer: Layer) -> list[Block]:
    first, second = (cast(nn.Linear, layer.feed_forward[place]) for place in (0, 2))
    attention = {"heads": layer.heads, "scale": layer.scale}
    return [
        _block(first, second, layer.feed_forward_norm, activation=RELU),
        _block(layer.query_key_value, layer.output, layer.attention_norm, **attention),
    ]


def _block(first: nn.Linear, second: nn.Linear, norm: Norm, **own: Any) -> Block:
    return Block(first, second, norm.gain, norm.bias, outside=_EPSILON, **own)
