"""A training step as a CUDA graph: recorded once, then replayed without launch overhead. Texts are
padded to the model's longest. Word vectors are looked up before the replay and get their gradients
after it, because a graph cannot record which rows a batch needs. Long runs compile the model first.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassrank.models import Output, Ranker, TokenBatch, TokenEmbeddings
from glassrank.research.train.batches import Examples
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.state import RunProgress
from glassrank.research.train.step import Step, batch_targets, encoder_names, uses_embedding_table

_WARM_UPS = 3  # calls before recording: they compile and fill caches
_WORTH_COMPILING = 1000  # from this many steps on, compiling, half a minute, pays off


class CudaGraphStep(Step):
    """The same step for batches of one shape. On a CPU, for tests, nothing is recorded."""

    def __init__(
        self,
        model: Ranker,
        optimizers: dict[str, Optimizer],
        config: TrainConfig,
        examples: Examples,
        vector_teacher: Ranker | None = None,
    ) -> None:
        super().__init__(model, optimizers, config, vector_teacher=vector_teacher)
        self._inputs = self._look_up(examples)
        self._static_inputs = [_make_static(read) for read in self._inputs]
        self._static_targets = [given.clone() for given in batch_targets(examples)]
        self._graph: torch.cuda.CUDAGraph | None = None
        if examples.grades.is_cuda:
            self._value = self._record()

    def gradients(self, examples: Examples) -> Tensor:
        """As the plain step; `update` computes gradients of the embedding table."""
        self._inputs = self._look_up(examples)
        kept = chain(*self._static_inputs, self._static_targets)
        given = chain(*self._inputs, batch_targets(examples))
        with torch.no_grad():
            for here, new in zip(kept, given, strict=True):
                here.copy_(new, non_blocking=True)
        if self._graph is None:
            return self._compute_static()
        self._graph.replay()
        return self._value

    def update(self, progress: RunProgress) -> None:
        """As the plain step, after the gradients of the embedding table."""
        (query, *_), (doc, *_) = self._inputs
        if self._model.words is not None and doc.requires_grad:
            self._model.words.zero_grad()  # of the step before
            torch.autograd.backward([query, doc], [kept[0].grad for kept in self._static_inputs])
        super().update(progress)

    def _compute_static(self) -> Tensor:
        query, doc = self._static_inputs
        for tensor in (*query, *doc):
            tensor.grad = None
        return self._compute((query, doc), self._static_targets)

    def _record(self) -> Tensor:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._compute_static()  # a model's lazy buffers exist before it is compiled
        with compile_if_long(self._model, self._config), torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._compute_static()
            with _forbid_synchronization():
                self._compute_static()
            torch.cuda.current_stream().synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                value = self._compute_static()
        torch.cuda.current_stream().wait_stream(stream)
        return value


def _make_static(read: Any) -> Any:
    """Copies to be overwritten by each batch; trained vectors have gradients."""
    return type(read)(*(part.detach().clone().requires_grad_(part.requires_grad) for part in read))


def compile_if_long(model: Ranker, config: TrainConfig) -> AbstractContextManager[None]:
    """Compile the model inside the block if the run is long enough."""
    return compile_model(model) if config.optimizer.steps >= _WORTH_COMPILING else nullcontext()


@contextmanager
def compile_model(model: Ranker, *, broken_calls_stay: bool = True) -> Iterator[None]:
    """Compile the model's calls inside the block; one that cannot be compiled stays."""
    from torch import _dynamo

    with _dynamo.config.patch(suppress_errors=broken_calls_stay), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler reads missing gradients
        _dynamo.reset()  # drop what an earlier run compiled
        kind = TokenEmbeddings if uses_embedding_table(model) else TokenBatch
        calls = {
            name: _compile_encoder(getattr(model, name), kind) for name in encoder_names(model)
        }
        for name, call in (calls | {"interact": _compile_interaction(model.interact)}).items():
            setattr(model, name, call)
        try:
            yield
        finally:
            for name in (*calls, "interact"):
                delattr(model, name)


# Compiled with plain tensors as inputs and outputs: not every compiler takes named tuples.
def _compile_encoder(
    encode: Callable[[Any], TokenEmbeddings], kind: type[Any]
) -> Callable[[Any], TokenEmbeddings]:
    fast = torch.compile(lambda *parts: tuple(encode(kind(*parts))), dynamic=False)
    return lambda texts: TokenEmbeddings(*fast(*texts))


def _compile_interaction(
    interact: Callable[[TokenEmbeddings, TokenEmbeddings], Output],
) -> Callable[[TokenEmbeddings, TokenEmbeddings], Output]:
    """Compile the score alone: nothing else of the output is used."""

    def scores(*parts: Tensor) -> Any:
        return interact(TokenEmbeddings(*parts[:3]), TokenEmbeddings(*parts[3:])).score

    fast = torch.compile(scores, dynamic=False)
    return lambda query, doc: Output(fast(*query, *doc), {})


@contextmanager
def _forbid_synchronization() -> Iterator[None]:
    """Raise an error inside the block on GPU synchronization, which breaks a recording."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that it may miss some
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
