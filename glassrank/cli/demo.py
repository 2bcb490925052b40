"""`glassrank demo`: search the documentation of the Python that runs it.

A background process encodes the documents and evaluates judged questions for the page: once, on one
core, at the lowest priority, for a limited time. It pauses during searches and ends with the demo.
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

from glassrank import console

MODELS = ("fast", "default")
"""A cascade: the second re-ranks the best of the first."""
NAMES = ("clusters.json", "budget.json")
_DEPTH = 100
_CLUSTERS = 8  # the elbow of 60 questions would be three
_MEASURES = ["nDCG@10", "RR@10", "R@10"]
_REPEATS = 3
_MOST_SECONDS = 1800
_QUIET_SECONDS = 3.0  # pause after the last search
_CAN_PAUSE = hasattr(signal, "SIGSTOP")  # Windows cannot
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "TOKENIZERS_PARALLELISM"), "1"
)
_BEHIND = "Encoding documents in the background; results get deeper until that is done"
_AFTERWARDS = "Documents are encoded after these results; then come deeper ones"


def demo(
    query: Annotated[
        list[str] | None, typer.Argument(help="Queries instead of the samples.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Search and exit; the default without a terminal.")
    ] = False,
    method: console.ModelsMethod = None,
    budget_ms: Annotated[
        float, typer.Option(min=1, help="Budget of each query, in milliseconds.")
    ] = 50.0,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Results for each query.")] = 3,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the search page.")] = 8000,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index again.")] = False,
    quiet: console.Quiet = False,
) -> None:
    """Search the documentation of this Python, on a page or with sample queries."""
    index = _index(rebuild=rebuild, quiet=quiet)
    if query or once or not sys.stdout.isatty():
        _answer(index, query or (), method, budget_ms, k, quiet=quiet)
    else:
        _serve(index, method, budget_ms, port, quiet=quiet)


def _serve(index: Path, method: str | None, budget_ms: float, port: int, *, quiet: bool) -> None:
    """Serve the page, and start the background process when it is up."""
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
        on_request=reports.pause,
        samples=SAMPLE_QUERIES,
        subject=f"the documentation of Python {platform.python_version()}: its language reference "
        "and what its standard library says of itself",
    )

    def started(address: str) -> None:
        console.say(f"Serving {_shorten(index)} at {address}", quiet=quiet)
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
    """Search, encode for the fast model, search again; an interrupted encoding is kept."""
    from glassrank.cli.encode import encode
    from glassrank.cli.search import show, timing_line
    from glassrank.corpus import SAMPLE_QUERIES
    from glassrank.rerank import Pipeline

    def search_all() -> bool:
        """Search with all queries. Whether documents came from a store."""
        # The first search on a machine compiles; do not time that.
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
        program = "glassrank" if shutil.which("glassrank") else os.path.relpath(sys.argv[0])
        command = f'{program} search {_shorten(path)} "split a string into words" --model fast'
        console.out.print(f"\nAsk your own: [bold]{command}[/]", soft_wrap=True)
        return stored

    if not search_all():
        encode(path, "fast", quiet=quiet)
        console.say("The same queries, with stored documents", quiet=quiet)
        search_all()


def _index(*, rebuild: bool, quiet: bool) -> Path:
    """The demo's index, kept for each version of Python, of the corpus and of the package."""
    from glassrank import __version__
    from glassrank.corpus import CORPUS, python_docs
    from glassrank.errors import GlassrankError
    from glassrank.index import Index

    path = _folder() / f"python-{platform.python_version()}-{CORPUS}-{__version__}.index"
    if not rebuild:
        try:
            index = Index(path)
            console.say(f"{len(index):,} documents in {_shorten(path)}", quiet=quiet)
            return path
        except GlassrankError:
            pass  # missing or unreadable: built below
    started = time.perf_counter()
    docs = console.track(
        python_docs(),
        f"Indexing the documentation of Python {platform.python_version()}",
        quiet=quiet,
    )
    index = Index.build(docs, path, overwrite=True)
    console.say(
        f"Indexed {len(index):,} documents of Python {platform.python_version()} "
        f"in {time.perf_counter() - started:.1f} s: {_shorten(path)}",
        quiet=quiet,
    )
    return path


def _shorten(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _folder() -> Path:
    """The user's cache folder, or a temporary one if that is not writable."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassrank"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return cache
    except OSError:
        return Path(tempfile.mkdtemp(prefix="glassrank-"))


class DemoReports:
    """Makes the stores of an index, and reports on the last model in a folder beside it."""

    def __init__(self, index: Path, fingerprints: Sequence[str]) -> None:
        """`fingerprints` are those of all models."""
        self._index, self._fingerprints = index, fingerprints
        self.folder = index.with_suffix(f".{fingerprints[-1][:12]}.reports")
        self._process: subprocess.Popen[bytes] | None = None
        self._resume: threading.Timer | None = None

    def paths(self) -> Sequence[Path]:
        """The paths of the reports, which may not exist yet."""
        return [self.folder / name for name in NAMES]

    def missing(self) -> bool:
        """Whether a store or report is missing. Loads no model."""
        from glassrank.embeddings import Store
        from glassrank.embeddings.manifest import list_stores, read_manifest
        from glassrank.index import Index

        snapshot = Index(self._index).snapshot
        stores = [
            Store.open(folder, read_manifest(folder).layout.fingerprint, verify=False)
            for folder in list_stores(self._index)
        ]
        whole = {store.layout.fingerprint for store in stores if not store.count_missing(snapshot)}
        encoded = whole.issuperset(self._fingerprints)
        return not (encoded and all(path.exists() for path in self.paths()))

    def start(self) -> None:
        """Start the background process."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._index), str(self.folder)],
            stdin=subprocess.PIPE,  # closes when the demo ends
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # Ctrl-C goes to the demo only
        )

    def pause(self, seconds: float = _QUIET_SECONDS) -> None:
        """Pause the process until no search has come for this long."""
        if self._process is None or self._process.poll() is not None or not _CAN_PAUSE:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._process.send_signal(signal.SIGSTOP)
        self._resume = threading.Timer(seconds, self._resume_process)
        self._resume.daemon = True
        self._resume.start()

    def _resume_process(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
        if self._process is not None and self._process.poll() is None and _CAN_PAUSE:
            self._process.send_signal(signal.SIGCONT)

    def stop(self, seconds: float = 3.0) -> None:
        """Stop the process, with time to clean up."""
        if self._process is None:
            return
        self._resume_process()  # a paused process ignores SIGTERM
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
        self._process.communicate()


def make_reports(index: Path, folder: Path, models: Sequence[str] = MODELS) -> None:
    """Make stores of all models and both reports with the public commands."""
    from glassrank.cli.encode import encode
    from glassrank.cli.runs import rerank, retrieve
    from glassrank.corpus import PYTHON_QUESTIONS
    from glassrank.research.commands.budget import budget
    from glassrank.research.commands.clusters import clusters

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
    """The background process."""
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: sys.exit(1))  # clean up
    signal.alarm(_MOST_SECONDS)
    os.nice(19)
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    make_reports(Path(index), Path(folder))


def _end_with_the_demo() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*sys.argv[1:])
