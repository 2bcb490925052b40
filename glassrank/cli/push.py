"""`glassrank push`: a model folder to the hub."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console


def push(
    model: Annotated[str, typer.Argument(help="The model folder.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="Its name on the hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="For its owners alone, if it is new there.")
    ] = False,
    quiet: console.Quiet = False,
) -> None:
    """Send a model folder to the hub, from where `--model ORG/NAME` loads it."""
    from glassrank.models.checkpoint import load_served, named_folder
    from glassrank.models.hub import push as send

    load_served(Path(model))  # what cannot be loaded is of no use to anybody
    folder, _ = named_folder(model)
    console.say(f"{folder}: sent, {send(folder, name, private=private)}", quiet=quiet)
