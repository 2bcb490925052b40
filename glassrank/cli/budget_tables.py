"""What `glassrank budget` found, as tables for people."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.markup import escape
from rich.table import Table

from glassrank.measure.cascade_plan import CascadePlan
from glassrank.measure.timed_models import BudgetReport

_SHOWN_MS = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000)
_TIME_WIDTH = 10


def summary(report: BudgetReport) -> str:
    """On how many queries, and on what machine."""
    threads = report.machine["threads"]
    machine = f"{report.machine['device']}, {threads} thread{'s' if threads != 1 else ''}"
    asked = f"{report.judged:,} judged queries, up to {report.deepest:,} candidates"
    return f"{asked}; timed on {machine}, without the first stage"


def tables(report: BudgetReport, width: int) -> Iterator[Table]:
    """For so many characters in a line."""
    yield _best_table(report)
    yield _time_table(report, _shown_ms(report, width))
    yield _speed_table(report)


def _shown_ms(report: BudgetReport, width: int) -> list[int]:
    """Round numbers, from where anything is re-ranked to the end, as many as there is room for."""
    begin = min(float(line.speed.ms(1)) for line in report.lines)
    able = [ms for ms in _SHOWN_MS if begin <= ms <= report.most_ms] or [report.most_ms]
    names = max(len(line.label) for line in report.lines) + max(map(len, report.first_stage)) + 4
    columns = max(1, (width - names) // _TIME_WIDTH)
    places = np.linspace(len(able) - 1, 0, min(columns, len(able))).round().astype(int)
    return [able[place] for place in reversed(places)]


def plan_table(plan: CascadePlan, labels: Sequence[str]) -> Table:
    """Depths at each budget of a whole query; those of the first model alone for comparison."""
    table = _table("As a cascade: depths", "budget")
    for column in (*labels, plan.measure, f"{labels[0]} alone"):
        table.add_column(escape(column), justify="right")
    for row in plan.budgets:
        depths = (f"{depth:,}" for depth in row.depths)
        table.add_row(
            f"{row.budget_ms:,g} ms", *depths, f"{row.value:.4f}", f"{row.first_alone:.4f}"
        )
    return table


def _best_table(report: BudgetReport) -> Table:
    chosen = "on dev queries" if report.chosen_on == "dev" else "on these queries themselves"
    table = _table(f"At the depth that is best {chosen}", "measure", "model")
    for column in ("value", "gain", "depth", "ms"):
        table.add_column(column, justify="right")
    for name, alone in report.first_stage.items():
        table.add_row(name, "first stage alone", f"{alone:.4f}", "", "0", "0")
        for line in report.lines:
            curve = line.curves[name]
            gain = f"{curve.chosen_value - alone:+.4f}"
            value, ms = f"{curve.chosen_value:.4f}", _milliseconds(curve.chosen_ms)
            table.add_row("", escape(line.label), value, gain, f"{curve.chosen:,}", ms)
    return table


def _time_table(report: BudgetReport, shown: Sequence[int]) -> Table:
    """In less time than the query alone costs, a model leaves the first stage's order."""
    table = _table("When all of a time budget is used", "measure", "model")
    for ms in shown:
        table.add_column(f"{ms:,} ms", justify="right")
    for name, alone in report.first_stage.items():
        table.add_row(name, "first stage alone", *(f"{alone:.4f}" for _ in shown))
        for line in report.lines:
            values = line.curves[name].at_ms(shown).tolist()
            table.add_row("", escape(line.label), *(f"{value:.4f}" for value in values))
    return table


def _speed_table(report: BudgetReport) -> Table:
    table = _table("Speed", "model")
    for column in ("docs/ms", "query ms", "ms for all"):
        table.add_column(column, justify="right")
    for line in report.lines:
        speed = line.speed
        table.add_row(
            escape(line.label),
            f"{speed.docs_per_ms:.3g}",
            _milliseconds(speed.query_ms),
            _milliseconds(float(speed.ms(report.deepest))),
        )
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(
        *columns, title=f"{title}\n", title_justify="left", title_style="bold", box=None,
        pad_edge=False,
    )  # fmt: skip


def _milliseconds(ms: float) -> str:
    """
    >>> _milliseconds(0.1234), _milliseconds(12.34), _milliseconds(1234.5)
    ('0.12', '12.3', '1,234')
    """
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"
