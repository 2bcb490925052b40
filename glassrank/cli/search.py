"""`glassrank search`: one query, shown or as JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from glassrank.cli import console

if TYPE_CHECKING:
    from glassrank.retrieve import Index
    from glassrank.types import Ranking


def search(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    method: console.MethodName = "bm25",
    k: Annotated[int, typer.Option("--k", "-k", help="How many results.")] = 10,
    json: console.AsJson = False,
) -> None:
    """Search for one query."""
    from glassrank.retrieve import Index

    opened = Index(index)
    ranking = opened.search(query, k, method)
    if json:
        console.print_json(
            {
                "query": query,
                "method": method,
                "timing_ms": dict(ranking.timing),
                "hits": [
                    {
                        "rank": hit.rank,
                        "doc_id": hit.doc_id,
                        "score": hit.score,
                        "title": (doc := opened.doc(hit.doc_id)).title,
                        "source": doc.source,
                        "snippet": opened.snippet(query, hit.doc_id).text,
                    }
                    for hit in ranking
                ],
            }
        )
    else:
        show(opened, ranking)


def show(index: "Index", ranking: "Ranking") -> None:
    """Results as people read them: rank, title, where from, and why."""
    if not ranking.hits:
        console.out.print("Nothing found: no document has a word of this query.")
    width = max(100, min(200, console.out.width - 10))  # one line each, where there is room
    for hit in ranking:
        doc = index.doc(hit.doc_id)
        title = escape(doc.title or doc.doc_id)
        console.out.print(
            f"[dim]{hit.rank:3}[/] [bold]{title}[/]  [cyan]{hit.score:.2f}[/]"
            f"  [dim]{escape(doc.source or doc.doc_id)}[/]",
            soft_wrap=True,
        )
        snippet = index.snippet(ranking.query, hit.doc_id, length=width)
        text = Text("    " + snippet.text, style="")
        for start, stop in snippet.matches:
            text.stylize("bold yellow", start + 4, stop + 4)
        console.out.print(text, soft_wrap=True)
