"""`glassrank budget`: quality against time, for several models over the same candidates."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from glassrank import console
from glassrank.console import JsonFile, check_writable, is_printed, write_json
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.index import Index
    from glassrank.rerank.cascade_plan import CascadePlan
    from glassrank.research.evaluate.budget_curve import Speed
    from glassrank.research.evaluate.measures import Floats
    from glassrank.research.evaluate.timed_models import JudgedQueries, TimedModel
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
        Path | None, typer.Option(help="A run of dev queries, for the choice of depths.")
    ] = None,
    dev_qrels: Annotated[str | None, typer.Option(help="Judgments of the dev queries.")] = None,
    dev_queries: Annotated[str | None, typer.Option(help="The dev queries.")] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="Default: RR@10, R@10 and nDCG@10; repeatable."),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Most candidates to score; default: all.")
    ] = None,
    max_ms: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Longest time; default: that of all candidates, up to 1,000."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of each timing.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture: .svg, .png or .pdf.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Write a cascade plan, fitted by the first measure: how deep each model goes at "
            "any budget. search, rerank and serve take it."
        ),
    ] = None,
    json: JsonFile = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
) -> None:
    """Measure quality at every depth and every millisecond of re-ranking.

    Each model scores all candidates once, from its store if the index has
    one. Its speed, with and without the store, gives the depth that it
    reaches in a given time: encoding the query and scoring, without the first
    stage. Depths are chosen on dev queries if there are any.
    """
    from glassrank.backends.threads import num_threads
    from glassrank.index import Index
    from glassrank.research.commands import budget_report
    from glassrank.research.evaluate import Measure
    from glassrank.research.evaluate import timed_models as timed
    from glassrank.research.evaluate.budget_curve import evaluate_by_depth, make_time_curves

    for file in (json, plot, plan):
        check_writable(file)
    console.check_plan(plan, model)
    if plot is not None:
        budget_report.check_plot(plot)
    measures = [str(Measure.parse(name)) for name in measure or _DEFAULT]
    opened = Index(index)
    say = partial(console.say, quiet=quiet)
    here = timed.JudgedQueries.read(run, qrels, queries, opened, depth, say)
    dev = None
    if dev_run is not None and dev_qrels is not None and dev_queries is not None:
        dev = timed.JudgedQueries.read(dev_run, dev_qrels, dev_queries, opened, depth, say)
    elif (dev_run, dev_qrels, dev_queries) != (None, None, None):
        raise InputError("give --dev-run, --dev-qrels and --dev-queries together")
    models = _open_models(model, opened, max(here.deepest, (dev or here).deepest), device)

    def track(items: Sequence[Item], what: str, /) -> Iterator[Item]:
        return console.track(items, what, total=len(items), quiet=quiet)

    speeds = timed.time_models(models, here.queries, repeats, track)
    runs = [model.score_all(here, track) for model in models]
    dev_runs = [] if dev is None else [model.score_all(dev, track) for model in models]

    def by_depth(judged: timed.JudgedQueries, run: "Run") -> "dict[str, Floats]":
        return evaluate_by_depth(judged.run, run, judged.qrels, measures, here.deepest)

    lines = []
    for number, timed_model in enumerate(models):
        values = by_depth(here, runs[number])
        on_dev = None if dev is None else by_depth(dev, dev_runs[number])
        for variant, speed in zip(timed_model.variants, speeds[number], strict=True):
            curves = make_time_curves(values, speed, on_dev)
            lines.append(timed.Line(timed_model.label, variant.name, speed, curves))
    report = timed.BudgetReport(
        judged=len(here.qrels),
        deepest=here.deepest,
        chosen_on="run" if dev is None else "dev",
        machine={"device": device, "threads": num_threads()},
        max_ms=max_ms or timed.default_max_ms(lines),
        lines=lines,
    )
    write_json(report.to_json(), json)
    planned = None
    if plan is not None:
        planned = _fit_plan(opened, dev or here, dev_runs or runs, speeds, measures[0], models)
        write_json(planned.to_json(), plan)
    if plot is not None:
        budget_report.draw(report, plot)
    if not is_printed(json):
        for table in budget_report.tables(report, console.out.width):
            console.out.print(table, "")
        if planned is not None:
            labels = [timed_model.label for timed_model in models]
            console.out.print(budget_report.plan_table(planned, labels), "")
        console.out.print(f"[dim]{budget_report.summary(report)}[/]", soft_wrap=True)


def _open_models(
    models: list[str], index: "Index", deepest: int, device: str
) -> "list[TimedModel]":
    """Each model on the fly, and with its store if there is one."""
    from glassrank.embeddings import Store
    from glassrank.rerank import Pipeline, Reranker
    from glassrank.research.evaluate.timed_models import TimedModel, Variant, make_labels

    opened = []
    for model, label in zip(models, make_labels(models), strict=True):
        reranker = Reranker.load(model, device)
        store = Store.find(index, reranker.model)
        # Scores of all candidates serve every depth: similar documents would reach beyond it.
        make = partial(
            Pipeline, index, reranker, candidates=deepest, calibrate=False, regularization=0.0
        )
        variants = [Variant("on the fly", make(use_store=False))]
        if store is not None:
            store.require(index.snapshot)  # encoding on the fly would count as stored
            variants.append(Variant(f"stored, {store.dtype}", make(store=store)))
        opened.append(TimedModel(label, variants))
    return opened


def _fit_plan(
    index: "Index",
    judged: "JudgedQueries",
    runs: "list[Run]",
    speeds: "list[list[Speed]]",
    measure: str,
    models: "list[TimedModel]",
) -> "CascadePlan":
    from glassrank.models.io.model_folder import fingerprint
    from glassrank.rerank.scheduler import scoring_reserve_ms
    from glassrank.research.evaluate.fit_cascade_plan import BUDGETS_MS, fit_plan
    from glassrank.research.evaluate.timed_models import time_first_stage

    used = [model.variants[-1].pipeline for model in models]
    before = time_first_stage(index, used[0].method, judged.queries, judged.deepest)
    left = {budget: max(0.0, budget - before) for budget in BUDGETS_MS}
    return fit_plan(
        [fingerprint(pipeline.reranker.model) for pipeline in used],
        judged.run,
        runs,
        [variants[-1] for variants in speeds],
        judged.qrels,
        measure,
        {budget: ms - scoring_reserve_ms(ms) for budget, ms in left.items()},
    )
