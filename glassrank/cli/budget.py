"""`glassrank budget`: quality against milliseconds, for several models over the same candidates."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from glassrank.cli import console
from glassrank.cli.json_file import JsonFile, check_writable, is_printed, write_json
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.measure.timed_models import JudgedQueries, Line, TimedModel, Track
    from glassrank.retrieve import Index

Item = TypeVar("Item")
_DEFAULT = ("RR@10", "R@10", "nDCG@10")


def budget(
    run: Annotated[Path, typer.Argument(help="The first stage's run.")],
    qrels: Annotated[str, typer.Argument(help="Judgments.")],
    index: Annotated[Path, typer.Option(help="The index that holds the documents.")],
    queries: Annotated[str, typer.Option(help="The run's queries: TSV, JSONL or TREC topics.")],
    model: Annotated[list[str], typer.Option(help="A model folder, or 'default'; repeatable.")],
    dev_run: Annotated[
        Path | None, typer.Option(help="A run of dev queries, to choose depths on.")
    ] = None,
    dev_qrels: Annotated[str | None, typer.Option(help="Their judgments.")] = None,
    dev_queries: Annotated[str | None, typer.Option(help="Their text.")] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", "-m", help="RR@10, R@10 and nDCG@10, or these.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Score no more candidates than this; all by default.")
    ] = None,
    max_ms: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Where time ends: when all is re-ranked, or at 1,000 ms."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each timing is repeated.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="A picture: .svg, .png or .pdf.")] = None,
    json: JsonFile = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
) -> None:
    """Quality at every depth and every millisecond of re-ranking.

    Each model scores all candidates once, from its document store if the
    index has one. Its speed, with and without the store, then says how deep
    it comes in a given time: that of encoding the query and of scoring,
    without the first stage. Depths are chosen on dev queries if there are any.
    """
    from glassrank.cli.budget_plot import check_plot, draw
    from glassrank.cli.budget_tables import summary, tables
    from glassrank.measure import Measure
    from glassrank.measure.timed_models import BudgetReport, JudgedQueries, default_most_ms
    from glassrank.retrieve import Index

    for file in (json, plot):
        check_writable(file)
    if plot is not None:
        check_plot(plot)
    measures = [str(Measure.parse(name)) for name in measure or _DEFAULT]
    opened = Index(index)
    say, track = partial(console.say, quiet=quiet), _tracker(quiet)
    here = JudgedQueries.read(run, qrels, queries, opened, depth, say)
    dev = None
    if dev_run is not None and dev_qrels is not None and dev_queries is not None:
        dev = JudgedQueries.read(dev_run, dev_qrels, dev_queries, opened, depth, say)
    elif (dev_run, dev_qrels, dev_queries) != (None, None, None):
        raise InputError("--dev-run, --dev-qrels and --dev-queries go together; give all three")
    models = _open_models(model, opened, max(here.deepest, (dev or here).deepest), device)
    lines = _lines(models, here, dev, measures, repeats, track)
    report = BudgetReport(
        judged=len(here.qrels),
        deepest=here.deepest,
        chosen_on="run" if dev is None else "dev",
        machine=_machine(device),
        most_ms=max_ms or default_most_ms(lines),
        lines=lines,
    )
    write_json(report.to_json(), json)
    if plot is not None:
        draw(report, plot)
    if not is_printed(json):
        for table in tables(report, console.out.width):
            console.out.print(table, "")
        console.out.print(f"[dim]{summary(report)}[/]", soft_wrap=True)


def _open_models(
    models: list[str], index: "Index", deepest: int, device: str
) -> "list[TimedModel]":
    """Each live, and with its store if the index has one."""
    from glassrank.measure.timed_models import TimedModel, Way, labels
    from glassrank.rank import Pipeline, Reranker
    from glassrank.store import Store

    opened = []
    for model, label in zip(models, labels(models), strict=True):
        reranker = Reranker.load(model, device)
        store = Store.find(index, reranker.model)
        ways = [Way("live", Pipeline(index, reranker, candidates=deepest, calibrate=False))]
        if store is not None:
            stored = Pipeline(index, reranker, store=store, candidates=deepest, calibrate=False)
            ways.append(Way(f"stored, {store.dtype}", stored))
        opened.append(TimedModel(label, ways))
    return opened


def _tracker(quiet: bool) -> "Track":
    def track(items: Sequence[Item], what: str, /) -> Iterator[Item]:
        return console.track(items, what, total=len(items), quiet=quiet)

    return track


def _lines(
    models: "list[TimedModel]",
    here: "JudgedQueries",
    dev: "JudgedQueries | None",
    measures: list[str],
    repeats: int,
    track: "Track",
) -> "list[Line]":
    """One scoring pass for each model, one line for each of its ways to score."""
    from glassrank.measure.budget_curve import time_curves
    from glassrank.measure.timed_models import Line, measure_speeds

    speeds = measure_speeds(models, here.queries, repeats, track)
    lines = []
    for model, own_speeds in zip(models, speeds, strict=True):
        values = model.values(here, measures, here.deepest, track)
        on_dev = None
        if dev is not None:
            on_dev = model.values(dev, measures, here.deepest, track)
        for way, speed in zip(model.ways, own_speeds, strict=True):
            lines.append(Line(model.label, way.name, speed, time_curves(values, speed, on_dev)))
    return lines


def _machine(device: str) -> dict[str, Any]:
    import torch

    return {"device": device, "threads": torch.get_num_threads()}
