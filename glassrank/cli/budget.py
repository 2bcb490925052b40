"""`glassrank budget`: quality against milliseconds, for several models over the same candidates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from glassrank.cli import console
from glassrank.cli.console import JsonFile, check_writable, is_printed, write_json
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.index import Index
    from glassrank.rerank import Pipeline
    from glassrank.rerank.cascade_plan import CascadePlan
    from glassrank.research.evaluate.budget_curve import Speed
    from glassrank.research.evaluate.timed_models import JudgedQueries, Line, TimedModel, Track
    from glassrank.types import Run

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
    plan: Annotated[
        Path | None,
        typer.Option(
            help="A file for how deep each model goes, at any budget, when each re-ranks the best "
            "of those before it: search, rerank and serve take it. By the first measure."
        ),
    ] = None,
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
    from glassrank.cli.budget_report import check_plot, draw, plan_table, summary, tables
    from glassrank.index import Index
    from glassrank.research.evaluate import Measure
    from glassrank.research.evaluate.timed_models import (
        BudgetReport,
        JudgedQueries,
        default_most_ms,
    )

    for file in (json, plot, plan):
        check_writable(file)
    console.check_plan(plan, model)
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
    models, used = _open_models(model, opened, max(here.deepest, (dev or here).deepest), device)
    measured = _Measured.of(models, here, dev, repeats, track)
    lines = measured.lines(measures)
    report = BudgetReport(
        judged=len(here.qrels),
        deepest=here.deepest,
        chosen_on="run" if dev is None else "dev",
        machine=_machine(device),
        most_ms=max_ms or default_most_ms(lines),
        lines=lines,
    )
    write_json(report.to_json(), json)
    planned = None
    if plan is not None:
        planned = measured.plan(opened, measures[0], used)
        write_json(planned.to_json(), plan)
    if plot is not None:
        draw(report, plot)
    if not is_printed(json):
        for table in tables(report, console.out.width):
            console.out.print(table, "")
        if planned is not None:
            console.out.print(plan_table(planned, [model.label for model in models]), "")
        console.out.print(f"[dim]{summary(report)}[/]", soft_wrap=True)


def _open_models(
    models: list[str], index: "Index", deepest: int, device: str
) -> "tuple[list[TimedModel], list[Pipeline]]":
    """Each live, and with its store if the index has one; and each as it would be used."""
    from glassrank.embeddings import Store
    from glassrank.rerank import Pipeline, Reranker
    from glassrank.research.evaluate.timed_models import TimedModel, Way, labels

    opened, used = [], []
    for model, label in zip(models, labels(models), strict=True):
        reranker = Reranker.load(model, device)
        store = Store.find(index, reranker.model)
        last = Pipeline(index, reranker, use_store=False, candidates=deepest, calibrate=False)
        ways = [Way("live", last)]
        if store is not None:
            store.require(index.snapshot)  # what is encoded on the way would be measured as stored
            last = Pipeline(index, reranker, store=store, candidates=deepest, calibrate=False)
            ways.append(Way(f"stored, {store.dtype}", last))
        opened.append(TimedModel(label, ways))
        used.append(last)
    return opened, used


def _tracker(quiet: bool) -> "Track":
    def track(items: Sequence[Item], what: str, /) -> Iterator[Item]:
        return console.track(items, what, total=len(items), quiet=quiet)

    return track


@dataclass(frozen=True)
class _Measured:
    """Models with their speeds, and what they made of the queries."""

    models: "list[TimedModel]"
    speeds: "list[list[Speed]]"
    here: "JudgedQueries"
    dev: "JudgedQueries | None"
    scored: "list[Run]"
    dev_scored: "list[Run]"

    @classmethod
    def of(
        cls,
        models: "list[TimedModel]",
        here: "JudgedQueries",
        dev: "JudgedQueries | None",
        repeats: int,
        track: "Track",
    ) -> "_Measured":
        """One scoring pass for each model."""
        from glassrank.research.evaluate.timed_models import measure_speeds

        speeds = measure_speeds(models, here.queries, repeats, track)
        scored = [model.scored(here, track) for model in models]
        on_dev = [] if dev is None else [model.scored(dev, track) for model in models]
        return cls(models, speeds, here, dev, scored, on_dev)

    def lines(self, measures: list[str]) -> "list[Line]":
        """One for each of a model's ways to score."""
        from glassrank.research.evaluate.budget_curve import depth_values, time_curves
        from glassrank.research.evaluate.timed_models import Line

        deepest = self.here.deepest
        lines = []
        for number, model in enumerate(self.models):
            run, qrels = self.here.run, self.here.qrels
            values = depth_values(run, self.scored[number], qrels, measures, deepest)
            on_dev = None
            if self.dev is not None:
                run, qrels = self.dev.run, self.dev.qrels
                on_dev = depth_values(run, self.dev_scored[number], qrels, measures, deepest)
            for way, speed in zip(model.ways, self.speeds[number], strict=True):
                lines.append(Line(model.label, way.name, speed, time_curves(values, speed, on_dev)))
        return lines

    def plan(self, index: "Index", measure: str, used: "list[Pipeline]") -> "CascadePlan":
        """The models as a cascade, each as it is used: learned on dev queries if there are any."""
        from glassrank.models.io.model_folder import fingerprint
        from glassrank.rerank.scheduler import spare_ms
        from glassrank.research.evaluate.fit_cascade_plan import BUDGETS_MS, learn_plan
        from glassrank.research.evaluate.timed_models import first_stage_ms

        on, scored = (self.here, self.scored)
        if self.dev is not None:
            on, scored = (self.dev, self.dev_scored)
        before = first_stage_ms(index, used[0].method, on.queries, on.deepest)
        left = {budget: max(0.0, budget - before) for budget in BUDGETS_MS}
        return learn_plan(
            [fingerprint(pipeline.reranker.model) for pipeline in used],
            on.run,
            scored,
            [speeds[-1] for speeds in self.speeds],
            on.qrels,
            measure,
            {budget: ms - spare_ms(ms) for budget, ms in left.items()},
        )


def _machine(device: str) -> dict[str, Any]:
    from glassrank.backends.threads import num_threads

    return {"device": device, "threads": num_threads()}
