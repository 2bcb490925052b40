"""How shards are asked, all at once, and how long they are waited for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from math import isinf
from typing import Any

from glassrank.deadline import NEVER, Deadline
from glassrank.ranking.live import Reranker
from glassrank.scale.shard import Shard, View

Questions = Mapping[int, tuple[Any, ...]]
"""What each shard, by its number, is asked."""


class Shards(ABC):
    """Those that hold the shards of an index, wherever they are."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are; an index of fewer segments does not need them all."""

    @abstractmethod
    def ask(self, call: str, questions: Questions, deadline: Deadline = NEVER) -> dict[int, Any]:
        """The answers of those that gave one in time; without a deadline, of all of them, or an
        error that says which is not there."""

    def prepare(self, views: Sequence[View], *, calibrate: bool) -> None:
        """Opens all of them before anybody asks."""
        call = "calibrated" if calibrate else "opened"
        self.ask(call, {number: (view,) for number, view in enumerate(views)})

    @abstractmethod
    def close(self) -> None:
        """Lets them go."""


class ShardServer(Shard):
    """A shard as it is asked: by the name of a call, and what goes with it."""

    def opened(self, view: View) -> None:
        """Opens a view."""
        self.prepare(view, calibrate=False)

    def calibrated(self, view: View) -> None:
        """The same, with all compiled and timed."""
        self.prepare(view, calibrate=True)


class LocalShards(Shards):
    """All of them in this process: the plain form, which a cluster must equal."""

    def __init__(
        self, count: int, models: Sequence[Reranker] = (), *, verify: bool = False
    ) -> None:
        self.shards = [ShardServer(models, verify=verify) for _ in range(count)]
        self._threads = ThreadPoolExecutor(max_workers=count)

    def __len__(self) -> int:
        return len(self.shards)

    def ask(self, call: str, questions: Questions, deadline: Deadline = NEVER) -> dict[int, Any]:
        """Each in a thread, which is left behind if no answer comes in time."""
        futures = {
            self._threads.submit(getattr(self.shards[number], call), *question): number
            for number, question in questions.items()
        }
        left = None if isinf(deadline.at) else max(0.0, deadline.left() / 1e3)
        done, _ = wait(futures, left)
        return {futures[future]: future.result() for future in done}

    def close(self) -> None:
        """Waits for what runs."""
        self._threads.shutdown()
