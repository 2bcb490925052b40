"""The moment by which work must be done. Whatever computes in steps looks at it between them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from glassrank.errors import GlassrankError

Clock = Callable[[], float]
"""Milliseconds since some moment."""


def now() -> float:
    """Milliseconds on a clock that never goes back."""
    return time.perf_counter_ns() / 1e6


def thread_time() -> float:
    """Milliseconds that this thread has computed: those in which others did are not counted."""
    return time.thread_time_ns() / 1e6


class LateError(GlassrankError):
    """The time is not enough for work of which a part is of no use."""

    code = "too_late"


def late_error(what: str) -> LateError:
    """In one sentence."""
    return LateError(f"there was not enough time for {what}; ask for less, or allow more")


@dataclass(frozen=True)
class Deadline:
    """The moment by which an answer is due; none at all without a budget."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, budget_ms: float | None, clock: Clock = now) -> "Deadline":
        """So many milliseconds from now; never, for None."""
        return cls(clock, float("inf") if budget_ms is None else clock() + budget_ms)

    def remaining(self) -> float:
        """Milliseconds; infinite where there is no end."""
        return self.at - self.clock()

    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining() <= 0

    def earlier(self, by: float) -> "Deadline":
        """The same end, so much sooner."""
        return Deadline(self.clock, self.at - by)

    def or_thread_time(self, ms: float) -> "Deadline":
        """This moment, or the one when the thread that calls has computed for so long: whichever
        is first."""
        began, ahead = now(), self.at - ms - thread_time()

        def clock() -> float:
            moment = self.clock()
            # No thread computes for longer than time goes by. To ask how long it did takes a while.
            if self.at - moment <= ms - (now() - began):
                return moment
            return max(moment, ahead + thread_time())

        return Deadline(clock, self.at)

    def share(self, part: float) -> "Deadline":
        """When so much of the time that is left will be gone."""
        return Deadline(self.clock, self.clock() + part * self.remaining())

    def check(self, what: str) -> None:
        """Between two steps of work that must be done whole: it ends here if it is late."""
        if self.has_passed():
            raise late_error(what)


NEVER = Deadline(now, float("inf"))
"""Of work that may take as long as it takes."""
