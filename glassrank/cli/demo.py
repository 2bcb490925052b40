"""`glassrank demo`: search the documentation of the Python that runs it."""

import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from glassrank.cli import console

if TYPE_CHECKING:
    from glassrank.retrieve import Index


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
    from glassrank.cli.demo_reports import MODELS, DemoReports
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
    from glassrank.cli.demo_reports import MODELS
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
