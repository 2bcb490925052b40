"""`glassrank explain`: why a document has its score, or why one is above another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassrank.cli import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.explain import Change, WhatIf
    from glassrank.rank import Reranker
    from glassrank.retrieve import Index

_CANDIDATES = 100
"""Among so many first-stage results a what-if's ranks are counted, unless the model says."""


def explain(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    query: Annotated[str, typer.Argument(help="The query.")],
    docs: Annotated[
        list[str], typer.Argument(metavar="DOC [DOC]", help="One document id, or two.")
    ],
    model: Annotated[
        str, typer.Option(help="A folder, or 'default' for the model that comes with the package.")
    ] = "default",
    html: Annotated[Path | None, typer.Option(help="An HTML file to write.")] = None,
    json: console.AsJson = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="[query:]WORD[=OTHER]",
            help="Remove a word of the (first) document or of the query, or replace it.",
        ),
    ] = None,
    device: console.Device = "cpu",
    exact: console.Exact = False,
) -> None:
    """Explain a document's score, or two documents side by side."""
    from glassrank.explain import compare, html_page
    from glassrank.explain import explain as explain_one
    from glassrank.explain.terminal import draw
    from glassrank.files import atomic_write
    from glassrank.rank import Reranker
    from glassrank.retrieve import Index
    from glassrank.store import text_of

    if len(docs) > 2:
        raise InputError(f"one or two document ids can be explained, not {len(docs)}")
    if json and html is not None:
        raise InputError("choose one of --json and --html")
    if what_if is not None and html is not None:
        raise InputError("--what-if is not drawn as HTML; leave one of the two out")
    opened = Index(index)
    texts = {doc_id: text_of(opened.doc(doc_id)) for doc_id in docs}
    reranker = Reranker.load(model, device, exact=exact)
    if what_if is not None:
        _answer(opened, reranker, query, docs[0], _change(what_if), json)
        return
    first = _first_stage(opened, reranker, query, docs)
    found = [
        explain_one(reranker, query, texts[doc_id], doc_id=doc_id, first_stage=first.get(doc_id))
        for doc_id in docs
    ]
    shown = compare(*found) if len(found) == 2 else found[0]
    if html is not None:
        with atomic_write(html) as file:
            file.write(html_page(shown))
        console.say(f"{html}: {' and '.join(docs)} explained")
    elif json:
        console.print_json(shown.to_json())
    else:
        console.out.print(draw(shown))


def _first_stage(
    index: "Index", reranker: "Reranker", query: str, docs: list[str]
) -> dict[str, float]:
    """The first stage's scores, where the model has a use for them. A document that it does not
    find has no word of the query, and the score 0."""
    if reranker.model.first_stage_weight is None:
        return {}
    found = index.search(query, len(index), reranker.usage.first_stage)
    return dict.fromkeys(docs, 0.0) | {hit.doc_id: hit.score for hit in found}


def _change(text: str) -> "Change":
    """
    >>> _change("query:define=definition")
    Change(side='query', word='define', by='definition')
    """
    from glassrank.explain import Change

    asked = text.removeprefix("query:")
    word, _, by = asked.partition("=")
    if not word:
        raise InputError(f"--what-if needs a word, as in WORD or query:WORD=OTHER, not {text!r}")
    return Change("query" if asked != text else "document", word, by)


def _answer(
    index: "Index", reranker: "Reranker", query: str, doc_id: str, change: "Change", json: bool
) -> None:
    """How the document moves among the first stage's results."""
    from glassrank.explain import what_if
    from glassrank.store import text_of

    depth = reranker.usage.depth or _CANDIDATES
    found = index.search(query, depth, reranker.usage.first_stage)
    ids = [hit.doc_id for hit in found]
    ids = ids if doc_id in ids else [*ids, doc_id]
    first = _first_stage(index, reranker, query, ids)
    answer = what_if(
        reranker,
        query,
        [text_of(index.doc(one)) for one in ids],
        change,
        doc=ids.index(doc_id),
        first_stage=[first[one] for one in ids] if first else None,
    )
    if json:
        console.print_json({**answer.to_json(), "doc_ids": ids})
    else:
        _show(answer, ids)


def _show(answer: "WhatIf", ids: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from glassrank.errors import safe
    from glassrank.explain.printing import number

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
