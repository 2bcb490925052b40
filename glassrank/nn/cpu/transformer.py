"""BERT's encoder for documents on a CPU: the same pieces in, the same states out, sooner.

Pieces of all documents stand in one matrix, in bfloat16, and attention goes by matrix tiles where
heads are as wide as a tile (MiniLM's are). Takes the place of trained layers; the plain form is
`nn.transformer.Encoder`. One query has a form of its own: `nn/cpu/query_encoders.py`.
"""

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.nn.cpu.packed_rows import Packed, SumNorm, attend_in_rows, rounded_up
from glassrank.nn.transformer import Encoder, Layer


def packs(encoder: Encoder) -> bool:
    """Whether an encoder has this form: it tells no distances apart, and its activation follows a
    product in the same pass."""
    return encoder.distances is None and encoder.config.activation in ("gelu", "relu")


class DocsEncoderOnCPU(nn.Module):
    """Without gradients."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        if not packs(encoder):
            raise InputError("this encoder has no form for documents on a CPU; use the plain one")
        self.config = encoder.config
        self.embeddings = copy.deepcopy(encoder.embeddings).to(dtype).eval()
        self.layers = nn.ModuleList(
            _Layer(layer, encoder.config.activation, dtype) for layer in encoder.stack()
        )

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) to (B, L, H), zeros at padding; the mask is 1 for the first pieces of each."""
        if ids.shape[1] > self.config.positions:
            raise InputError(
                f"a text of {ids.shape[1]} pieces is longer than the {self.config.positions} that "
                "this model has positions for; cut it before it is encoded"
            )
        lengths = mask.sum(1, dtype=torch.int64).numpy()  # (B,)
        real = mask.flatten().nonzero().squeeze(1)  # (T,)
        states = self._encode(ids.flatten()[real], real % ids.shape[1], lengths)  # (T, H)
        padded = states.new_zeros(mask.numel(), states.shape[1])
        return padded.index_copy_(0, real, states).view(*ids.shape, -1)

    def _encode(self, ids: Tensor, places: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        """Pieces of all texts, (T,), to (T, H)."""
        x: Tensor = self.embeddings(ids[None], places[None])[0]
        spare = rounded_up(len(x)) - len(x)
        if spare:  # one more text, of zeros
            x = functional.pad(x, (0, 0, 0, spare))
            lengths = np.append(lengths, spare)
        for layer in self.layers:
            x = layer(x, lengths)
        return x[: len(ids)]


class _Layer(nn.Module):
    """h = norm(x + attention(x)); out = norm(h + FF(h)), on rows of several texts."""

    def __init__(self, layer: Layer, activation: str, dtype: torch.dtype) -> None:
        super().__init__()
        attention, feed_forward = layer.attention, layer.feed_forward
        self.heads = attention.heads
        self.scale = (attention.output.in_features / attention.heads) ** -0.5
        self.query_key_value = Packed(attention.query_key_value, dtype)
        self.output = Packed(attention.output, dtype)
        self.inner = Packed(feed_forward.inner, dtype, activation)
        self.outer = Packed(feed_forward.outer, dtype)
        self.attention_norm, self.feed_forward_norm = (
            SumNorm(norm.weight, norm.bias, norm.eps, dtype)
            for norm in (attention.norm, feed_forward.norm)
        )

    def forward(self, x: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        projected = self.query_key_value(x)  # (T, 3 * H)
        attended = attend_in_rows(projected, lengths, self.heads, self.scale)  # (T, H)
        h = self.attention_norm(self.output(attended), x)  # (T, H)
        result: Tensor = self.feed_forward_norm(self.outer(self.inner(h)), h)
        return result
