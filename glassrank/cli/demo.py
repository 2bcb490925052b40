"""`glassrank demo`: search the documentation of the Python that runs it.

Nobody waits for more than the index: models read the best few documents as they are, within the
budget, until all are encoded. Behind the page, documents are encoded for the fast model, then for
the stronger one, and judged questions measured on this machine, for the Budget and Queries views. A
process of its own does it once: on one core, at the lowest priority, for a bounded time, and not
while somebody searches. It ends with the demo, and documents of a store, or a report, appear all at
once or not at all.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from glassrank.cli import console

MODELS = ("fast", "default")
"""The first orders all candidates, the second the best of them."""
NAMES = ("clusters.json", "budget.json")
_DEPTH = 100
_CLUSTERS = 8  # of 60 questions the elbow would make three, which tell nothing apart
_MEASURES = ["nDCG@10", "RR@10", "R@10"]
_REPEATS = 3
_MOST_SECONDS = 1800
_QUIET_SECONDS = 3.0
"""That nobody has searched for, before measuring goes on."""
_CAN_PAUSE = hasattr(signal, "SIGSTOP")  # Windows cannot
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "TOKENIZERS_PARALLELISM"), "1"
)
_BEHIND = "Documents are being encoded behind the page; results get deeper until that is done"
_AFTERWARDS = "Documents are encoded after these answers; then come deeper ones"


def demo(
    query: Annotated[
        list[str] | None, typer.Argument(help="Queries to answer instead of the samples.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Answer and end; so it does with no terminal.")
    ] = False,
    method: console.ModelsMethod = None,
    budget_ms: Annotated[float, typer.Option(min=1, help="For each query.")] = 50.0,
    k: Annotated[int, typer.Option("--k", "-k", help="How many results for each.")] = 3,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the search page.")] = 8000,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Index again.")] = False,
    quiet: console.Quiet = False,
) -> None:
    """Search the documentation of this Python, on a page or with sample queries."""
    index = _index(rebuild=rebuild, quiet=quiet)
    _remove_old_stores(index)
    if query or once or not sys.stdout.isatty():
        _answer(index, query or (), method, budget_ms, k, quiet=quiet)
    else:
        _serve(index, method, budget_ms, port, quiet=quiet)


def _serve(index: Path, method: str | None, budget_ms: float, port: int, *, quiet: bool) -> None:
    """The page, with questions to click. When it is up, all else begins behind it; the service
    takes up each store when it is there."""
    from glassrank.corpus import SAMPLE_QUERIES
    from glassrank.models.io.load import load_for_inference
    from glassrank.models.io.model_folder import fingerprint
    from glassrank.serve import Options, serve
    from glassrank.serve.options import named_models, read_api_key

    reports = DemoReports(index, [fingerprint(load_for_inference(name).model) for name in MODELS])
    clusters, curves = reports.paths()
    options = Options(
        index=index,
        models=named_models(list(MODELS)),
        cascade=True,
        port=port,
        budget_ms=budget_ms,
        method=method,
        api_key=read_api_key(None),
        clusters=clusters,
        curves=curves,
        reports_pending=True,
        on_request=reports.give_way,
        samples=SAMPLE_QUERIES,
        subject=f"the documentation of Python {platform.python_version()}: its language reference "
        "and what its standard library says of itself",
    )

    def started(address: str) -> None:
        console.say(f"Serving {_short(index)} at {address}", quiet=quiet)
        if reports.missing():
            console.say(_BEHIND, quiet=quiet)
            reports.start()

    console.say("Opening the index and the models …", quiet=quiet)
    try:
        serve(options, started)
    finally:
        reports.stop()


def _answer(
    path: Path, query: Sequence[str], method: str | None, budget_ms: float, k: int, *, quiet: bool
) -> None:
    """First answers, then encodes for the fast model, and answers again: nothing can go on behind a
    command that has ended, and no later one would ever go deeper. Whoever ends it early has the
    first answers, and what was encoded is kept."""
    from glassrank.cli.encode import encode
    from glassrank.cli.search import show, timing_line
    from glassrank.corpus import SAMPLE_QUERIES
    from glassrank.rerank import Pipeline

    def answered() -> bool:
        """Whether it was from stored documents."""
        # The first search on a machine compiles it; what is timed is what every later one takes.
        with console.working("Preparing the search", quiet=quiet):
            pipeline = Pipeline.open(path, MODELS, budget_ms=budget_ms, method=method)
            pipeline("warm up", k)
        first = pipeline.stages[0]
        stored = first.store is not None and not first.num_missing
        if not stored:
            console.say(_AFTERWARDS, quiet=quiet)
        for text in query or SAMPLE_QUERIES:
            ranking = pipeline(text, k)
            console.out.print(f"\n[bold green]{escape(text)}[/]  [dim]{timing_line(ranking)}[/]")
            show(pipeline.index, ranking)
        command = f'{_program()} search {_short(path)} "split a string into words" --model fast'
        console.out.print(f"\nAsk your own: [bold]{command}[/]", soft_wrap=True)
        return stored

    if not answered():
        encode(path, "fast", quiet=quiet)
        console.say("The same questions, now that documents are stored", quiet=quiet)
        answered()


def _remove_old_stores(index: Path) -> None:
    """Those of earlier versions: the demo made them, and makes them again."""
    from glassrank.embeddings.manifest import OldStoreError, read_manifest, stores_of

    for folder in stores_of(index):
        try:
            read_manifest(folder)
        except OldStoreError:
            shutil.rmtree(folder)


def _index(*, rebuild: bool, quiet: bool) -> Path:
    """Kept between runs, for each Python, choice of its documents and version of the package."""
    from glassrank import __version__
    from glassrank.corpus import CORPUS, python_docs
    from glassrank.errors import GlassrankError
    from glassrank.index import Index

    path = _folder() / f"python-{platform.python_version()}-{CORPUS}-{__version__}.index"
    if not rebuild:
        try:
            index = Index(path)
            console.say(f"{len(index):,} documents in {_short(path)}", quiet=quiet)
            return path
        except GlassrankError:
            pass  # not there yet, or no longer readable: made anew below
    started = time.perf_counter()
    docs = console.track(
        python_docs(),
        f"Indexing the documentation of Python {platform.python_version()}",
        quiet=quiet,
    )
    index = Index.build(docs, path, overwrite=True)
    console.say(
        f"Indexed {len(index):,} documents of Python {platform.python_version()} "
        f"in {time.perf_counter() - started:.1f} s: {_short(path)}",
        quiet=quiet,
    )
    return path


def _program() -> str:
    """How this program is called here: by name, or by its path where the name is not found."""
    return "glassrank" if shutil.which("glassrank") else os.path.relpath(sys.argv[0])


def _short(path: Path) -> str:
    """With ~ for the home folder, as the shell understands it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _folder() -> Path:
    """The user's cache, or a temporary folder where there is none to write to."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassrank"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return cache
    except OSError:
        return Path(tempfile.mkdtemp(prefix="glassrank-"))


class DemoReports:
    """The stores of one index, and its reports on the last model, in a folder beside it."""

    def __init__(self, index: Path, fingerprints: Sequence[str]) -> None:
        """With those of all models."""
        self._index, self._fingerprints = index, fingerprints
        self.folder = index.with_suffix(f".{fingerprints[-1][:12]}.reports")
        self._process: subprocess.Popen[bytes] | None = None
        self._resume: threading.Timer | None = None

    def paths(self) -> Sequence[Path]:
        """Where they will be, whether they are there yet or not."""
        return [self.folder / name for name in NAMES]

    def missing(self) -> bool:
        """Whether there is anything to do; no model is loaded for it, the page is about to open."""
        from glassrank.embeddings import Store
        from glassrank.embeddings.manifest import read_manifest, stores_of
        from glassrank.index import Index

        snapshot = Index(self._index).snapshot
        stores = [
            Store.open(folder, read_manifest(folder).layout.fingerprint, verify=False)
            for folder in stores_of(self._index)
        ]
        whole = {store.layout.fingerprint for store in stores if not store.count_missing(snapshot)}
        encoded = whole.issuperset(self._fingerprints)
        return not (encoded and all(path.exists() for path in self.paths()))

    def start(self) -> None:
        """Begins, and returns at once."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._index), str(self.folder)],
            stdin=subprocess.PIPE,  # its end tells the process that the demo has ended
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for the demo, which then stops this in order
        )

    def give_way(self, seconds: float = _QUIET_SECONDS) -> None:
        """Pauses the process until nobody has asked for anything for so long: what it measures is
        never worth a person's time, and a pause spoils one figure of a median at most."""
        if self._process is None or self._process.poll() is not None or not _CAN_PAUSE:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._process.send_signal(signal.SIGSTOP)
        self._resume = threading.Timer(seconds, self._go_on)
        self._resume.daemon = True
        self._resume.start()

    def _go_on(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
        if self._process is not None and self._process.poll() is None and _CAN_PAUSE:
            self._process.send_signal(signal.SIGCONT)

    def stop(self, seconds: float = 3.0) -> None:
        """Ends the process that makes them, in time to clear away what it had begun."""
        if self._process is None:
            return
        self._go_on()  # one that is paused would not hear that it is to end
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
    from glassrank.cli.runs import rerank, retrieve
    from glassrank.corpus import PYTHON_QUESTIONS

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
    """What the process behind the page does: it gives way to all else, and never outlives it."""
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
