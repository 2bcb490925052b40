"""Options, progress, errors and JSON that commands share."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from glassrank.errors import UNSAFE, InputError, sanitize
from glassrank.progress import say_progress
from glassrank.storage.files import atomic_write

if TYPE_CHECKING:
    from glassrank.embeddings import Progress

Item = TypeVar("Item")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Filter by metadata: lang=en, year>=2019, 'lang in en,de'; repeatable, all must hold."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write all values to this file; - prints them instead of tables."),
]
MethodName = Annotated[
    str,
    typer.Option(help="bm25, ql, bm25+rm3 or ql+rm3; with parameters: 'bm25(k1=1.2,b=0.75)'."),
]
ModelsMethod = Annotated[
    str | None,
    typer.Option(help="The first stage, e.g. 'bm25(k1=1.2,b=0.75)'; default: the model's own."),
]
ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Re-rank with this model: a folder, or 'strong', 'default', 'fast' or 'tiny' from the "
        "package. Repeat it for a cascade: each further model re-ranks the best of the one before.",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(help="How deep each model of a cascade goes; written by `budget --plan`."),
]
BudgetMs = Annotated[
    float | None, typer.Option(min=0.001, help="Milliseconds for the whole query.")
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="float32, documents one by one: the same bytes with any number of threads.",
    ),
]
FirstStage = Annotated[
    str | None,
    typer.Option(
        help="bm25 (or what --method says), dense (by vectors of a store), or hybrid (both); "
        "default: hybrid where a store has vectors."
    ),
]
Adaptive = Annotated[
    bool | None,
    typer.Option(
        help="Whether the best candidates bring in their neighbours; default: with dense and "
        "hybrid, where a store has a graph."
    ),
]
Regularization = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="How far similar documents draw each other's scores together, where a store has "
        "vectors; default: 0.5.",
    ),
]
TopicField = Annotated[
    str, typer.Option("--field", help="Field of TREC topics: title, desc or narr.")
]
Tag = Annotated[str, typer.Option(help="The run's name, in its last column.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or cuda:1.")]

_PLAIN_LINE_SECONDS = 10.0
_STANDARD_OUTPUT = Path("-")

out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)


def check_plan(plan: Path | None, models: Sequence[str] | None) -> None:
    """Raise an error unless a plan comes with several models."""
    if plan is not None and len(models or ()) < 2:
        raise InputError("--plan needs several models; give --model for each of them")


def error(message: str) -> None:
    """Print an error in one line."""
    _err.print("[bold red]error:[/] ", end="")
    _err.print(sanitize(message.replace("\n", " ")), markup=False, soft_wrap=True)


def say(message: str, *, quiet: bool = False) -> None:
    """Print a line to standard error, apart from the results."""
    if not quiet:
        _err.print(sanitize(message), markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print JSON on standard output, NumPy's numbers as plain ones."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=lambda number: number.item())
    # Control characters occur in strings only, where JSON can escape them.
    text = UNSAFE.sub(lambda unsafe: f"\\u{ord(unsafe[0]):04x}", text)
    sys.stdout.write(text + "\n")


def is_printed(path: Path | None) -> bool:
    """Whether JSON goes to standard output, so that no table may."""
    return path == _STANDARD_OUTPUT


def check_writable(path: Path | None) -> None:
    """Raise an error before long work if its result cannot be written."""
    if path is None or is_printed(path):
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected the name of a file to write")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{path} cannot be written: permission denied; choose a path that you may write to",
            code="permission_denied",
        )


def write_json(value: object, path: Path | None) -> None:
    """Write JSON atomically, or print it for `-`; None writes nothing."""
    if path is None:
        return
    if is_printed(path):
        print_json(value)
        return
    with atomic_write(path) as file:
        json.dump(value, file, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def track(
    items: Iterable[Item], what: str, *, total: int | None = None, quiet: bool = False
) -> Iterator[Item]:
    """Yield the items and show progress: a bar on a terminal, else a line every ten seconds."""
    if quiet:
        yield from items
    elif _err.is_terminal:
        yield from _bar(items, what, total)
    else:
        yield from say_progress(items, what, total, say)


def _bar(items: Iterable[Item], what: str, total: int | None) -> Iterator[Item]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    if total is not None:
        columns = (*columns, TimeRemainingColumn())  # type: ignore[assignment]
    with Progress(*columns, console=_err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(task)


@contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner on a terminal, else one line, for work that cannot be counted."""
    if quiet:
        yield
    elif _err.is_terminal:
        with _err.status(what):
            yield
    else:
        say(f"{what} …")
        yield


@contextmanager
def show_encoding(quiet: bool) -> "Iterator[Callable[[Progress], None] | None]":
    """Show progress of encoding: a bar on a terminal, else a line every ten seconds."""
    if quiet:
        yield None
        return
    if not _err.is_terminal:
        last = time.monotonic()

        def say_speed(progress: "Progress") -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= _PLAIN_LINE_SECONDS:
                last = now
                done = f"{progress.documents:,} of {progress.total:,}"
                say(f"Encoding: {done}, {_describe_speed(progress)}")

        yield say_speed
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    speed = TextColumn("{task.fields[speed]}")
    columns = (TextColumn("Encoding"), BarColumn(), MofNCompleteColumn(), speed)
    with Bar(*columns, console=_err, transient=True) as bar:
        task = bar.add_task("", total=None, speed="")
        yield lambda progress: bar.update(
            task,
            total=progress.total,
            completed=progress.documents,
            speed=_describe_speed(progress),
        )


def _describe_speed(progress: "Progress") -> str:
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{progress.per_second:,.0f} documents/s, {progress.bytes_per_document:,.0f} bytes each, "
        f"{hours}:{minutes:02}:{seconds:02} left"
    )
