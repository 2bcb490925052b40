"""`glassrank demo`: search the documentation of the Python that runs it.

Behind its page, documents are encoded for the stronger model, and its judged questions measured on
this machine, for the Budget and Queries views. A process of its own does it once: on one core, at
the lowest priority, for a bounded time. It ends with the demo, and a store or a report appears
whole or not at all.
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
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from glassrank.cli import console

if TYPE_CHECKING:
    from glassrank.retrieve import Index


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
    _encode(index, quiet=quiet)
    if query or once or not sys.stdout.isatty():
        _answer(index.path, query, method, budget_ms, k, quiet=quiet)
    else:
        _serve(index.path, method, budget_ms, port, quiet=quiet)


def _serve(index: Path, method: str | None, budget_ms: float, port: int, *, quiet: bool) -> None:
    """The page, with questions to click. When it is up, the documents are encoded for the stronger
    model too, which until then reads the best few as they are; then the judged questions are
    measured."""
    from glassrank.corpus import SAMPLE_QUERIES
    from glassrank.models.checkpoint import fingerprint, load_named
    from glassrank.serve import Options, serve
    from glassrank.serve.options import named_models, read_api_key

    reports = DemoReports(index, fingerprint(load_named("default").model))
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
        reports_follow=True,
        samples=SAMPLE_QUERIES,
        subject=f"the documentation of Python {platform.python_version()}: its language reference "
        "and what its standard library says of itself",
    )

    def started(address: str) -> None:
        console.say(f"Serving {_short(index)} at {address}", quiet=quiet)
        reports.start()

    console.say("Opening the index and the models …", quiet=quiet)
    try:
        serve(options, started)
    finally:
        reports.stop()


def _answer(
    path: Path,
    query: list[str] | None,
    method: str | None,
    budget_ms: float,
    k: int,
    *,
    quiet: bool,
) -> None:
    from glassrank.cli.search import show, timing_line
    from glassrank.corpus import SAMPLE_QUERIES
    from glassrank.ranking import Pipeline

    # The first search on a machine compiles it; what is timed below is what every later one takes.
    with console.working("Preparing the search", quiet=quiet):
        pipeline = Pipeline.open(path, MODELS, budget_ms=budget_ms, method=method)
        pipeline("warm up", k)
    for text in query or SAMPLE_QUERIES:
        ranking = pipeline(text, k)
        console.out.print(f"\n[bold green]{escape(text)}[/]  [dim]{timing_line(ranking)}[/]")
        show(pipeline.index, ranking)
    command = f'{_program()} search {_short(path)} "split a string into words" --model fast'
    console.out.print(f"\nAsk your own: [bold]{command}[/]", soft_wrap=True)


def _encode(index: "Index", *, quiet: bool) -> None:
    """The document store of the fast model, once."""
    from glassrank.cli.encode import encode
    from glassrank.ranking import load
    from glassrank.store import Store
    from glassrank.store.manifest import OldStoreError, read_manifest, stores_of

    for folder in stores_of(index.path):
        try:
            read_manifest(folder)
        except OldStoreError:
            shutil.rmtree(folder)  # the demo made it, and makes it again
    store = Store.find(index, load("fast").model, verify=False)
    if store is None or store.lacks(index.snapshot):
        console.say("Encoding the documents with the fast model (once)", quiet=quiet)
        encode(index.path, "fast", quiet=quiet)


def _index(*, rebuild: bool, quiet: bool) -> "Index":
    """Kept between runs, for each Python, choice of its documents and version of the package."""
    from glassrank import __version__
    from glassrank.corpus import CORPUS, python_docs
    from glassrank.errors import GlassrankError
    from glassrank.retrieve import Index

    path = _folder() / f"python-{platform.python_version()}-{CORPUS}-{__version__}.index"
    if not rebuild:
        try:
            index = Index(path)
            console.say(f"{len(index):,} documents in {_short(path)}", quiet=quiet)
            return index
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
    return index


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
    from glassrank.cli.whole_runs import rerank, retrieve
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
