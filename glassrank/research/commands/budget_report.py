"""Results of `glassrank budget` as tables, and as a picture like Figure 2 of the TK paper: each
model has a line up to a marker at its best depth, and dotted beyond.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from glassrank.errors import InputError, needs_extra
from glassrank.rerank.cascade_plan import CascadePlan
from glassrank.research.evaluate.budget_curve import TimeCurve
from glassrank.research.evaluate.timed_models import BudgetReport
from glassrank.research.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN_MS = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000)
_TIME_WIDTH = 10
ENDINGS = (".svg", ".png", ".pdf")

# Okabe and Ito's colours for the colour-blind, without yellow, which is too faint.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES = ("-", (0, (6, 2)), (0, (6, 2, 1, 2)), (0, (3, 1.5)), (0, (9, 2, 2, 2, 2, 2)))
_LEGEND_COLUMNS = 3
_FAR_FASTER = 20
_GREY = "#777777"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def summary(report: BudgetReport) -> str:
    """The number of queries, and the machine."""
    threads = report.machine["threads"]
    machine = f"{report.machine['device']}, {threads} thread{'s' if threads != 1 else ''}"
    asked = f"{report.judged:,} judged queries, up to {report.deepest:,} candidates"
    return f"{asked}; timed on {machine}, without the first stage"


def tables(report: BudgetReport, width: int) -> Iterator[Table]:
    """Tables for a terminal of this width."""
    yield _best_table(report)
    yield _time_table(report, _shown_ms(report, width))
    yield _speed_table(report)


def _shown_ms(report: BudgetReport, width: int) -> list[int]:
    """Round numbers of milliseconds, as many as fit the width."""
    begin = min(float(line.speed.ms(1)) for line in report.lines)
    able = [ms for ms in _SHOWN_MS if begin <= ms <= report.max_ms] or [report.max_ms]
    names = max(len(line.label) for line in report.lines) + max(map(len, report.first_stage)) + 4
    columns = max(1, (width - names) // _TIME_WIDTH)
    places = np.linspace(len(able) - 1, 0, min(columns, len(able))).round().astype(int)
    return [able[place] for place in reversed(places)]


def plan_table(plan: CascadePlan, labels: Sequence[str]) -> Table:
    """Depths at each budget, and the first model alone for comparison."""
    numbers = (*labels, plan.measure, f"{labels[0]} alone")
    table = _table("As a cascade: depths", ["budget"], map(escape, numbers))
    for row in plan.budgets:
        depths = (f"{depth:,}" for depth in row.depths)
        values = f"{row.value:.4f}", f"{row.first_alone:.4f}"
        table.add_row(f"{row.budget_ms:,g} ms", *depths, *values)
    return table


def _best_table(report: BudgetReport) -> Table:
    chosen = "on dev queries" if report.chosen_on == "dev" else "on these queries themselves"
    title = f"At the depth that is best {chosen}"
    table = _table(title, ["measure", "model"], ["value", "gain", "depth", "ms"])
    for name, alone in report.first_stage.items():
        table.add_row(name, "first stage alone", f"{alone:.4f}", "", "0", "0")
        for line in report.lines:
            curve = line.curves[name]
            gain = f"{curve.chosen_value - alone:+.4f}"
            value, ms = f"{curve.chosen_value:.4f}", _milliseconds(curve.chosen_ms)
            table.add_row("", escape(line.label), value, gain, f"{curve.chosen:,}", ms)
    return table


def _time_table(report: BudgetReport, shown: Sequence[int]) -> Table:
    """Quality by time; with too little time for the query, the first stage's order stays."""
    numbers = (f"{ms:,} ms" for ms in shown)
    table = _table("When all of a time budget is used", ["measure", "model"], numbers)
    for name, alone in report.first_stage.items():
        table.add_row(name, "first stage alone", *(f"{alone:.4f}" for _ in shown))
        for line in report.lines:
            values = line.curves[name].at_ms(shown).tolist()
            table.add_row("", escape(line.label), *(f"{value:.4f}" for value in values))
    return table


def _speed_table(report: BudgetReport) -> Table:
    table = _table("Speed", ["model"], ["docs/ms", "query ms", "ms for all"])
    for line in report.lines:
        speed = line.speed
        times = map(_milliseconds, (speed.query_ms, float(speed.ms(report.deepest))))
        table.add_row(escape(line.label), f"{speed.docs_per_ms:.3g}", *times)
    return table


def _table(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(
        *texts, title=f"{title}\n", title_justify="left", title_style="bold", box=None,
        pad_edge=False,
    )  # fmt: skip
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _milliseconds(ms: float) -> str:
    """
    >>> _milliseconds(0.1234), _milliseconds(12.34), _milliseconds(1234.5)
    ('0.12', '12.3', '1,234')
    """
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"


def check_plot(path: Path) -> None:
    """Raise an error before hours of scoring if the picture cannot be drawn."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"--plot writes {', '.join(ENDINGS)}, found {path.name!r}")
    with needs_extra("train", "--plot"):
        import matplotlib  # noqa: F401


def draw(report: BudgetReport, path: Path) -> None:
    """Draw SVG, PDF or PNG, by the file's suffix."""
    save_figure(lambda: _figure(report), path, font_size=9, dpi=160)


def _figure(report: BudgetReport) -> "Figure":
    from matplotlib.figure import Figure  # pyplot would need a display

    measures = list(report.first_stage)
    legend = math.ceil((len(report.lines) + 2) / _LEGEND_COLUMNS)  # its rows
    size = 1 + 3.4 * len(measures), 3.2 + 0.19 * legend
    figure = Figure(figsize=size, layout="constrained")
    left = _axis_start(report)
    all_axes = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, name in zip(all_axes, measures, strict=True):
        axes.axhline(report.first_stage[name], color=_GREY, linewidth=1)
        for line, look in zip(report.lines, _line_styles(), strict=False):
            _draw_line(axes, line.curves[name], look, left, report.max_ms)
        axes.set_title(name)
        axes.set_xlabel("milliseconds to re-rank")
        if left > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda ms, _: f"{ms:,g}")
        axes.set_xlim(left, report.max_ms)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    _draw_legend(figure, report)
    return figure


def _axis_start(report: BudgetReport) -> float:
    """0; or, if one model is far slower than another, a positive start for a logarithmic axis."""
    fastest = min(float(line.speed.ms(report.deepest)) for line in report.lines)
    if fastest > report.max_ms / _FAR_FASTER:
        return 0.0
    return 0.7 * min(float(line.speed.ms(1)) for line in report.lines)


def _line_styles() -> Iterator[dict[str, Any]]:
    """Styles of lines; the first 35 differ."""
    for colour, dashes, marker in zip(*map(cycle, (_COLOURS, _DASHES, _MARKERS)), strict=False):
        yield {"color": colour, "linestyle": dashes, "marker": marker}


def _draw_line(
    axes: "Axes", curve: TimeCurve, look: dict[str, Any], left: float, max_ms: int
) -> None:
    values, best = curve.at_depth, curve.chosen
    ms = np.maximum(curve.speed.ms(np.arange(len(values))), left)  # (D + 1,)
    axes.plot(ms[: best + 1], values[: best + 1], **{**look, "marker": ""})
    # Constant beyond the time for all candidates.
    beyond = np.append(ms[best:], max(max_ms, ms[-1])), np.append(values[best:], values[-1])
    axes.plot(*beyond, color=look["color"], linestyle=":")
    # Do not clip a marker on the edge.
    axes.plot(ms[best], values[best], **look, clip_on=bool(ms[best] > max_ms))
    axes.annotate(
        f"{best:,}", (ms[best], values[best]), (0, 6), textcoords="offset points", ha="center",
        color=look["color"], annotation_clip=True,
    )  # fmt: skip


def _draw_legend(figure: "Figure", report: BudgetReport) -> None:
    from matplotlib.lines import Line2D

    chosen = "best on dev queries" if report.chosen_on == "dev" else "best"
    handles = [Line2D([], [], color=_GREY, linewidth=1, label="first stage alone")]
    for line, look in zip(report.lines, _line_styles(), strict=False):
        handles.append(Line2D([], [], **look, label=line.label.replace("$", r"\$")))
    marker = f"marker: {chosen}, with its number of documents; dotted: beyond it"
    handles.append(Line2D([], [], color=_GREY, linestyle=":", label=marker))
    place: Any = {"loc": "outside lower center", "ncols": _LEGEND_COLUMNS, "handlelength": 4}
    figure.legend(handles=handles, frameon=False, **place)
