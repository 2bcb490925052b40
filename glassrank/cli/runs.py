"""`glassrank retrieve` and `glassrank rerank`: the first or second stage for many queries."""

import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from glassrank import console
from glassrank.cli import on_cluster
from glassrank.errors import InputError


def retrieve(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    queries: Annotated[str, typer.Argument(help="TSV, JSONL or TREC topics (or .gz).")],
    out: Annotated[Path, typer.Option(help="The run to write, in TREC's format.")],
    method: console.MethodName = "bm25",
    depth: Annotated[int, typer.Option(min=1, help="Documents for each query.")] = 1000,
    where: console.Where = None,
    field: console.TopicField = "title",
    tag: console.Tag = "glassrank",
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    ray: on_cluster.Address = None,
    shards: on_cluster.ShardCount = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Search with many queries and write a run."""
    from glassrank.corpus import read_queries, write_run
    from glassrank.index import Index

    console.check_writable(out)
    on_cluster.check_shards(shards, ray)
    asked = read_queries(queries, field)
    with (
        nullcontext(Index(index))
        if ray is None
        else on_cluster.open_index(index, ray, shards) as opened
    ):
        started = time.perf_counter()
        with console.working(f"Searching for {len(asked):,} queries", quiet=quiet):
            run = opened.retrieve(asked, depth, method, threads, where=where)
        seconds = time.perf_counter() - started
    write_run(run, out, tag)
    if json:
        console.print_json(
            {"run": str(out), "queries": len(run), "lines": len(run.doc_ids), "seconds": seconds}
        )
    else:
        console.say(
            f"{out}: {len(run.doc_ids):,} documents for {len(run):,} queries, "
            f"{len(run) / seconds:,.0f} queries a second",
            quiet=quiet,
        )


def rerank(
    run: Annotated[Path, typer.Argument(help="The first stage's run.")],
    index: Annotated[Path, typer.Option(help="The index that holds the documents' text.")],
    queries: Annotated[str, typer.Option(help="TSV, JSONL or TREC topics (or .gz).")],
    model: Annotated[
        list[str],
        typer.Option(
            help="A model folder, or 'default'. Repeat it for a cascade: each further model "
            "re-ranks the best of the one before."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run to write.")],
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="How deep to re-rank; default: the model's own depth."),
    ] = None,
    budget_ms: console.BudgetMs = None,
    plan: console.PlanFile = None,
    regularization: console.Regularization = None,
    field: console.TopicField = "title",
    tag: console.Tag = "glassrank",
    device: console.Device = "cpu",
    exact: console.Exact = False,
    ray: on_cluster.Address = None,
    shards: on_cluster.ShardCount = None,
    quiet: console.Quiet = False,
) -> None:
    """Re-rank a run with a trained model, from its document store if the index has one."""
    from glassrank.corpus import read_queries, read_run, write_run
    from glassrank.rerank import Pipeline, rerank_run
    from glassrank.types import Run

    console.check_plan(plan, model)
    console.check_writable(out)
    on_cluster.check_shards(shards, ray)
    first = read_run(run)
    texts = {query.query_id: query.text for query in read_queries(queries, field)}
    unknown = [query_id for query_id in first.query_ids if query_id not in texts]
    if unknown:
        raise InputError(
            f"{queries} has no query {unknown[0]!r}, which is in {run}; give the run's queries"
        )
    if ray is not None and device != "cpu":
        raise InputError("a cluster re-ranks on CPUs; leave out --device or --ray")
    with ExitStack() as stack:
        options: Any = {
            "budget_ms": budget_ms,
            "candidates": depth,
            "plan": plan,
            "regularization": regularization,
            "exact": exact,
        }
        pipeline = (
            Pipeline.open(index, model, device=device, **options)
            if ray is None
            else stack.enter_context(on_cluster.open_pipeline(index, ray, shards, model, **options))
        )
        started = time.perf_counter()
        ranked = rerank_run(pipeline, first, texts)
        rows = list(console.track(ranked, "Re-ranking", total=len(first), quiet=quiet))
        seconds = time.perf_counter() - started
    write_run(Run.from_rankings(rows), out, tag)
    depths = [ranking.depth for _, ranking in rows]
    mean = f"{sum(depths) / len(depths):,.0f} candidates each" if rows else "nothing"
    console.say(f"{out}: {len(rows):,} queries, {mean}, in {seconds:.1f} s", quiet=quiet)
    if missing := sorted({name for _, ranking in rows for name in ranking.missing}):
        late = sum(bool(ranking.missing) for _, ranking in rows)
        console.say(f"{late:,} queries lack shards that were late: {', '.join(missing)}")
