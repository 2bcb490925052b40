"""`glassrank retrieve` and `glassrank rerank`: either stage for many queries, as a run."""

import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console, on_cluster
from glassrank.errors import InputError


def retrieve(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    queries: Annotated[str, typer.Argument(help="TSV, JSONL or TREC topics (or .gz).")],
    out: Annotated[Path, typer.Option(help="The run to write, in TREC's format.")],
    method: console.MethodName = "bm25",
    depth: Annotated[int, typer.Option(help="How many documents for each query.")] = 1000,
    where: console.Where = None,
    field: console.TopicField = "title",
    tag: console.Tag = "glassrank",
    threads: Annotated[int | None, typer.Option(help="All cores unless given.")] = None,
    ray: on_cluster.Address = None,
    shards: on_cluster.ShardCount = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Search for many queries and write a run."""
    from glassrank.corpus import read_queries, write_run
    from glassrank.index import Index

    asked = read_queries(queries, field)
    with (
        nullcontext(Index(index))
        if ray is None
        else on_cluster.opened(index, ray, shards) as opened
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
            help="A model folder, or 'default'. Of several, each further one re-ranks the best of "
            "those before it."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run to write.")],
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="How many to re-rank; the model's own depth unless given."),
    ] = None,
    budget_ms: console.BudgetMs = None,
    plan: console.PlanFile = None,
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
    first = read_run(run)
    texts = {query.query_id: query.text for query in read_queries(queries, field)}
    unknown = [query_id for query_id in first.query_ids if query_id not in texts]
    if unknown:
        raise InputError(
            f"{queries} has no query {unknown[0]!r}, which {run} has; give its queries"
        )
    if ray is not None and device != "cpu":
        raise InputError(
            "on a cluster, documents are re-ranked by its processors; leave out --device"
        )
    with ExitStack() as stack:
        if ray is None:
            pipeline = Pipeline.open(
                index,
                model,
                budget_ms=budget_ms,
                candidates=depth,
                plan=plan,
                device=device,
                exact=exact,
            )
        else:
            pipeline = stack.enter_context(
                on_cluster.pipeline(
                    index,
                    ray,
                    shards,
                    model,
                    budget_ms=budget_ms,
                    candidates=depth,
                    plan=plan,
                    exact=exact,
                )
            )
        started = time.perf_counter()
        ranked = rerank_run(pipeline, first, texts)
        rows = list(console.track(ranked, "Re-ranking", total=len(first), quiet=quiet))
        seconds = time.perf_counter() - started
    write_run(Run.from_rankings(rows), out, tag)
    depths = [ranking.depth for _, ranking in rows]
    deep = f"{sum(depths) / max(1, len(depths)):,.0f} candidates each" if rows else "nothing"
    console.say(f"{out}: {len(rows):,} queries, {deep}, in {seconds:.1f} s", quiet=quiet)
    if missing := sorted({name for _, ranking in rows for name in ranking.missing}):
        late = sum(bool(ranking.missing) for _, ranking in rows)
        console.say(f"{late:,} queries without these shards, which were late: {', '.join(missing)}")
