"""`glassrank prepare`: collections to the arrays that training reads."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console


def prepare(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.")],
    device: Annotated[str, typer.Option(help="Where a teacher runs: cpu or cuda.")] = "cpu",
    quiet: console.Quiet = False,
) -> None:
    """Prepare the arrays of a training run."""
    from glassrank.train.config_files import read_config
    from glassrank.train.gather import gather
    from glassrank.train.prepare import prepare as prepare_arrays
    from glassrank.train.prepared_folders import save_prepared

    def say(line: str) -> None:
        console.say(line, quiet=quiet)

    run = read_config(config)
    gathered = gather(run, config.parent, say)
    prepared = prepare_arrays(run, gathered, config.parent, say, device)
    out = config.parent / run.prepared
    save_prepared(out, prepared)
    console.say(
        f"{out}: {prepared.doc_count:,} documents, {len(prepared.train.queries):,} training and "
        f"{len(prepared.dev.queries):,} dev queries, {len(prepared.words):,} words",
        quiet=quiet,
    )
