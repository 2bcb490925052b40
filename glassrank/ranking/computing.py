"""What computes a model: compiled code alone, or PyTorch. This is where the two part.

A `Reranker` asks for words and scores, and does not ask what they are made of; `load_served` has
decided which of the two a model is loaded for.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.models.ranker import AnyRanker, TokenBatch, Words
from glassrank.models.saved import SavedModel
from glassrank.models.text_batches import batch_of

Ids = Sequence[NDArray[np.int32]]


class Computing(Protocol):
    """One model, ready to encode and to score."""

    model: Any
    """As it was trained: what a store is tied to."""
    fast_model: Any
    """As it encodes documents and scores them, and on a GPU a transformer's queries too."""
    device: Any
    """Of PyTorch's; None without it."""
    dtype: Any
    """What stored words are best read as: what a transformer computes in."""

    def encode_query(self, batch: TokenBatch) -> Words:
        """One query, (1, Q) on the CPU."""

    def encode_doc(self, batch: TokenBatch) -> Words:
        """Documents, as they are ranked live."""

    def scores(
        self, query: Words, docs: Words, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Of one encoded query and many encoded documents."""


class ByCompiledCode:
    """A model of `models/served.py`."""

    device = None
    dtype = None

    def __init__(self, model: AnyRanker) -> None:
        self.model: Any = model
        self.fast_model: Any = model
        self.encode_query, self.encode_doc = model.encode_query, model.encode_doc

    def scores(
        self, query: Words, docs: Words, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """By the compiled pass that scores stored words."""
        return np.asarray(self.model.rank(query, docs, first_stage).score, np.float32)


def computing(saved: SavedModel, device: str, *, exact: bool) -> Computing:
    """On this device. `exact` leaves layers as they are."""
    if saved.model.device is None and device == "cpu" and not exact:
        return ByCompiledCode(saved.model)
    from glassrank.ranking.by_torch import ByTorch

    return ByTorch(saved.trained().model, device, saved.usage.query_length, exact=exact)


def query_batch(ids: NDArray[np.int32], computes: Computing) -> TokenBatch:
    """One query, on the CPU."""
    return batch_of([ids], None if computes.device is None else "cpu")
