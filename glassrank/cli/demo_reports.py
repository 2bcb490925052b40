"""What goes on behind the demo's page: documents are encoded for the stronger model, and its judged
questions measured on this machine, for the Budget and Queries views.

A process of its own does it once: on one core, at the lowest priority, for a bounded time. It ends
with the demo, and a store or a report appears whole or not at all.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from glassrank.corpus import PYTHON_QUESTIONS

MODELS = ("fast", "default")
"""The first orders all candidates, the second the best of them."""
NAMES = ("clusters.json", "budget.json")
_DEPTH = 100
_CLUSTERS = 8  # of 60 questions the elbow would make three, which tell nothing apart
_MEASURES = ["nDCG@10", "RR@10", "R@10"]
_REPEATS = 3
_MOST_SECONDS = 1800
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "TOKENIZERS_PARALLELISM"), "1"
)


class DemoReports:
    """The reports of one index and one model, in a folder beside the index."""

    def __init__(self, index: Path, fingerprint: str) -> None:
        self._index = index
        self.folder = index.with_suffix(f".{fingerprint[:12]}.reports")
        self._process: subprocess.Popen[bytes] | None = None

    def paths(self) -> Sequence[Path]:
        """Where they will be, whether they are there yet or not."""
        return [self.folder / name for name in NAMES]

    def missing(self) -> bool:
        """Whether there is anything to do."""
        from glassrank.models.checkpoint import load_named
        from glassrank.retrieve import Index
        from glassrank.store import Store

        model = load_named(MODELS[-1]).model
        encoded = Store.find(Index(self._index), model, verify=False) is not None
        return not (encoded and all(path.exists() for path in self.paths()))

    def start(self) -> None:
        """Begins, unless all is there; returns at once."""
        if not self.missing():
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._index), str(self.folder)],
            stdin=subprocess.PIPE,  # its end tells the process that the demo has ended
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for the demo, which then stops this in order
        )

    def stop(self, seconds: float = 3.0) -> None:
        """Ends the process that makes them, in time to clear away what it had begun."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
        self._process.communicate()


def make_reports(index: Path, folder: Path, models: Sequence[str] = MODELS) -> None:
    """Stores of all models and both reports, by the same commands that a user would give."""
    from glassrank.cli.budget import budget
    from glassrank.cli.clusters import clusters
    from glassrank.cli.encode import encode
    from glassrank.cli.rerank import rerank
    from glassrank.cli.retrieve import retrieve

    queries, qrels = (str(PYTHON_QUESTIONS / name) for name in ("queries.tsv", "qrels.txt"))
    folder.mkdir(exist_ok=True)
    for model in models:
        encode(index, model, quiet=True)
    best = models[-1]
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as name:
        made = Path(name)
        first, second = made / "first.run", made / "second.run"
        retrieve(index, queries, first, depth=_DEPTH, threads=1, quiet=True)
        rerank(first, index, queries, [best], second, depth=_DEPTH, quiet=True)
        types, curves = (made / name for name in NAMES)
        clusters(second, first, queries, qrels, best, k=_CLUSTERS, json=types, quiet=True)
        types.replace(folder / types.name)
        budget(
            *(first, qrels, index, queries, list(models)),
            measure=_MEASURES,
            repeats=_REPEATS,
            json=curves,
            quiet=True,
        )
        curves.replace(folder / curves.name)


def main(index: str, folder: str) -> None:
    """What the process behind the page does: it gives way to everything else, and never outlives
    it."""
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: sys.exit(1))  # so that what was begun is cleared away
    signal.alarm(_MOST_SECONDS)
    os.nice(19)
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    make_reports(Path(index), Path(folder))


def _end_with_the_demo() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
