"""JSON to a file, or to standard output, for commands that print tables besides."""

import json
from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console
from glassrank.errors import InputError
from glassrank.files import atomic_write

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="A file for all numbers; - prints them instead of tables."),
]
_STANDARD_OUTPUT = Path("-")


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
        console.print_json(value)
        return
    with atomic_write(path) as file:
        json.dump(value, file, ensure_ascii=False, allow_nan=False)
        file.write("\n")
