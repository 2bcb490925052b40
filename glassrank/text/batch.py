"""Sequences of ids as one padded array with its mask."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.text.vocabulary import PADDING


class Batch(NamedTuple):
    """Ids, padded at the end, and a mask that is true where a word stands.

    `cut` says how many words of each sequence did not fit: nothing is dropped in silence.
    """

    ids: NDArray[np.int32]  # (B, L)
    mask: NDArray[np.bool_]  # (B, L)
    cut: NDArray[np.int64]  # (B,)


def pad(
    sequences: Sequence[NDArray[np.int32]], max_length: int | None = None, min_length: int = 0
) -> Batch:
    """Pads to the longest sequence, at least `min_length`; cuts what passes `max_length`.

    >>> pad([np.array([5, 6, 7]), np.array([8])], max_length=2)
    Batch(ids=array([[5, 6],
           [8, 0]], dtype=int32), mask=array([[ True,  True],
           [ True, False]]), cut=array([1, 0]))
    """
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)  # (B,)
    kept = lengths if max_length is None else np.minimum(lengths, max_length)  # (B,)
    width = max(min_length, int(kept.max(initial=0)))
    mask = np.arange(width) < kept[:, None]  # (B, L)
    ids = np.full(mask.shape, PADDING, np.int32)
    if len(sequences):
        ids[mask] = np.concatenate(
            [sequence[:n] for sequence, n in zip(sequences, kept.tolist(), strict=True)]
        )
    return Batch(ids, mask, lengths - kept)
