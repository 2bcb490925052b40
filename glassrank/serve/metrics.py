"""Counts and times for Prometheus, summed over the worker processes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where workers keep their numbers for each other; prometheus-client reads this variable."""

_PREFIX = "glassrank-metrics-"

_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.06, 0.075, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_DEPTHS = (0, 1, 10, 25, 50, 100, 250, 500, 1000)


class Metrics:
    """Everything that is counted, under the names that Prometheus reads."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "glassrank_requests", "Requests.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "glassrank_request_seconds",
            "From a request's arrival to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.depth = Histogram(
            "glassrank_reranked_depth",
            "How many candidates of a query were re-ranked.",
            ["model"],
            buckets=_DEPTHS,
            registry=registry,
        )
        self.granted = Histogram(
            "glassrank_granted_seconds",
            "Of its budget, what a query was granted once it began: less while others wait.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue = Gauge(
            "glassrank_queue_length",
            "Requests that wait for a thread.",
            ["queue"],
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.refusals = Counter(
            "glassrank_requests_shed",
            "Requests refused under load.",
            ["queue", "reason"],
            registry=registry,
        )
        self.overruns = Counter(
            "glassrank_budget_overruns",
            "Requests that were answered after their budget.",
            ["route"],
            registry=registry,
        )
        self.generation = Gauge(
            "glassrank_index_generation",
            "Of the index that is served; the oldest of all workers.",
            multiprocess_mode="livemin",
            registry=registry,
        )
        self.documents = Gauge(
            "glassrank_index_documents",
            "In the index that is served.",
            multiprocess_mode="livemin",
            registry=registry,
        )
        self.behind = Gauge(
            "glassrank_index_behind",
            "1 if there is a newer index that cannot be served yet.",
            multiprocess_mode="livemax",
            registry=registry,
        )

    def text(self) -> bytes:
        """As Prometheus reads it."""
        folder = os.environ.get(SHARED_FOLDER)
        if not folder:
            return generate_latest(self._registry)
        _forget_the_dead(Path(folder))
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone, folder)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)


@contextmanager
def shared_folder() -> Iterator[None]:
    """A folder for the numbers of this process's workers, as long as there are any. What processes
    that were killed have left is removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError, ValueError):
            if left.lstat().st_uid == os.getuid() and not Path("/proc", str(int(owner))).exists():
                remove_shared(left)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        os.environ[SHARED_FOLDER] = folder
        yield


def remove_shared(folder: Path) -> None:
    """Of a process that has gone."""
    if Path("/proc").exists() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def _forget_the_dead(folder: Path) -> None:
    """What a worker that is gone had in its queue is gone, too."""
    for path in folder.glob("gauge_live*.db"):
        worker = path.stem.rpartition("_")[2]
        if not Path("/proc", worker).exists() and Path("/proc").exists():
            with suppress(FileNotFoundError):
                mark_process_dead(worker, str(folder))  # type: ignore[no-untyped-call]
