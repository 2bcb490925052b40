"""`glassrank retrieve`: the first stage for many queries, as a run."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console, on_cluster


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
    from glassrank.retrieve import Index

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
