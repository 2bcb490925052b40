"""Counts and times for Prometheus, summed over the worker processes."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that tells prometheus-client where workers share their metrics."""

_PREFIX = "glassrank-metrics-"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.06, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_DEPTHS = (0, 1, 10, 25, 50, 100, 250, 500, 1000)


class Metrics:
    """The metrics of the service, under the names that Prometheus reads."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def count(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"glassrank_{name}", about, labels, registry=registry)

        def observe(name: str, about: str, label: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(
                f"glassrank_{name}", about, [label], buckets=buckets, registry=registry
            )

        def gauge(name: str, about: str, mode: Any, *labels: str) -> Gauge:
            return Gauge(
                f"glassrank_{name}", about, labels, multiprocess_mode=mode, registry=registry
            )

        self.requests = count("requests", "Requests.", "route", "status")
        self.shed = count("requests_shed", "Requests refused under load.", "queue", "reason")
        self.overruns = count(
            "budget_overruns", "Requests whose response ended after their budget.", "route"
        )
        self.seconds = observe(
            "request_seconds", "From a request's arrival to its response's end.", "route", _SECONDS
        )
        self.depth = observe(
            "reranked_depth", "Candidates of a query that were re-ranked.", "model", _DEPTHS
        )
        self.granted = observe(
            "granted_seconds",
            "The part of its budget that a query got when it began: less while others wait.",
            "model",
            _SECONDS,
        )
        self.queue = gauge("queue_length", "Requests that wait for a thread.", "livesum", "queue")
        self.generation = gauge(
            "index_generation", "Of the loaded index; the oldest of all workers.", "livemin"
        )
        self.documents = gauge("index_documents", "In the loaded index.", "livemin")
        self.interleaving_wins = gauge(
            "interleaving_wins", "Searches whose first click was on this model's.", "max", "model"
        )
        self.interleaving_share = gauge(
            "interleaving_share", "Of wins: the second model's, and its interval.", "max", "end"
        )
        self.behind = gauge("index_behind", "1 if a newer index cannot be loaded yet.", "livemax")

    def show_interleaving(self, state: Mapping[str, Any]) -> None:
        """As `Interleaving.state` has it."""
        for model, wins in zip(state["models"], state["wins"], strict=True):
            self.interleaving_wins.labels(model).set(wins)
        for end, value in zip(("low", "high"), state["interval"], strict=True):
            self.interleaving_share.labels(end).set(value)

    def text(self) -> bytes:
        """In Prometheus' format."""
        folder = os.environ.get(SHARED_FOLDER)
        if not folder:
            return generate_latest(self._registry)
        _remove_dead_workers(Path(folder))
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone, folder)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)


@contextmanager
def shared_folder() -> Iterator[None]:
    """A folder for the workers' metrics; removes those of killed processes."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError, ValueError):
            if left.lstat().st_uid == os.getuid() and not Path("/proc", str(int(owner))).exists():
                remove_shared(left)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        os.environ[SHARED_FOLDER] = folder
        yield


def remove_shared(folder: Path) -> None:
    """Removes the folder of a process that has ended."""
    if Path("/proc").exists() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def _remove_dead_workers(folder: Path) -> None:
    for path in folder.glob("gauge_live*.db"):
        worker = path.stem.rpartition("_")[2]
        if not Path("/proc", worker).exists() and Path("/proc").exists():
            with suppress(FileNotFoundError):
                mark_process_dead(worker, str(folder))  # type: ignore[no-untyped-call]
