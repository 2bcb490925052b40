"""`glassrank judge`: judge the pooled results of several models by hand."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassrank import console
from glassrank.errors import sanitize

if TYPE_CHECKING:
    from glassrank.research.judge import PooledDoc

_MOST_CHARS = 1_500
"""Of a document on the screen."""


def judge(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    queries: Annotated[str, typer.Argument(help="TSV, JSONL or TREC topics (or .gz).")],
    out: Annotated[Path, typer.Option(help="The qrels to write, or to go on with.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model whose results are pooled with BM25's; repeatable."),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Documents of each ranker.")] = 10,
    field: console.TopicField = "title",
) -> None:
    """Judge by hand: one key for each document, qrels out; run it again to go on."""
    from glassrank.corpus import read_queries
    from glassrank.index import Index
    from glassrank.rerank import Pipeline, Reranker
    from glassrank.research.judge import judge as ask_for_all

    asked = read_queries(queries, field)
    opened = Index(index)
    rerankers = [Reranker.load(name) for name in model or ("default", "fast")]
    pipelines = [Pipeline(opened), *(Pipeline(opened, each) for each in rerankers)]
    count = ask_for_all(pipelines, asked, out, _ask, depth)
    console.out.print(f"{count:,} judgments added to {out}", markup=False, highlight=False)


def _ask(pair: "PooledDoc") -> str:
    """Shows a pair until a known key is pressed."""
    from glassrank.research.judge import BACK, LABELS, QUIT, SKIP

    text = sanitize(pair.hit.text)
    shown = text[:_MOST_CHARS] + (" …" if len(text) > _MOST_CHARS else "")
    console.out.rule(f"{pair.query.query_id}: {pair.place} of {pair.of}")
    console.out.print(sanitize(pair.query.text), style="bold", markup=False, highlight=False)
    for part in (sanitize(pair.hit.title), shown):
        console.out.print(part, markup=False, highlight=False)
    hint = f"0 not relevant … 3 perfect; {BACK} back, {SKIP} skip, {QUIT} quit"
    console.out.print(hint, style="dim", markup=False, highlight=False)
    while True:
        key = typer.getchar() if sys.stdin.isatty() else sys.stdin.read(1) or QUIT
        if key in (*LABELS, BACK, SKIP, QUIT):
            return key
