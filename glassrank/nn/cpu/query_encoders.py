"""One query through a transformer on a CPU, by compiled code: `EncoderOnCPU` for BERT's encoder,
whose plain form is `nn.transformer.Encoder`, and `ContextualQueryOnCPU` for TK's, whose plain form
is `nn.contextual.ContextualLayers`.

    encoder = EncoderOnCPU(model.encoder)
    rows = encoder(ids, mask)  # (1, L) to (1, L, H), as model.encoder(ids, mask) gives them

Built once, since it brings the weights into another order, and compiles or loads its code.
"""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassrank.errors import InputError
from glassrank.nn import contextual, transformer
from glassrank.nn.contextual import ContextualLayers, Norm, positions
from glassrank.nn.cpu.few_rows import Block, FewRows, real_length, with_padding
from glassrank.nn.cpu.few_rows_pass import Entry
from glassrank.nn.cpu.row_steps import GELU, GELU_TANH, RELU
from glassrank.nn.transformer import Encoder

_ACTIVATIONS = {"relu": RELU, "gelu": GELU, "gelu_tanh": GELU_TANH}
_CONTEXTUAL_EPSILON = 1e-6
"""Of the plain norm."""


class EncoderOnCPU(nn.Module):
    """Stands in for an encoder where one query at a time is encoded without gradients:

        fast = copy.copy(model)
        fast._modules = {**model._modules, "encoder": EncoderOnCPU(model.encoder)}
        fast.encode_query(batch)

    Weights are rounded to bfloat16 and taken over as they are now; rows, norms and shares of
    attention are float32. Several threads may call it.
    """

    def __init__(
        self, encoder: Encoder, *, threads: int | None = None, tiles: bool | None = None
    ) -> None:
        super().__init__()
        self.config = config = encoder.config
        activation = _ACTIVATIONS[config.activation]
        blocks = [
            block for layer in encoder.stack() for block in _encoder_blocks(layer, activation)
        ]
        self._rows = FewRows(blocks, config.size, threads=threads, tiles=tiles)
        embeddings = encoder.embeddings
        places = embeddings.positions.weight.detach() + embeddings.types.weight.detach()[0]
        self._entry = Entry(
            table=embeddings.pieces.weight.detach().float().contiguous().numpy(),
            places=places.float().contiguous().numpy(),
            norm=self._rows.norm(embeddings.norm.weight, embeddings.norm.bias),
            epsilon=np.float32(embeddings.norm.eps),
        )
        self(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1))  # compiled before it is needed

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(1, L) to (1, L, H), zeros where the mask, which is 1 for the first pieces, is not."""
        if ids.ndim != 2 or len(ids) != 1 or mask.shape != ids.shape:
            raise InputError(f"one text at a time, with its mask, not {tuple(ids.shape)}")
        length = real_length(mask)
        pieces = ids[0, :length].long().contiguous().numpy()
        rows = torch.from_numpy(self._rows(pieces, self._entry))  # (L, H)
        return with_padding(rows, ids.shape[1])


def _encoder_blocks(layer: transformer.Layer, activation: int) -> list[Block]:
    attention, feed_forward = layer.attention, layer.feed_forward
    heads = attention.heads
    scale = (attention.output.in_features // heads) ** -0.5
    first, second = attention.query_key_value, attention.output
    inner, outer = feed_forward.inner, feed_forward.outer
    return [
        _encoder_block(first, second, attention.norm, heads=heads, scale=scale),
        _encoder_block(inner, outer, feed_forward.norm, activation=activation),
    ]


def _encoder_block(first: nn.Linear, second: nn.Linear, norm: nn.LayerNorm, **kind: Any) -> Block:
    return Block(first, second, norm.weight, norm.bias, norm.eps, **kind)


class ContextualQueryOnCPU(nn.Module):
    """Stands in for contextual layers, one or more, where one query at a time is encoded without
    gradients. Weights are rounded to bfloat16 and taken over as they are now. Several threads may
    call it."""

    def __init__(
        self, layers: ContextualLayers, *, threads: int | None = None, tiles: bool | None = None
    ) -> None:
        super().__init__()
        stack = [cast(contextual.Layer, layer) for layer in layers.layers]
        blocks = [block for layer in stack for block in _contextual_blocks(layer)]
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


def _contextual_blocks(layer: contextual.Layer) -> list[Block]:
    first, second = (cast(nn.Linear, layer.feed_forward[place]) for place in (0, 2))
    attention = {"heads": layer.heads, "scale": layer.scale}
    return [
        _contextual_block(first, second, layer.feed_forward_norm, activation=RELU),
        _contextual_block(layer.query_key_value, layer.output, layer.attention_norm, **attention),
    ]


def _contextual_block(first: nn.Linear, second: nn.Linear, norm: Norm, **kind: Any) -> Block:
    return Block(first, second, norm.gain, norm.bias, outside=_CONTEXTUAL_EPSILON, **kind)
