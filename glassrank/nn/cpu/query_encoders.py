"""One query through a transformer on a CPU, by compiled code: `EncoderOnCPU` stands in for BERT's
encoder, `ContextualQueryOnCPU` for TK's, inside of a model of PyTorch's.

    encoder = EncoderOnCPU(model.encoder)
    rows = encoder(ids, mask)  # (1, L) to (1, L, H), as model.encoder(ids, mask) gives them

`text_encoders.py` has the same without PyTorch.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.nn.cpu.row_products import Way
from glassrank.nn.cpu.text_encoders import BERTRows, ContextualRows
from glassrank.nn.transformer import ContextualLayers, Encoder


class EncoderOnCPU(nn.Module):
    """Stands in for an encoder where one query at a time is encoded without gradients:

    fast = copy.copy(model)
    fast._modules = {**model._modules, "encoder": EncoderOnCPU(model.encoder)}
    fast.encode_query(batch)
    """

    def __init__(
        self, encoder: Encoder, *, threads: int | None = None, way: Way | None = None
    ) -> None:
        super().__init__()
        self.config = encoder.config
        self._encode = BERTRows(encoder.config, arrays_of(encoder), threads=threads, way=way)
        self._rows = self._encode.rows

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(1, L) to (1, L, H), zeros where the mask, which is 1 for the first pieces, is not."""
        if ids.ndim != 2 or len(ids) != 1 or mask.shape != ids.shape:
            raise InputError(f"one text at a time, with its mask, not {tuple(ids.shape)}")
        pieces = ids[0, : _real_length(mask)].long().contiguous().numpy()
        return _with_padding(self._encode(pieces), ids.shape[1])


class ContextualQueryOnCPU(nn.Module):
    """Stands in for contextual layers, one or more, where one query at a time is encoded without
    gradients."""

    def __init__(
        self, layers: ContextualLayers, *, threads: int | None = None, way: Way | None = None
    ) -> None:
        super().__init__()
        weights = arrays_of(layers)
        self._encode = ContextualRows(layers.size, layers.config, weights, threads=threads, way=way)
        self._rows = self._encode.rows

    @torch.no_grad()
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(1, L, E) to (1, L, E); the mask (1, L) is 1 for the first words."""
        if vectors.ndim != 3 or len(vectors) != 1 or mask.shape != vectors.shape[:2]:
            raise InputError(f"one text at a time, with its mask, not {tuple(vectors.shape)}")
        words = vectors[0, : _real_length(mask)].float().numpy()  # (L, E)
        return _with_padding(self._encode(words), vectors.shape[1]).to(vectors.dtype)


def arrays_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """A module's weights as compiled code takes them."""
    return {
        name: tensor.detach().float().cpu().numpy() for name, tensor in module.state_dict().items()
    }


def _real_length(mask: Tensor) -> int:
    """Of a mask (1, L) that is 1 and then 0."""
    real = mask[0].numpy()
    length = int(np.count_nonzero(real))
    if not (real[:length] == 1).all():
        raise InputError("a mask must be 1 for a text's first words and 0 for padding after them")
    return length


def _with_padding(rows: NDArray[np.float32], length: int) -> Tensor:
    """(L, H) to (1, length, H): zeros follow."""
    made, missing = torch.from_numpy(rows), length - len(rows)
    return (functional.pad(made, (0, 0, 0, missing)) if missing else made)[None]
