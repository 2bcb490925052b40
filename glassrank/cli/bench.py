"""`glassrank bench`: speed on this machine, as ratios."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from glassrank.cli import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.bench import Case, Result


def bench(
    only: Annotated[
        list[str] | None, typer.Option(help="Only cases of this name; may be repeated.")
    ] = None,
    passages: Annotated[
        Path | None,
        typer.Option(help="Documents for live encoding; the Python documentation unless given."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda for the GPU's cases.")] = "cpu",
    json: console.AsJson = False,
    quiet: console.Quiet = False,
) -> None:
    """Measure speed against plain code and against peers, as ratios in one run."""
    from glassrank.bench import Skipped, run_cases
    from glassrank.bench.results import machine

    cases = _cases(passages, device)
    names = [case.name for case in cases]
    for name in only or ():
        if name not in names:
            raise InputError(f"there is no case {name!r}; known are {', '.join(names)}")
    chosen = [case for case in cases if not only or case.name in only]
    results: list[Result] = []
    skipped: list[Skipped] = []
    console.say(f"{machine()}; {len(chosen)} cases, a few minutes", quiet=quiet)
    for found in run_cases(chosen):
        if isinstance(found, Skipped):
            skipped.append(found)
            console.say(f"skipped {found.name}: {found.why}", quiet=quiet)
        else:
            results.append(found)
            console.say(f"{found.name}: {found.value:.3g} {found.unit}", quiet=quiet)
    if json:
        console.print_json(
            {
                "machine": machine(),
                "results": [{**vars(result), "reached": result.reached} for result in results],
                "skipped": [vars(one) for one in skipped],
            }
        )
    else:
        console.out.print(_table(results))


def _cases(passages: Path | None, device: str) -> "list[Case]":
    from glassrank.bench import Case, live, peers, queries, sizes, stored

    if device != "cpu":
        from glassrank.bench import gpu

        return gpu.cases()
    return [
        Case("fused", stored.fused_against_plain),
        Case("stored", stored.stored_against_live),
        Case("live", lambda: live.against_the_authors(passages)),
        Case("sizes", sizes.small_stores),
        Case("late-interaction", peers.against_late_interaction),
        Case("query", queries.against_cross_encoder),
        Case("noise", queries.machine_noise),
        Case("budget-stored", lambda: queries.budget_kept(stored=True)),
        Case("budget-live", lambda: queries.budget_kept(stored=False)),
    ]


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
