"""What commands share: progress, errors, and numbers as JSON."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from glassrank.errors import UNSAFE, InputError, sanitize
from glassrank.storage.files import atomic_write

Item = TypeVar("Item")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Only documents with this in a field: lang=en, year>=2019, 'lang in en,de'; "
        "may be repeated, and then all must hold."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="A file for all numbers; - prints them instead of tables."),
]
MethodName = Annotated[
    str,
    typer.Option(help="bm25, ql, bm25+rm3 or ql+rm3; with parameters: 'bm25(k1=1.2,b=0.75)'."),
]
ModelsMethod = Annotated[
    str | None,
    typer.Option(help="The first stage, as 'bm25(k1=1.2,b=0.75)'; as the model says if not given."),
]
ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Re-rank with this model: a folder, or 'default' for the one that is here. "
        "Of several, each further one re-ranks the best of those before it.",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        help="How deep each of several models goes: what `glassrank budget --plan` wrote."
    ),
]
BudgetMs = Annotated[
    float | None, typer.Option(min=0.001, help="Milliseconds for the whole query.")
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Unrounded weights, documents one by one: the same bytes with any number of threads.",
    ),
]
TopicField = Annotated[str, typer.Option("--field", help="Of TREC topics: title, desc or narr.")]
Tag = Annotated[str, typer.Option(help="The name of the run, in its last column.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or cuda:1.")]

_PLAIN_LINE_SECONDS = 10.0
_STANDARD_OUTPUT = Path("-")

out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)


def check_plan(plan: Path | None, models: Sequence[str] | None) -> None:
    """A plan divides depths between models: with one there is nothing to divide."""
    if plan is not None and len(models or ()) < 2:
        raise InputError("--plan is for several models; give --model for each of them")


def error(message: str) -> None:
    """One line, whatever is quoted in it."""
    _err.print("[bold red]error:[/] ", end="")
    _err.print(sanitize(message.replace("\n", " ")), markup=False, soft_wrap=True)


def say(message: str, *, quiet: bool = False) -> None:
    """A line about what is going on, apart from the results."""
    if not quiet:
        _err.print(sanitize(message), markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One document on standard output; numpy's numbers become plain ones."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=lambda number: number.item())
    # Such characters stand in strings alone, where JSON has another spelling for them.
    text = UNSAFE.sub(lambda unsafe: f"\\u{ord(unsafe[0]):04x}", text)
    sys.stdout.write(text + "\n")


def is_printed(path: Path | None) -> bool:
    """Whether numbers go to standard output, where tables would be in their way."""
    return path == _STANDARD_OUTPUT


def check_writable(path: Path | None) -> None:
    """Before long work, whose result would have nowhere to go."""
    if path is None or is_printed(path):
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected the name of a file to write")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")


def write_json(value: object, path: Path | None) -> None:
    """Whole or not at all; to nowhere where no file was named."""
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
    """Shows how many items have gone by: a bar on a terminal, a line now and then elsewhere."""
    if quiet:
        yield from items
    elif _err.is_terminal:
        yield from _bar(items, what, total)
    else:
        yield from _lines(items, what, total)


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


def _lines(items: Iterable[Item], what: str, total: int | None) -> Iterator[Item]:
    started = last = time.monotonic()
    of_all = f" of {total:,}" if total is not None else ""
    for count, item in enumerate(items):
        if (now := time.monotonic()) - last >= _PLAIN_LINE_SECONDS:
            last = now
            say(f"{what}: {count:,}{of_all}, {count / (now - started):,.0f} a second")
        yield item


@contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """A turning wheel on a terminal, one line elsewhere, for work that cannot be counted."""
    if quiet:
        yield
    elif _err.is_terminal:
        with _err.status(what):
            yield
    else:
        say(f"{what} …")
        yield
