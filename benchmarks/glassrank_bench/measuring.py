"""How benchmarks measure, and what they give: medians in turn, a figure beside what it should be
at least, or why there is none."""

import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from glassrank.deadline import now

Work = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """One line of the table. `target` is a least value, or a greatest where `at_most` says so."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = False
    details: dict[str, float | str] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclass(frozen=True)
class Skipped:
    name: str
    why: str


class MissingError(Exception):
    """What a case needs is not here: it is skipped by name, never counted."""


def peer(name: str) -> Any:
    """A module of somebody else's, to be measured against."""
    try:
        return import_module(name)
    except ImportError as error:  # it is not there, or something that it needs is not
        raise MissingError(f"no {name} ({error}); pip install 'glassrank[bench]'") from None


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], Sequence[Result]]


def run_cases(cases: Sequence[Case]) -> Iterator[Result | Skipped]:
    for case in cases:
        try:
            yield from case.run()
        except MissingError as missing:
            yield Skipped(case.name, str(missing))


def processor() -> str:
    """Its name, as far as this machine tells."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """The processor and what is used of it."""
    text = f"{processor()}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        text += f"; {torch.cuda.get_device_name()}"
    return text


def medians_ms(works: Sequence[Work], repeats: int = 7, warm_ups: int = 1) -> list[float]:
    """Of several things in turn, after a warm-up: what disturbs one disturbs the others too."""
    for work in works:
        for _ in range(warm_ups):
            work()
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for times, work in zip(taken, works, strict=True):
            began = now()
            work()
            times.append(now() - began)
    return [statistics.median(times) for times in taken]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
