"""Progress of long work, line by line."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

Item = TypeVar("Item")
_LINE_SECONDS = 10.0


def say_progress(
    items: Iterable[Item],
    what: str,
    total: int | None,
    say: Callable[[str], None],
    *,
    at_once: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """Yield the items, each of which is `at_once` of the total. Say every ten seconds how many are
    done and, if the total is known, about how long the rest will take."""
    started = last = clock()
    for number, item in enumerate(items):
        count, now = number * at_once, clock()
        if now - last >= _LINE_SECONDS:
            last, speed = now, count / (now - started)
            line = f"{what}: {count:,}"
            if total is not None:
                line += f" of {total:,}"
            line += f", {speed:,.0f} a second"
            if total is not None and count:
                line += f", {timedelta(seconds=round((total - count) / speed))} left"
            say(line)
        yield item
