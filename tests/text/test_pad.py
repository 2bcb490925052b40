"""Sequences of ids as one array."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glassrank.text import pad
from glassrank.text.encoder import PADDING

rows = st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=5)


def arrays(sequences: list[list[int]]) -> list[np.ndarray]:
    return [np.array(sequence, np.int32) for sequence in sequences]


@given(sequences=rows, longest=st.integers(0, 7) | st.none(), shortest=st.integers(0, 8))
def test_every_row_is_its_sequence_cut_and_padded(
    sequences: list[list[int]], longest: int | None, shortest: int
) -> None:
    batch = pad(arrays(sequences), longest, shortest)
    for sequence, ids, mask, cut in zip(sequences, *batch, strict=True):
        kept = sequence[:longest]
        filling = len(ids) - len(kept)
        assert ids.tolist() == kept + [PADDING] * filling
        assert mask.tolist() == [True] * len(kept) + [False] * filling
        assert cut == len(sequence) - len(kept)


@given(sequences=rows, longest=st.integers(0, 7) | st.none(), shortest=st.integers(0, 8))
def test_the_width_is_the_longest_row_or_the_least_asked_for(
    sequences: list[list[int]], longest: int | None, shortest: int
) -> None:
    batch = pad(arrays(sequences), longest, shortest)
    width = max([shortest, *(len(sequence[:longest]) for sequence in sequences)])
    assert batch.ids.shape == batch.mask.shape == (len(sequences), width)


def test_an_empty_batch_has_no_rows() -> None:
    batch = pad([])
    assert batch.ids.shape == batch.mask.shape == (0, 0)
    assert batch.cut.shape == (0,)
    assert batch.ids.dtype == np.int32
    assert batch.mask.dtype == np.bool_
