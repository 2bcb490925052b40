"""TK's transformer for ranking on a CPU: the same words in, the same words out, sooner.

Words of all documents stand in one matrix, one after another, so that nothing is computed for
padding; only attention looks at documents. Weights are in bfloat16 where the processor multiplies
it, and lie as its matrix units read them. Takes the place of trained layers; the plain form is
`nn.contextual.ContextualLayers`, and `nn/gpu/contextual.py` is the same for a GPU.
"""

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.contextual import ContextualLayers, Layer, positions
from glassrank.nn.cpu.packed_rows import Packed, SumNorm, attend_in_rows, rounded_up

_EPSILON = 1e-12
"""The plain norm adds 1e-6 to the deviation; PyTorch's, which is faster, adds this to its square.
The two differ only where all columns of a vector are nearly the same."""


class ContextualOnCPU(nn.Module):
    """Computes in `dtype`, whatever the type of the words."""

    mix: Tensor

    def __init__(self, layers: ContextualLayers, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.layers = nn.ModuleList(_Layer(cast(Layer, layer), dtype) for layer in layers.layers)
        self.register_buffer("mix", layers.mix.detach().clone())

    @torch.no_grad()
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, L, E); the mask (B, L) is 1 for the first words of each."""
        lengths = mask.sum(1, dtype=torch.int64).numpy()  # (B,)
        every, total = vectors.flatten(0, 1), int(lengths.sum())  # (B * L, E)
        if total == 0:
            return torch.zeros_like(vectors)
        whole = total == len(every)
        where = torch.empty(0) if whole else mask.flatten().nonzero().squeeze(1)  # (T,)
        words = every if whole else every.index_select(0, where)  # (T, E)
        made = self._encode(words, lengths, positions(vectors))  # (T, E)
        if whole:
            return made.view(vectors.shape)
        return torch.zeros_like(every).index_copy_(0, where, made).view(vectors.shape)

    def _encode(self, words: Tensor, lengths: NDArray[np.int64], waves: Tensor) -> Tensor:
        """(T, E) to (T, E)."""
        places = torch.cat([waves[:length] for length in lengths.tolist()])  # (T, E)
        context = (words + places).to(self.dtype)
        spare = rounded_up(len(words)) - len(words)
        if spare:  # one more document, of zeros
            context = functional.pad(context, (0, 0, 0, spare))
            lengths = np.append(lengths, spare)
        for layer in self.layers:
            context = layer(context, lengths)
        context = context[: len(words)].to(words.dtype)
        return torch.lerp(context, words, self.mix.to(words.dtype))


class _Layer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h), on words of several documents."""

    def __init__(self, layer: Layer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.scale = layer.heads, layer.scale
        first, second = (cast(nn.Linear, layer.feed_forward[place]) for place in (0, 2))
        self.first, self.second = Packed(first, dtype, "relu"), Packed(second, dtype)
        self.query_key_value = Packed(layer.query_key_value, dtype)
        self.output = Packed(layer.output, dtype)
        self.feed_forward_norm, self.attention_norm = (
            SumNorm(norm.gain, norm.bias, _EPSILON, dtype)
            for norm in (layer.feed_forward_norm, layer.attention_norm)
        )

    def forward(self, x: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        h = self.feed_forward_norm(self.second(self.first(x)), x)  # (T, E)
        projected = self.query_key_value(h)  # (T, 3 * H * A)
        attended = attend_in_rows(projected, lengths, self.heads, self.scale)  # (T, H * A)
        result: Tensor = self.attention_norm(self.output(attended), h)
        return result
