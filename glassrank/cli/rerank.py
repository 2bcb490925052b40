"""`glassrank rerank`: the second stage for a run."""

import time
from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console
from glassrank.errors import InputError


def rerank(
    run: Annotated[Path, typer.Argument(help="The first stage's run.")],
    index: Annotated[Path, typer.Option(help="The index that holds the documents' text.")],
    queries: Annotated[str, typer.Option(help="TSV, JSONL or TREC topics (or .gz).")],
    model: Annotated[Path, typer.Option(help="A model folder.")],
    out: Annotated[Path, typer.Option(help="The run to write.")],
    depth: Annotated[
        int | None, typer.Option(help="How many to re-rank; the model's own depth unless given.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda:1.")] = "cpu",
    quiet: console.Quiet = False,
) -> None:
    """Re-rank a run with a trained model."""
    from glassrank.corpus import read_queries, read_run, write_run
    from glassrank.rank import Reranker, rerank_rows
    from glassrank.retrieve import Index
    from glassrank.types import Run

    first = read_run(run)
    texts = {query.query_id: query.text for query in read_queries(queries)}
    unknown = [query_id for query_id in first.query_ids if query_id not in texts]
    if unknown:
        raise InputError(
            f"{queries} has no query {unknown[0]!r}, which {run} has; give its queries"
        )
    opened = Index(index)
    reranker = Reranker.load(model, device)
    depth = depth or reranker.usage.depth

    def text(doc_id: str) -> str:
        doc = opened.doc(doc_id)
        return f"{doc.title} {doc.text}" if doc.title else doc.text

    started = time.perf_counter()
    rows = rerank_rows(reranker, first, texts, text, depth)
    better = Run.from_rows(console.track(rows, "Re-ranking", total=len(first), quiet=quiet))
    seconds = time.perf_counter() - started
    write_run(better, out)
    console.say(
        f"{out}: {len(better):,} queries re-ranked to depth {depth or 'all'} in {seconds:.1f} s",
        quiet=quiet,
    )
