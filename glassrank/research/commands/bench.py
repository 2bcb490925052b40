"""`glassrank bench`: speed on this machine as ratios; the cases are in `benchmarks/`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from glassrank import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank_bench import Result


def bench(
    only: Annotated[
        list[str] | None, typer.Option(help="Only cases of this name; repeatable.")
    ] = None,
    passages: Annotated[
        Path | None,
        typer.Option(help="Documents to encode; default: the Python documentation."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda for the GPU's cases.")] = "cpu",
    json: console.AsJson = False,
    quiet: console.Quiet = False,
) -> None:
    """Measure speed against plain code and peers, as ratios in one run."""
    if find_spec("glassrank_bench") is None:  # it is in a wheel, but beside a checkout's package
        sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
    from glassrank_bench import Skipped, all_cases, machine, run_cases

    cases = all_cases(device, passages)
    names = [case.name for case in cases]
    for name in only or ():
        if name not in names:
            raise InputError(f"unknown case {name!r}; known are {', '.join(names)}")
    chosen = [case for case in cases if not only or case.name in only]
    results: list[Result] = []
    skipped: list[Skipped] = []
    console.say(f"{machine()}; {len(chosen)} cases, a few minutes", quiet=quiet)
    for result in run_cases(chosen):
        if isinstance(result, Skipped):
            skipped.append(result)
            console.say(f"skipped {result.name}: {result.why}", quiet=quiet)
        else:
            results.append(result)
            console.say(f"{result.name}: {result.value:.3g} {result.unit}", quiet=quiet)
    if json:
        report = {
            "machine": machine(),
            "results": [{**vars(result), "reached": result.reached} for result in results],
            "skipped": [vars(case) for case in skipped],
        }
        console.print_json(report)
    else:
        console.out.print(_table(results))


def _table(results: "list[Result]") -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("what", "measured", "target", ""):
        table.add_column(name, justify="left" if name == "what" else "right")
    for result in results:
        sign = "≤" if result.at_most else "≥"
        target = "" if result.target is None else f"{sign} {result.target:g} {result.unit}"
        verdict = {True: "reached", False: "[bold]missed[/]", None: ""}[result.reached]
        table.add_row(result.name, f"{result.value:.3g} {result.unit}", target, verdict)
    return table
