"""`glassrank train`: trains any model on prepared arrays, or goes on where it was stopped."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console
from glassrank.errors import InputError


def train(
    config: Annotated[Path | None, typer.Argument(help="The run's TOML file.")] = None,
    device: console.Device = "cpu",
    example: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Print a TOML file to start from, and do nothing else."),
    ] = None,
    curves: Annotated[
        bool, typer.Option("--curves", help="Draw the run's curves so far, and do nothing else.")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option(help="Also write the run's numbers for tensorboard or wandb; repeatable."),
    ] = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Train a model; run it again to go on after an interruption."""
    if example is not None:
        from glassrank.train.example import example as text_of

        sys.stdout.write(text_of(example))
        return
    if config is None:
        raise InputError(
            "name the run's TOML file; to start one: glassrank train --example tk > run.toml"
        )
    from glassrank.train.config_files import read_config

    run = read_config(config)
    out = config.parent / run.out
    if curves:
        from glassrank.train.report import draw_curves

        console.say(f"curves in {draw_curves(out, run.validation.measure)}", quiet=quiet)
        return
    from glassrank.train.loop import train as run_training
    from glassrank.train.prepared_folders import load_prepared
    from glassrank.train.report import tracking

    prepared = load_prepared(config.parent / run.prepared, run)
    with tracking(log or [], out, run) as track:
        trained = run_training(
            run,
            prepared,
            out,
            device,
            lambda line: console.say(line, quiet=quiet),
            base=config.parent,
            track=track,
        )
    if json:
        console.print_json({"model": str(out / "best"), **asdict(trained.final)})
    else:
        console.say(f"{out / 'best'}: the trained model", quiet=quiet)
