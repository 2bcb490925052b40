"""One query encoded as fast as the machine can: by compiled code, or by one replayed graph."""

import threading
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from glassrank.models.contract import Ranker, TokenBatch, Words
from glassrank.models.fast import query_form
from glassrank.nn.gpu.graphs import Replayed, pad_to
from glassrank.nn.threads import one_thread

_LENGTHS = (8, 16, 32)
"""On a GPU, queries are padded to the next of these: each is recorded once, beforehand."""


class QueryEncoder:
    """`encode_query` of a model, for one query at a time; several threads may call it."""

    def __init__(self, model: Ranker, longest: int, *, exact: bool = False) -> None:
        """No query is longer than `longest`. `exact` encodes with the layers as they are; otherwise
        they are rounded where that is faster."""
        self._encoding = model.encode_query if exact else _fastest(model, longest)
        self._device = next(model.parameters()).device
        self._lock = threading.Lock()
        self._lengths = sorted({min(length, longest) for length in _LENGTHS} | {longest})
        self._replayed: Replayed[Words] | None = None
        # Other models only look words up: one step, which a recording would not shorten.
        if self._device.type == "cuda" and model.stores_words:
            self._replayed = Replayed(self._encode, self._device)
            for length in self._lengths:
                self(TokenBatch(torch.ones(1, length, dtype=torch.long), torch.ones(1, length)))

    @torch.no_grad()
    def __call__(self, query: TokenBatch) -> Words:
        """A query (1, Q) on the CPU to its words (1, Q, …) where the model is."""
        if self._replayed is not None:
            return self._replay(self._replayed, query)
        # A few words are no work for two threads, and on a busy machine one waits long for another.
        with one_thread():
            return self._encode(*(tensor.to(self._device) for tensor in query))

    def _replay(self, replayed: Replayed[Words], query: TokenBatch) -> Words:
        padded = [pad_to(tensor, self._lengths) for tensor in query]
        length = query.ids.shape[1]
        with self._lock:  # a recording has one place for what goes in, and one for what comes out
            return Words(*(tensor[:, :length].clone() for tensor in replayed(*padded)))

    def _encode(self, ids: Tensor, mask: Tensor) -> Words:
        return self._encoding(TokenBatch(ids, mask))


def _fastest(model: Ranker, longest: int) -> Callable[[TokenBatch], Words]:
    if next(model.parameters()).is_cuda and find_spec("triton"):
        from glassrank.models.fast_gpu import QueriesOnGPU, StoredMORES
        from glassrank.nn.gpu.query_layers import LONGEST_QUERY

        fast = StoredMORES.of(model) or QueriesOnGPU.of(model)
        if fast is not None and longest <= LONGEST_QUERY:
            return fast.encode_query
    return query_form(model).encode_query
