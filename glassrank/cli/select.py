"""`glassrank select`: an ensemble of those models that are better together."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console


def select(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model folders.")],
    prepared: Annotated[Path, typer.Option(help="The prepared arrays, with dev queries.")],
    out: Annotated[Path, typer.Option(help="The ensemble's folder.")],
    measure: Annotated[str, typer.Option("--measure", "-m", help="What to maximise.")] = "RR@10",
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Choose an ensemble among trained models, by greedy forward selection on dev queries."""
    from glassrank.train.prepared_folders import load_prepared
    from glassrank.train.select import select_models

    selection = select_models(
        models,
        load_prepared(prepared),
        out,
        measure,
        device,
        lambda line: console.say(line, quiet=quiet),
    )
    if json:
        console.print_json(
            {
                "model": str(out),
                "measure": measure,
                "value": selection.value,
                "members": [str(models[number]) for number in selection.chosen],
                "alone": dict(zip(map(str, models), selection.alone, strict=True)),
            }
        )
