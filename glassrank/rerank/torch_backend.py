"""Models as PyTorch computes them: any family, on a CPU or a GPU.

On a GPU, queries are encoded by CUDA graphs: a query has a few tokens, and launching each kernel
takes longer than computing it. So the kernels are recorded once for each shape of the inputs, and
replayed as a whole from then on.
"""

import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from glassrank.backends.threads import single_thread
from glassrank.deadline import Deadline
from glassrank.models.model import TokenBatch, TokenEmbeddings, to_array
from glassrank.models.torch_models import Ranker, to_device

Result = TypeVar("Result")

_WARM_UPS = 3
"""Plain calls before recording: they compile what must be compiled and fill the caches."""


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]


class Replayed(Generic[Result]):
    """Calls `function` on `device`: by replaying it on a GPU, plainly elsewhere.

    Inputs may come from anywhere. On a GPU the function must depend on nothing else but tensors
    that stay where they are, and must not wait for a value; what it returns belongs to the
    recording, and the next call with inputs of the same shapes writes over it. Not for several
    threads at once.
    """

    def __init__(self, function: Callable[..., Result], device: torch.device | str) -> None:
        self._function = function
        self._device = torch.device(device)
        self._recordings: dict[tuple[object, ...], tuple[_Recording, Result]] = {}

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> Result:
        """Replays the recording for these shapes; records it first if there is none."""
        if self._device.type != "cuda":
            return self._function(*(given.to(self._device) for given in inputs))
        shapes = tuple((given.shape, given.dtype) for given in inputs)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(inputs)
        recording, result = self._recordings[shapes]
        for recorded, given in zip(recording.inputs, inputs, strict=True):
            recorded.copy_(given, non_blocking=True)
        recording.graph.replay()
        return result

    def _record(self, inputs: Sequence[Tensor]) -> tuple[_Recording, Result]:
        with torch.cuda.device(self._device):
            recorded = tuple(given.to(self._device, copy=True) for given in inputs)
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    self._function(*recorded)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = self._function(*recorded)
        return _Recording(graph, recorded), result


def pad_to(rows: Tensor, lengths: Sequence[int]) -> Tensor:
    """Rows (B, L) with zeros at the end, up to the first of the ascending `lengths` that holds
    them: few lengths need few recordings. Rows longer than all of these stay as they are."""
    fitting = next((length for length in lengths if length >= rows.shape[1]), rows.shape[1])
    return functional.pad(rows, (0, fitting - rows.shape[1]))


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
        self._replayed: Replayed[TokenEmbeddings] | None = None
        # Other models only look tokens up: one step, which a recording would not shorten. Words of
        # n-grams cannot be recorded: how many there are is asked for, and unseen ones come later.
        fixed = not any(getattr(part, "has_ngrams", False) for part in model.modules())
        if self._device.type == "cuda" and model.info.stores_embeddings and fixed:
            self._replayed = Replayed(self._encode, self._device)
            for length in self._lengths:
                self(TokenBatch(torch.ones(1, length, dtype=torch.long), torch.ones(1, length)))

    @torch.no_grad()
    def __call__(self, query: TokenBatch) -> TokenEmbeddings:
        """A query (1, Q) on the CPU to its words (1, Q, …) where the model is."""
        if self._replayed is not None:
            return self._replay(self._replayed, query)
        # A few words are no work for two threads, and on a busy machine one waits long for another.
        with single_thread():
            return self._encode(*(tensor.to(self._device) for tensor in query))

    def _replay(self, replayed: Replayed[TokenEmbeddings], query: TokenBatch) -> TokenEmbeddings:
        padded = [pad_to(tensor, self._lengths) for tensor in query]
        length = query.ids.shape[1]
        with self._lock:  # a recording has one place for what goes in, and one for what comes out
            return TokenEmbeddings(*(tensor[:, :length].clone() for tensor in replayed(*padded)))

    def _encode(self, ids: Tensor, mask: Tensor) -> TokenEmbeddings:
        return self._encoding(TokenBatch(ids, mask))


def _fastest(model: Ranker, longest: int) -> Callable[[TokenBatch], TokenEmbeddings]:
    if next(model.parameters()).is_cuda and find_spec("triton"):
        from glassrank.backends.gpu.query_layers import LONGEST_QUERY

        fast = model.gpu_query_encoder() if longest <= LONGEST_QUERY else None
        if fast is not None:
            return fast
    return model.encode_query


class TorchBackend:
    """A model of `models/torch_models.py`."""

    def __init__(self, model: Any, device: str, longest: int, *, exact: bool) -> None:
        both: tuple[Any, Any] = to_device(model, device, exact=exact)
        self.model, self.fast_model = both
        self.device = self.model.device
        uses_subwords = self.fast_model.info.uses_subwords
        self.dtype = next(self.fast_model.parameters()).dtype if uses_subwords else torch.float32
        is_rounded = self.device.type == "cuda" and uses_subwords
        encodes = self.fast_model if is_rounded else self.model
        self.encode_query = QueryEncoder(encodes, longest, exact=exact)

    @torch.no_grad()
    def encode_doc(self, batch: TokenBatch, deadline: Deadline) -> TokenEmbeddings:
        """All at once: PyTorch cannot be interrupted."""
        words: TokenEmbeddings = self.fast_model.encode_doc(batch)
        return words

    @torch.no_grad()
    def scores(
        self,
        query: TokenEmbeddings,
        docs: TokenEmbeddings,
        first_stage: NDArray[np.float32] | None,
        deadline: Deadline,
    ) -> NDArray[np.float32]:
        """By the model's own `interact`."""
        same = self.model.expand(query, len(docs.mask))
        docs = TokenEmbeddings(*(tensor.to(self.device) for tensor in docs))
        given = None if first_stage is None else torch.from_numpy(first_stage).to(self.device)
        return to_array(self.fast_model.rank(same, docs, given).score).astype(np.float32)
