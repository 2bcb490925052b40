"""`glassrank experiment`: several models and seeds, one table with significance."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console
from glassrank.files import atomic_write


def experiment(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG...", help="TOML files of training runs.")
    ],
    seed: Annotated[
        list[int] | None, typer.Option(help="May be repeated; each config's own unless given.")
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", "-m", help="May be repeated.")
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="What to compare with: the name of a config, or 'first stage'.")
    ] = "first stage",
    out: Annotated[
        Path | None, typer.Option(help="Write the table here, as Markdown; JSON goes beside it.")
    ] = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Train models with several seeds and compare them; run it again to go on."""
    from glassrank.train.experiment import experiment as run
    from glassrank.train.experiment_table import as_markdown, as_plain

    console.check_writable(out)
    result = run(
        configs,
        seed or (),
        measure or ("RR@10", "nDCG@10", "AP"),
        baseline,
        device,
        lambda line: console.say(line, quiet=quiet),
    )
    if out is not None:
        with atomic_write(out) as file:
            file.write(as_markdown(result))
        console.write_json(as_plain(result), out.with_suffix(".json"))
    if json:
        console.print_json(as_plain(result))
    else:
        print(as_markdown(result), end="")
