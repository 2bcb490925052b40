"""`glassrank search` and `glassrank explain`: one query, and why documents rank as they do."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from glassrank.cli import console
from glassrank.errors import InputError, sanitize

if TYPE_CHECKING:
    from collections.abc import Callable

    from glassrank.explanations import Change, WhatIf
    from glassrank.index import Index
    from glassrank.rerank import Pipeline
    from glassrank.types import Hit, Ranking


_MANY = 200
"""Documents that are encoded while somebody waits."""


def search(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    method: console.ModelsMethod = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many results.")] = 10,
    where: console.Where = None,
    model: console.ModelNames = None,
    budget_ms: console.BudgetMs = None,
    plan: console.PlanFile = None,
    device: console.Device = "cpu",
    exact: console.Exact = False,
    json: console.AsJson = False,
) -> None:
    """Search for one query; with a model, re-rank what was found."""
    from glassrank.index import Index

    if budget_ms is not None and model is None:
        raise InputError("--budget-ms is for re-ranking; it goes with --model")
    console.check_plan(plan, model)
    if model is None:
        # Without all that ranks with models, which takes longer to import than the search does.
        opened, used, pipeline = Index(index), method or "bm25", None
        ranking = _as_staged(opened.search(query, k, used, where=where))
    else:
        from glassrank.rerank import Pipeline

        pipeline = Pipeline.open(
            index,
            model,
            budget_ms=budget_ms,
            method=method,
            plan=plan,
            device=device,
            exact=exact,
            calibrate=budget_ms is not None,  # nothing is predicted where time does not matter
        )
        opened, used = pipeline.index, pipeline.method
        if budget_ms is None:
            _say_what_takes_long(pipeline, model)
        ranking = pipeline(query, k, where=where)
    if json:
        named = model[0] if model and len(model) == 1 else model
        answer = {"method": used, "model": named, **ranking.to_json(_described(opened, query))}
        console.print_json(answer)
        return
    show(opened, ranking, filtered=bool(where))
    if model is not None and pipeline is not None:
        from glassrank.cli.encode import Lacking

        console.say(timing_line(ranking))
        for name, stage in zip(model, pipeline.stages, strict=True):
            if ranking.num_encoded and (stage.store is None or stage.num_missing):
                advice = f"store them with: {_encoding(opened, name)}"
                if stage.store is not None:
                    advice = Lacking(
                        stage.store.path, stage.store.layout, stage.num_missing
                    ).advice(name)
                console.say(f"{ranking.num_encoded:,} of them were encoded on the way; {advice}")


def _say_what_takes_long(pipeline: "Pipeline", models: list[str]) -> None:
    """Before a search that may take as long as it takes."""
    most = min(pipeline.candidates, len(pipeline.index))
    for name, stage in zip(models, pipeline.stages, strict=True):
        if stage.store is None and most >= _MANY:
            console.say(
                f"Nothing is stored for {name}: up to {most:,} documents are encoded now, which "
                f"may take minutes. {_encoding(pipeline.index, name)} does it once; "
                "--budget-ms 200 takes as many as there is time for"
            )


def _encoding(index: "Index", model: str) -> str:
    """What a person types to store all documents."""
    return shlex.join(["glassrank", "encode", str(index.path), "--model", model])


def _as_staged(ranking: "Ranking") -> "Ranking":
    """As a pipeline of the first stage alone tells it."""
    hits = tuple(hit._replace(first_rank=hit.rank, first_score=hit.score) for hit in ranking)
    timing = {**ranking.timing, "total": sum(ranking.timing.values())}
    return replace(ranking, hits=hits, timing=timing)


def _described(index: "Index", query: str) -> "Callable[[Hit], dict[str, object]]":
    snippets = index.snippets(query)

    def described(hit: "Hit") -> dict[str, object]:
        doc = index.doc(hit.doc_id)
        told: dict[str, object] = {"title": doc.title, "source": doc.source}
        told["snippet"] = snippets(doc.text, passage=hit.passage).text
        return {**told, "metadata": dict(doc.metadata)} if doc.metadata else told

    return described


def timing_line(ranking: "Ranking") -> str:
    """How deep the second stage went, and where the time was spent."""
    hops = ", ".join(
        f"{name.replace('_', ' ')} {spent:.1f}"
        for name, spent in ranking.timing.items()
        if name != "total"
    )
    first, *further = [depth for depth in ranking.depths if depth] or [ranking.depth]
    deep = f"re-ranked {first:,}"
    if ranking.cut_short and first < ranking.found:
        deep += f" of {ranking.found:,}, which is where time ended,"
    deep += "".join(f" and the best {depth:,} of them once more" for depth in further if depth)
    return f"{deep} in {ranking.timing['total']:.1f} ms ({hops})"


def show(index: "Index", ranking: "Ranking", *, filtered: bool = False) -> None:
    """Results as people read them: rank, title, where from, and why."""
    if not ranking.hits:
        why = "no document has a word of this query"
        if not index.terms(ranking.query):
            why = "this query has no words but such as 'the' and 'of', which are not looked for"
        elif filtered:
            why = "no document that fits --where has a word of this query"
        console.out.print(f"Nothing found: {why}.")
    width = max(100, min(200, console.out.width - 10))  # one line each, where there is room
    snippets = index.snippets(ranking.query)
    for hit in ranking:
        doc = index.doc(hit.doc_id)
        title = escape(sanitize(doc.title or doc.doc_id))
        console.out.print(
            f"[dim]{hit.rank:3}[/] [bold]{title}[/]  [cyan]{hit.score:.2f}[/]{_moved(hit)}"
            f"  [dim]{escape(sanitize(doc.source or doc.doc_id))}[/]",
            soft_wrap=True,
        )
        snippet = snippets(doc.text, width, hit.passage)
        text = Text("    " + sanitize(snippet.text), style="")
        for start, stop in snippet.matches:
            text.stylize("bold yellow", start + 4, stop + 4)
        console.out.print(text, soft_wrap=True)


def _moved(hit: "Hit") -> str:
    """Where the first stage had it, if elsewhere."""
    if hit.first_rank is None or hit.first_rank == hit.rank:
        return ""
    arrow = "↑" if hit.first_rank > hit.rank else "↓"
    return f" [dim]{arrow} from {hit.first_rank}[/]"


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
    full: Annotated[bool, typer.Option("--full", help="Kernels and raw values as well.")] = False,
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
    from glassrank.explanations import explain_docs, html_page, one_or_both
    from glassrank.explanations.terminal import draw
    from glassrank.rerank import Pipeline
    from glassrank.storage.files import atomic_write

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
        _what_if(pipeline, query, docs[0], _change(what_if), json)
        return
    shown = one_or_both(explain_docs(pipeline, query, docs))
    if html is not None:
        with atomic_write(html) as file:
            file.write(html_page(shown))
        console.say(f"{html}: {' and '.join(docs)} explained")
    elif json:
        console.print_json(shown.to_json())
    else:
        console.out.print(draw(shown, full))


def _change(text: str) -> "Change":
    """
    >>> _change("query:define=definition")
    Change(side='query', word='define', by='definition')
    """
    from glassrank.explanations import Change

    asked = text.removeprefix("query:")
    word, _, by = asked.partition("=")
    if not word:
        raise InputError(f"--what-if needs a word, as in WORD or query:WORD=OTHER, not {text!r}")
    return Change("query" if asked != text else "document", word, by)


def _what_if(pipeline: "Pipeline", query: str, doc_id: str, change: "Change", json: bool) -> None:
    """How the document moves among the first stage's results."""
    from glassrank.explanations import what_if_doc

    answer, ids = what_if_doc(pipeline, query, doc_id, change)
    if json:
        console.print_json({**answer.to_json(), "doc_ids": ids})
    else:
        _show_what_if(answer, ids)


def _show_what_if(answer: "WhatIf", ids: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from glassrank.errors import sanitize
    from glassrank.explanations.structure import number

    moved = answer.moved[answer.doc]
    console.out.print(Text(f"query: {sanitize(answer.query)}\n\n{sanitize(answer.text)}\n"))
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
            Text(sanitize(doc_id)),
            number(row.score_before),
            number(row.score_after),
        )
    if others:
        console.out.print(table)
