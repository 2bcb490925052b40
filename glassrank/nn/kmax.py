"""k-max pooling: the strongest signals of each row, strongest first."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def k_max(rows: Tensor, k: int, prefixes: Sequence[float] = (1.0,)) -> tuple[Tensor, Tensor]:
    """The k largest values of each row (…, D) and where they stand, both (…, len(prefixes) * k).

    With several `prefixes`, also of the row's first parts: a cascade that tells early signals from
    late ones. Rows shorter than k are filled with zeros, which stand at place 0.
    """
    values, places = [], []
    for prefix in prefixes:
        part = rows[..., : max(1, int(rows.shape[-1] * prefix))]
        top, where = part.topk(min(k, part.shape[-1]), dim=-1, sorted=True)
        missing = k - top.shape[-1]
        values.append(functional.pad(top, (0, missing)))
        places.append(functional.pad(where, (0, missing)))
    return torch.cat(values, -1), torch.cat(places, -1)
