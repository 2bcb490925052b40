"""Texts in batches of like length, in several threads or one: all of them, once, in order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassrank.backends.configs import EncoderConfig
from glassrank.models import EmbeddingTable
from glassrank.models.text_batches import batch_by_length, map_batches
from glassrank.research.papers.bert import BERT, BERTConfig
from glassrank.research.papers.knrm import KNRM, KNRMConfig

SMALL = KNRM(KNRMConfig(size=4), EmbeddingTable(torch.randn(5, 4)))
LARGE = BERT(BERTConfig(EncoderConfig(vocabulary=9, size=4, layers=1, heads=1, feed_forward=4)))


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100), st.sampled_from([1, 2, 3]))
def test_every_text_once(lengths: list[int], at_once: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        counts = np.array(lengths, np.int64)
        found = list(map_batches(lambda batch: batch, counts, at_once, SMALL))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    together = np.concatenate([np.empty(0, np.int64), *found])
    assert sorted(together.tolist()) == list(range(len(lengths)))
    assert all((np.diff(counts[batch]) >= 0).all() for batch in found)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_threads_share_the_work_evenly(lengths: list[int]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts = np.array(lengths, np.int64)
        found = list(map_batches(lambda batch: batch, counts, 10_000, SMALL))
    finally:
        torch.set_num_threads(before)
    shares = [int(counts[batch].sum()) for batch in found]
    assert len(shares) == min(2, len(lengths))
    assert max(shares) - min(shares) <= max(lengths)


def test_a_large_model_takes_one_batch_at_a_time() -> None:
    lengths = np.array([3, 1, 2, 9])
    found = list(map_batches(lambda batch: batch.tolist(), lengths, 6, LARGE))
    assert found == [batch.tolist() for batch in batch_by_length(lengths, 6)]


def test_an_error_comes_out() -> None:
    def fail(batch: object) -> None:
        raise ValueError("this batch")

    with pytest.raises(ValueError, match="this batch"):
        list(map_batches(fail, np.array([1, 2]), 10, SMALL))
