"""BERT's encoder for one query on a CPU, by compiled code: `Encoder` is the plain form.

    encoder = EncoderOnCPU(model.encoder)
    rows = encoder(ids, mask)  # (1, L) to (1, L, H), as model.encoder(ids, mask) gives them

Built once, since it brings the weights into another order, and compiles or loads its code.
"""

import numpy as np
import torch
from torch import Tensor, nn

from glassrank.errors import InputError
from glassrank.nn.few_rows_cpu import FewRows, real_length, with_padding
from glassrank.nn.few_rows_pass import Entry
from glassrank.nn.packed_blocks import Block
from glassrank.nn.row_steps import GELU, GELU_TANH, RELU
from glassrank.nn.transformer import Encoder, Layer

_ACTIVATIONS = {"relu": RELU, "gelu": GELU, "gelu_tanh": GELU_TANH}


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
        blocks = [own for layer in encoder.stack() for own in _blocks(layer, activation)]
        self._rows = FewRows(blocks, config.size, threads=threads, tiles=tiles)
        own = encoder.embeddings
        places = own.positions.weight.detach() + own.types.weight.detach()[0]
        self._entry = Entry(
            table=own.pieces.weight.detach().float().contiguous().numpy(),
            places=places.float().contiguous().numpy(),
            norm=self._rows.norm(own.norm.weight, own.norm.bias),
            epsilon=np.float32(own.norm.eps),
        )
        self(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1))  # compiled before it is needed

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(1, L) to (1, L, H), zeros where the mask, which is 1 for the first pieces, is not."""
        if ids.ndim != 2 or len(ids) != 1 or mask.shape != ids.shape:
            raise InputError(f"one text at a time, with its mask, not {tuple(ids.shape)}")
        length = real_length(mask)
        found = torch.from_numpy(
            self._rows(ids[0, :length].long().contiguous().numpy(), self._entry)
        )
        return with_padding(found, ids.shape[1])


def _blocks(layer: Layer, activation: int) -> list[Block]:
    attention, other = layer.attention, layer.feed_forward
    channels = attention.output.in_features // attention.heads
    return [
        Block(
            attention.query_key_value,
            attention.output,
            attention.norm.weight,
            attention.norm.bias,
            attention.norm.eps,
            heads=attention.heads,
            scale=channels**-0.5,
        ),
        Block(
            other.inner,
            other.outer,
            other.norm.weight,
            other.norm.bias,
            other.norm.eps,
            activation=activation,
        ),
    ]
