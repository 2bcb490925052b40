"""`glassrank experiment`: several models and seeds in one table, as Markdown and JSON."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassrank import console
from glassrank.storage.files import atomic_write

if TYPE_CHECKING:
    from glassrank.research.evaluate import Evaluation
    from glassrank.research.train.experiment import Experiment


def experiment(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG...", help="TOML files of training runs.")
    ],
    seed: Annotated[
        list[int] | None, typer.Option(help="Repeatable; default: each config's own.")
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", "-m", help="Repeatable.")
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="The system to compare with: a config's name, or 'first stage'.")
    ] = "first stage",
    out: Annotated[
        Path | None, typer.Option(help="Write the table as Markdown, and JSON beside it.")
    ] = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Train models with several seeds and compare them; run it again to resume."""
    from glassrank.research.train.experiment import experiment as run

    console.check_writable(out)
    measures = measure or ("RR@10", "nDCG@10", "AP")
    say = partial(console.say, quiet=quiet)
    result = run(configs, seed or (), measures, baseline, device, say)
    if out is not None:
        with atomic_write(out) as file:
            file.write(as_markdown(result))
        console.write_json(as_plain(result), out.with_suffix(".json"))
    if json:
        console.print_json(as_plain(result))
    else:
        print(as_markdown(result), end="")


def as_markdown(result: "Experiment", alpha: float = 0.05) -> str:
    """A table with a row for each system; * marks significant differences."""
    from glassrank.research.train.experiment import FIRST_STAGE

    measures = list(result.first_stage.mean)
    p_values = {(row.system_name, row.measure): row.corrected_p for row in result.comparisons}
    first = " | ".join(f"{result.first_stage.mean[m]:.4f}" for m in measures)
    lines = [
        f"| system | {' | '.join(measures)} | depth | seeds |",
        f"|---|{'---|' * (len(measures) + 2)}",
        f"| {FIRST_STAGE} | {first} | | |",
    ]
    for name, results in result.systems.items():
        cells = []
        for measure in measures:
            mean, deviation = result.spread(name, measure)
            spread = f" ± {deviation:.4f}" if deviation else ""
            mark = "*" if p_values.get((name, measure), 1.0) < alpha else ""
            cells.append(f"{mean:.4f}{spread}{mark}")
        depths = ", ".join("/".join(map(str, seed.depths)) for seed in results)
        seeds = ", ".join(str(seed.seed) for seed in results)
        lines.append(f"| {name} | {' | '.join(cells)} | {depths} | {seeds} |")
    note = (
        f"{len(result.first_stage.query_ids):,} {result.split} queries, each model at the depth "
        "chosen on its dev queries; ± is the standard deviation over seeds. "
        f"* differs from {result.baseline}: p < {alpha} in a paired t-test over queries (their "
        "means over seeds), Holm's correction "
        f"for {len(result.comparisons)} comparisons."
    )
    settings = [f"- {name}: {setting}" for name, setting in result.chosen.items()]
    if settings:
        settings = ["", "Settings that were best on dev queries:", "", *settings]
    return "\n".join([*lines, "", note, *settings, ""])


def _per_query(evaluation: "Evaluation") -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in evaluation.per_query.items()}


def as_plain(result: "Experiment") -> Mapping[str, object]:
    """All results for JSON: values of each query, fold by fold, and means at every depth."""
    return {
        "split": result.split,
        "queries": len(result.first_stage.query_ids),
        "baseline": result.baseline,
        "first_stage": result.first_stage.mean,
        "first_stage_per_query": _per_query(result.first_stage),
        "chosen": result.chosen,
        "settings": result.settings,
        "systems": {
            name: [
                {
                    "seed": seed.seed,
                    "depths": seed.depths,
                    "mean": seed.evaluation.mean,
                    "by_depth": seed.by_depth,
                    "per_query": _per_query(seed.evaluation),
                }
                for seed in results
            ]
            for name, results in result.systems.items()
        },
        "comparisons": [
            {
                "system": row.system_name,
                "measure": row.measure,
                "mean": row.system,
                "baseline": row.baseline,
                "p": row.p_value,
                "p_corrected": row.corrected_p,
            }
            for row in result.comparisons
        ],
    }
