"""`glassrank explain`: why a document has its score, or why one is above another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassrank.cli import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.explaining import Change, WhatIf
    from glassrank.ranking import Pipeline


def explain(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    query: Annotated[str, typer.Argument(help="The query.")],
    docs: Annotated[
        list[str], typer.Argument(metavar="DOC [DOC]", help="One document id, or two.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder, or 'default' or 'fast', which come with the package. Of several, "
            "the one explains that placed the document."
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Kernels and raw values as well.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="An HTML file to write.")] = None,
    json: console.AsJson = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="[query:]WORD[=OTHER]",
            help="Remove a word of the (first) document or of the query, or replace it.",
        ),
    ] = None,
    method: console.ModelsMethod = None,
    device: console.Device = "cpu",
    exact: console.Exact = False,
) -> None:
    """Explain a document's score, or two documents side by side."""
    from glassrank.explaining import explain_docs, html_page, one_or_both
    from glassrank.explaining.terminal import draw
    from glassrank.files import atomic_write
    from glassrank.ranking import Pipeline

    if len(docs) > 2:
        raise InputError(f"one or two document ids can be explained, not {len(docs)}")
    if json and html is not None:
        raise InputError("choose one of --json and --html")
    if what_if is not None and html is not None:
        raise InputError("--what-if is not drawn as HTML; leave one of the two out")
    pipeline = Pipeline.open(
        index, model or "default", method=method, device=device, exact=exact, calibrate=False
    )
    if what_if is not None:
        _answer(pipeline, query, docs[0], _change(what_if), json)
        return
    shown = one_or_both(explain_docs(pipeline, query, docs))
    if html is not None:
        with atomic_write(html) as file:
            file.write(html_page(shown))
        console.say(f"{html}: {' and '.join(docs)} explained")
    elif json:
        console.print_json(shown.to_json())
    else:
        console.out.print(draw(shown, details))


def _change(text: str) -> "Change":
    """
    >>> _change("query:define=definition")
    Change(side='query', word='define', by='definition')
    """
    from glassrank.explaining import Change

    asked = text.removeprefix("query:")
    word, _, by = asked.partition("=")
    if not word:
        raise InputError(f"--what-if needs a word, as in WORD or query:WORD=OTHER, not {text!r}")
    return Change("query" if asked != text else "document", word, by)


def _answer(pipeline: "Pipeline", query: str, doc_id: str, change: "Change", json: bool) -> None:
    """How the document moves among the first stage's results."""
    from glassrank.explaining import what_if_doc

    answer, ids = what_if_doc(pipeline, query, doc_id, change)
    if json:
        console.print_json({**answer.to_json(), "doc_ids": ids})
    else:
        _show(answer, ids)


def _show(answer: "WhatIf", ids: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from glassrank.errors import safe
    from glassrank.explaining.structure import number

    moved = answer.moved[answer.doc]
    console.out.print(Text(f"query: {safe(answer.query)}\n\n{safe(answer.text)}\n"))
    console.out.print(
        f"score {number(moved.score_before)} -> {number(moved.score_after)}, "
        f"rank {moved.rank_before} -> {moved.rank_after} of {len(ids)}"
    )
    others = [
        (doc_id, row)
        for doc_id, row in zip(ids, answer.moved, strict=True)
        if row.rank_before != row.rank_after
    ]
    table = Table("rank", "now", "document", "score", "now", box=None)
    for doc_id, row in sorted(others, key=lambda pair: pair[1].rank_after):
        table.add_row(
            str(row.rank_before),
            str(row.rank_after),
            Text(safe(doc_id)),
            number(row.score_before),
            number(row.score_after),
        )
    if others:
        console.out.print(table)
