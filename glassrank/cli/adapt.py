"""`glassrank adapt`: a trained model fine-tuned on other texts, in folds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from glassrank.cli import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.measure import Evaluation


def adapt(
    config: Annotated[Path, typer.Argument(help="The run's TOML file, with start.model, [folds].")],
    mode: Annotated[
        list[str] | None,
        typer.Option(help="none, all, interaction or representation; may be repeated."),
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", "-m", help="May be repeated.")
    ] = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Adapt a model to other texts, by cross-validation over their queries."""
    from glassrank.measure import compare
    from glassrank.train.adapt import MODES, Mode
    from glassrank.train.adapt import adapt as run
    from glassrank.train.config import family_of, read_config
    from glassrank.train.prepared import load_prepared

    plan = read_config(config)
    usual = MODES if family_of(plan).modular else MODES[:2]
    modes: list[Mode] = []
    for name in mode or usual:
        if name not in MODES:
            raise InputError(f"there is no mode {name!r}; known are {', '.join(MODES)}")
        modes.append(name)
    adapted = run(
        plan,
        load_prepared(config.parent / plan.prepared, plan),
        config.parent / plan.out,
        device,
        modes,
        measure or ("nDCG@10", "RR@10", "AP"),
        lambda line: console.say(line, quiet=quiet),
        config.parent,
    )
    rows: dict[str, Evaluation] = {"first stage": adapted.first_stage}
    rows.update({str(name): row for name, row in adapted.modes.items()})
    if json:
        console.print_json(
            {
                name: {
                    "mean": row.mean,
                    "per_query": {m: v.tolist() for m, v in row.per_query.items()},
                }
                for name, row in rows.items()
            }
        )
        return
    names = list(adapted.first_stage.mean)
    table = Table("", *names, box=None, pad_edge=False)
    for name, row in rows.items():
        marks = dict.fromkeys(names, "")
        if name != "all" and "all" in adapted.modes:
            marks = {
                m: "".join(
                    sign
                    for sign, claim in zip("†*", comparison.non_inferiority, strict=True)
                    if claim.holds
                )
                for m, comparison in compare(row, adapted.modes["all"]).items()
            }
        table.add_row(name, *(f"{row.mean[m]:.4f}{marks[m][:1]}" for m in names))
    console.out.print(table)
    if "all" in adapted.modes:
        console.out.print("Not worse than adapting all: † at a margin of 2%, * at 5% (p < 0.05).")
