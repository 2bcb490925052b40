"""BERT's encoder and TK's transformer for documents on a CPU: the same out as from the plain forms,
sooner. These are `nn.transformer.Encoder` and `nn.transformer.ContextualLayers`.

Rows of several texts stand in one matrix, one after another, so that nothing is computed for
padding; only attention looks at texts, by matrix tiles where heads are as wide as a tile (MiniLM's
are). Weights are in bfloat16 where the processor multiplies it, and lie as its matrix units read
them. Takes the place of trained layers; one query has a form of its own (`query_encoders.py`), and
`nn/gpu/contextual.py` is TK's for a GPU.
"""

import copy
from functools import lru_cache
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.nn.transformer import ContextualLayer, ContextualLayers, Encoder, Layer, positions

_ROWS = 512
"""For so many, weights are laid out best; any other number gives the same results."""


def rounded_up(rows: int) -> int:
    """To one of eight numbers between a power of two and the next: oneDNN compiles, and keeps, a
    kernel for each number of rows that it meets.

    >>> [rounded_up(rows) for rows in (1, 16, 100, 1000, 1025)]
    [16, 16, 112, 1024, 1152]
    """
    step = max(16, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


def attend_in_rows(
    projected: Tensor, lengths: NDArray[np.int64], heads: int, scale: float
) -> Tensor:
    """What rows of texts with so many rows each attend to within their text: (T, 3 * H * A) to
    (T, H * A)."""
    if _has_tiles(projected.dtype, projected.shape[1] // (3 * heads)):
        from glassrank.nn.cpu.attention import attend_within

        return attend_within(projected, lengths, heads, scale)
    parts = []
    start = 0
    for length, same in groupby(lengths.tolist()):
        docs = len(list(same))
        part = projected[start : start + docs * length]
        if not length:
            continue
        split = part.view(docs, length, 3, heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (docs, H, length, A)
        attended = functional.scaled_dot_product_attention(query, key, value, scale=scale)
        parts.append(attended.transpose(1, 2).reshape(docs * length, -1))
        start += docs * length
    return torch.cat(parts)


class SumNorm(nn.Module):
    """The norm of a sum of two, the first of which is written over."""

    gain: Tensor
    bias: Tensor

    def __init__(self, gain: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("gain", gain.detach().to(dtype))
        self.register_buffer("bias", bias.detach().to(dtype))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """(T, E) of two (T, E)."""
        size = self.gain.shape
        return functional.layer_norm(x.add_(residual), size, self.gain, self.bias, self.epsilon)


_EXACT = {"gelu": "none"}
"""Of an activation that has an approximate form too."""


class Packed(nn.Module):
    """A linear layer and what follows it, `none`, `relu` or `gelu`. Its weights are brought into
    the order in which oneDNN reads them once, and not at every call."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, activation: str = "none") -> None:
        super().__init__()
        self.weight = linear.weight.detach().to(dtype)
        self.bias = linear.bias.detach().to(dtype)
        self.activation = activation
        self.packed = _in_order(self.weight) if dtype == torch.bfloat16 and _packs() else None

    def forward(self, x: Tensor) -> Tensor:
        """(T, inputs) to (T, outputs)."""
        if self.packed is None:
            made = functional.linear(x, self.weight, self.bias)
            if self.activation == "gelu":
                return functional.gelu(made)
            return made.relu_() if self.activation == "relu" else made
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, self.activation, [], _EXACT.get(self.activation, "")
        )
        return result


def _in_order(weight: Tensor) -> Any:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)


@lru_cache
def _has_tiles(dtype: torch.dtype, channels: int) -> bool:
    try:
        from glassrank.nn.cpu import attention
    except ImportError:  # no numba, as on a machine that only trains
        return False
    return attention.usable(dtype, channels)


@lru_cache(maxsize=1)
def _packs() -> bool:
    """Whether this PyTorch has the two calls, which its compiler uses and does not promise."""
    x, weight, bias = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((2, 3), (4, 3), (4,)))
    try:
        packed = torch.ops.mkldnn._linear_pointwise(x, _in_order(weight), bias, "relu", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(packed, functional.linear(x, weight, bias))


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
            _EncoderLayer(layer, encoder.config.activation, dtype) for layer in encoder.stack()
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


class _EncoderLayer(nn.Module):
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


_EPSILON = 1e-12
"""The plain norm adds 1e-6 to the deviation; PyTorch's, which is faster, adds this to its square.
The two differ only where all columns of a vector are nearly the same."""


class ContextualOnCPU(nn.Module):
    """Computes in `dtype`, whatever the type of the words."""

    mix: Tensor

    def __init__(self, layers: ContextualLayers, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.layers = nn.ModuleList(
            _ContextualLayer(cast(ContextualLayer, layer), dtype) for layer in layers.layers
        )
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


class _ContextualLayer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h), on words of several documents."""

    def __init__(self, layer: ContextualLayer, dtype: torch.dtype) -> None:
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
