"""A training step as a CUDA graph: what many small launches do is recorded once and replayed.

A step's tensors have one shape, so texts are padded to the longest that the model reads. Word
vectors are looked up before the replay, and their gradients brought back to the table after it:
the table's rows differ from batch to batch, and which they are cannot be recorded. For a long run,
what is recorded is compiled first, so that chains of sums and products are one pass over memory.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassrank.models import Output, Ranker, TokenBatch, TokenEmbeddings
from glassrank.research.train.batches import Examples
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.state import RunProgress
from glassrank.research.train.step import (
    Step,
    batch_loss,
    clip,
    encoders_of,
    given_beside,
    shares_words,
)

_WARM_UPS = 3
"""Plain calls before recording: they compile what must be compiled and fill the caches."""


_WORTH_COMPILING = 1000
"""Steps of a run: compiling takes half a minute, which shorter ones do not bring in again."""


class RecordedStep(Step):
    """The same step for batches of one shape. On a CPU nothing is recorded, and the calls are made
    one by one: for tests."""

    def __init__(
        self,
        model: Ranker,
        optimizers: dict[str, Optimizer],
        config: TrainConfig,
        examples: Examples,
        whole: Ranker | None = None,
    ) -> None:
        super().__init__(model, optimizers, config, whole=whole)
        self._read = self._looked_up(examples)
        self._kept = [_kept(read) for read in self._read]
        self._beside = [given.clone() for given in given_beside(examples)]
        self._graph: torch.cuda.CUDAGraph | None = None
        if examples.grades.is_cuda:
            self._value = self._record()

    def gradients(self, examples: Examples) -> Tensor:
        """As the plain step, but for those of word vectors: `update` brings them to the table."""
        self._read = self._looked_up(examples)
        with torch.no_grad():
            for kept, read in zip(self._kept, self._read, strict=True):
                for here, given in zip(kept, read, strict=True):
                    here.copy_(given, non_blocking=True)
            for here, given in zip(self._beside, given_beside(examples), strict=True):
                here.copy_(given, non_blocking=True)
        if self._graph is None:
            return self._compute()
        self._graph.replay()
        return self._value

    def update(self, progress: RunProgress) -> None:
        """As the plain step, with the table's gradients of this batch."""
        (query, *_), (doc, *_) = self._read
        if doc.requires_grad:  # words' vectors; the table's own gradients are of the last step
            for name, parameter in self._model.named_parameters():
                if name.startswith("words."):
                    parameter.grad = None
            torch.autograd.backward([query, doc], [kept[0].grad for kept in self._kept])
        super().update(progress)

    def _compute(self) -> Tensor:
        """Loss and gradients of what stands in the kept tensors."""
        for tensor in (*self._model.parameters(), *(part for kept in self._kept for part in kept)):
            tensor.grad = None
        query, doc = self._kept
        value = batch_loss(self._model, self._whole, self._config, (query, doc), self._beside)
        torch.autograd.backward(value)
        clip(self._model, self._config.optimizer.clip)
        return value.detach()

    def _record(self) -> Tensor:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._compute()  # what a model makes once is there before the compiler sees it
        with compiled_if_long(self._model, self._config), torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._compute()
            with _never_waiting():
                self._compute()
            torch.cuda.current_stream().synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                value = self._compute()
        torch.cuda.current_stream().wait_stream(stream)
        return value


def _kept(read: Any) -> Any:
    """Tensors of the same shapes, to be written over; vectors that are trained have gradients."""
    return type(read)(*(part.detach().clone().requires_grad_(part.requires_grad) for part in read))


def compiled_if_long(model: Ranker, config: TrainConfig) -> AbstractContextManager[None]:
    """Inside, the model is compiled if a run has enough steps for it."""
    return compiled(model) if config.optimizer.steps >= _WORTH_COMPILING else nullcontext()


@contextmanager
def compiled(model: Ranker, *, broken_calls_stay: bool = True) -> Iterator[None]:
    """Inside, the model's three calls are compiled for the shapes that they meet. What the compiler
    cannot do stays as it is."""
    from torch import _dynamo

    with _dynamo.config.patch(suppress_errors=broken_calls_stay), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler looks at gradients that are not there
        _dynamo.reset()  # what an earlier run compiled is of no more use
        kind = TokenEmbeddings if shares_words(model) else TokenBatch
        calls: dict[str, Callable[..., object]] = {
            name: _on_tensors(getattr(model, name), kind) for name in encoders_of(model)
        }
        calls["interact"] = _scores_alone(model.interact)
        for name, call in calls.items():
            setattr(model, name, call)
        try:
            yield
        finally:
            for name in calls:
                delattr(model, name)


def _on_tensors(
    encode: Callable[[Any], TokenEmbeddings], kind: type[Any]
) -> Callable[[Any], TokenEmbeddings]:
    """Tensors in and out: named tuples are not for every compiler."""

    def encoded(*parts: Tensor) -> tuple[Tensor, ...]:
        return tuple(encode(kind(*parts)))

    fast = torch.compile(encoded, dynamic=False)
    return lambda texts: TokenEmbeddings(*fast(*texts))


def _scores_alone(
    interact: Callable[[TokenEmbeddings, TokenEmbeddings], Output],
) -> Callable[[TokenEmbeddings, TokenEmbeddings], Output]:
    """What nobody reads of an output need not be computed."""

    def scores(*parts: Tensor) -> Tensor:
        score: Tensor = interact(TokenEmbeddings(*parts[:3]), TokenEmbeddings(*parts[3:])).score
        return score

    fast = torch.compile(scores, dynamic=False)
    return lambda query, doc: Output(fast(*query, *doc), {})


@contextmanager
def _never_waiting() -> Iterator[None]:
    """Inside, whatever waits for the GPU is an error: it would spoil a recording half made."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it does not find all of them
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
