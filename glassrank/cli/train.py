"""`glassrank train`: trains any model on prepared arrays, or goes on where it was stopped."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console


def train(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:1.")] = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Train a model; run it again to go on after an interruption."""
    from dataclasses import asdict

    from glassrank.train.config import read_config
    from glassrank.train.loop import train as run_training
    from glassrank.train.prepared import load_prepared

    run = read_config(config)
    out = config.parent / run.out
    trained = run_training(
        run,
        load_prepared(config.parent / run.prepared),
        out,
        device,
        lambda line: console.say(line, quiet=quiet),
    )
    if json:
        console.print_json({"model": str(out / "best"), **asdict(trained.final)})
    else:
        console.say(f"{out / 'best'}: the trained model", quiet=quiet)
