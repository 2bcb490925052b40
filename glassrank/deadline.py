"""Budgets and deadlines: work that is done in steps checks its deadline between them."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from glassrank.errors import GlassrankError, InputError

Clock = Callable[[], float]
"""Returns milliseconds since a fixed moment."""


def now() -> float:
    """Milliseconds on a monotonic clock."""
    return time.perf_counter_ns() / 1e6


def thread_time() -> float:
    """Milliseconds of CPU time of this thread."""
    return time.thread_time_ns() / 1e6


def check_budget(budget_ms: Any) -> None:
    """A budget is None, for no limit, or a number above 0."""
    if budget_ms is None:
        return
    number = isinstance(budget_ms, Real) and not isinstance(budget_ms, bool)
    if not number or math.isnan(budget_ms) or budget_ms <= 0:
        raise InputError(f"the budget must be more than 0 milliseconds, not {budget_ms!r}")


class LateError(GlassrankError):
    """The time is not enough for work of which a part is of no use."""

    code = "too_late"


def late_error(what: str) -> LateError:
    """The error for work that does not end in time."""
    return LateError(f"there was not enough time for {what}; ask for less, or allow more time")


@dataclass(frozen=True)
class Deadline:
    """The moment, in milliseconds of `clock`, by which work must end; infinite without a budget."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, budget_ms: float | None, clock: Clock = now) -> "Deadline":
        """`budget_ms` from now; never for None."""
        return cls(clock, float("inf") if budget_ms is None else clock() + budget_ms)

    def remaining(self) -> float:
        """Milliseconds until the deadline; infinite if there is none."""
        return self.at - self.clock()

    def has_passed(self) -> bool:
        """Whether no time remains."""
        return self.remaining() <= 0

    def earlier(self, ms: float) -> "Deadline":
        """A deadline that is `ms` before this one."""
        return Deadline(self.clock, self.at - ms)

    def or_thread_time(self, ms: float) -> "Deadline":
        """This deadline, or the moment when this thread has used `ms` of CPU time."""
        began, ahead = now(), self.at - ms - thread_time()

        def clock() -> float:
            moment = self.clock()
            # CPU time cannot exceed elapsed time, and reading it is slow: skip it while possible.
            if self.at - moment <= ms - (now() - began):
                return moment
            return max(moment, ahead + thread_time())

        return Deadline(clock, self.at)

    def share(self, fraction: float) -> "Deadline":
        """The end of this fraction of the remaining time."""
        return Deadline(self.clock, self.clock() + fraction * self.remaining())

    def check(self, what: str) -> None:
        """Raises a `LateError` if the deadline has passed: for work that must be complete."""
        if self.has_passed():
            raise late_error(what)


NEVER = Deadline(now, float("inf"))
"""No deadline."""
