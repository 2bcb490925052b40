"""A function of tensors as a CUDA graph: many small launches become one.

A query is a few words: on a GPU, its encoding takes less time than asking for each of the steps.
So the steps are recorded once for each shape of the inputs, and from then on replayed as a whole.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

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
