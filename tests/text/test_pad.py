"""Sequences of ids as one array."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glassrank.text import pad
from glassrank.text.words import PADDING

rows = st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=5)


@given(sequences=rows)
def test_every_row_is_its_sequence_padded_to_the_longest(sequences: list[list[int]]) -> None:
    padded, masks = pad([np.array(sequence, np.int32) for sequence in sequences])
    assert padded.shape == masks.shape == (len(sequences), max([1, *map(len, sequences)]))
    assert (padded.dtype, masks.dtype) == (np.int32, np.bool_)
    for sequence, ids, mask in zip(sequences, padded, masks, strict=True):
        filling = len(ids) - len(sequence)
        assert ids.tolist() == sequence + [PADDING] * filling
        assert mask.tolist() == [True] * len(sequence) + [False] * filling
