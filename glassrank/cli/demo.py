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
    method: console.MethodName = "bm25",
    k: Annotated[int, typer.Option("--k", "-k", help="How many results for each.")] = 3,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Index again.")] = False,
    quiet: console.Quiet = False,
) -> None:
    """Index the documentation of this Python and answer sample queries."""
    from glassrank.cli.search import show
    from glassrank.corpus import SAMPLE_QUERIES

    index = _index(rebuild=rebuild, quiet=quiet)
    # The first search on a machine compiles it; what is timed below is what every later one takes.
    with console.working("Preparing the search", quiet=quiet):
        index.search("warm up", k, method)
    for text in query or SAMPLE_QUERIES:
        ranking = index.search(text, k, method)
        console.out.print(
            f"\n[bold green]{escape(text)}[/]  [dim]{ranking.timing['retrieve']:.1f} ms[/]"
        )
        show(index, ranking)
    command = f'{_program()} search {_short(index.path)} "split a string into words"'
    console.out.print(f"\nAsk your own: [bold]{command}[/]", soft_wrap=True)


def _index(*, rebuild: bool, quiet: bool) -> "Index":
    """Kept between runs, for each version of Python and of the package."""
    from glassrank import __version__
    from glassrank.corpus import python_docs
    from glassrank.errors import GlassrankError
    from glassrank.retrieve import Index

    path = _folder() / f"python-{platform.python_version()}-{__version__}.index"
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
