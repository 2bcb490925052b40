"""`glassrank search` and `glassrank explain`: one query, and why documents rank where they do."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from glassrank import console
from glassrank.errors import InputError, sanitize

if TYPE_CHECKING:
    from collections.abc import Callable

    from glassrank.explanations import Change
    from glassrank.index import Index
    from glassrank.rerank import Pipeline
    from glassrank.types import Hit, Ranking

_MANY = 200  # from this many documents on, encoding takes long enough to say so beforehand


def search(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    query: Annotated[str, typer.Argument(help="The query.")],
    method: console.ModelsMethod = None,
    first_stage: console.FirstStage = None,
    adaptive: console.Adaptive = None,
    regularization: console.Regularization = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Number of results.")] = 10,
    where: console.Where = None,
    model: console.ModelNames = None,
    budget_ms: console.BudgetMs = None,
    plan: console.PlanFile = None,
    device: console.Device = "cpu",
    exact: console.Exact = False,
    json: console.AsJson = False,
) -> None:
    """Search with one query; with a model, re-rank what the first stage finds."""
    from glassrank.rerank import Pipeline

    of_models = budget_ms, adaptive, regularization
    if model is None and any(value is not None for value in of_models):
        raise InputError("--budget-ms, --adaptive and --regularization need --model; give it too")
    console.check_plan(plan, model)
    pipeline = Pipeline.open(
        index,
        model,
        budget_ms=budget_ms,
        method=method,
        first_stage=first_stage,
        adaptive=adaptive,
        regularization=regularization,
        plan=plan,
        device=device,
        exact=exact,
        calibrate=budget_ms is not None,  # without a budget nothing is predicted
    )
    models = model or []
    if budget_ms is None:
        _warn_about_encoding(pipeline, models)
    ranking = pipeline(query, k, where=where)
    if json:
        name = models[0] if len(models) == 1 else model
        hits = ranking.to_json(_hit_describer(pipeline.index, query))
        about = {"method": pipeline.method, "retrieval": pipeline.retrieval, "model": name}
        console.print_json({**about, **hits})
        return
    show(pipeline.index, ranking, filtered=bool(where))
    if models:
        # Whoever gives no budget does not wait for a warm-up before the clock starts.
        console.say(timing_line(ranking) + (", without warm-up" if budget_ms is None else ""))
    for name, stage in zip(models, pipeline.stages, strict=True):
        if ranking.num_encoded and (stage.store is None or stage.num_missing):
            advice = f"store them with: {_encode_command(pipeline.index, name)}"
            if stage.store is not None:
                from glassrank.cli.encode import IncompleteStore

                store = IncompleteStore(stage.store.path, stage.store.layout, stage.num_missing)
                advice = store.advise(name)
            console.say(f"{ranking.num_encoded:,} documents were encoded on the fly; {advice}")


def _warn_about_encoding(pipeline: "Pipeline", models: list[str]) -> None:
    """Say so before a search that encodes many documents without a time limit."""
    most = min(pipeline.candidates, len(pipeline.index))
    for name, stage in zip(models, pipeline.stages, strict=True):
        if stage.store is None and most >= _MANY:
            console.say(
                f"There is no store for {name}: up to {most:,} documents are encoded now, which "
                f"may take minutes. To do it once: {_encode_command(pipeline.index, name)}. To "
                "limit the time: --budget-ms 200"
            )


def _encode_command(index: "Index", model: str) -> str:
    return shlex.join(["glassrank", "encode", str(index.path), "--model", model])


def _hit_describer(index: "Index", query: str) -> "Callable[[Hit], dict[str, object]]":
    snippets = index.snippets(query)

    def describe(hit: "Hit") -> dict[str, object]:
        doc = index.doc(hit.doc_id)
        fields: dict[str, object] = {"title": doc.title, "source": doc.source}
        fields["snippet"] = snippets(doc.text, passage=hit.passage).text
        return {**fields, "metadata": dict(doc.metadata)} if doc.metadata else fields

    return describe


def timing_line(ranking: "Ranking") -> str:
    """How deep the models went, and how long each step took."""
    hops = ", ".join(
        f"{name.replace('_', ' ')} {spent:.1f}"
        for name, spent in ranking.timing.items()
        if name != "total"
    )
    first, *further = [depth for depth in ranking.depths if depth] or [ranking.depth]
    deep = f"re-ranked {first:,}"
    if ranking.cut_short and first < ranking.found:
        deep += f" of {ranking.found:,} (budget exhausted at depth {first:,})"
    deep += "".join(f", then the best {depth:,} of them again" for depth in further if depth)
    return f"{deep} in {ranking.timing['total']:.1f} ms ({hops})"


def show(index: "Index", ranking: "Ranking", *, filtered: bool = False) -> None:
    """Print hits: rank, title, score, source and snippet."""
    if not ranking.hits:
        why = "no document contains a word of this query"
        if not ranking.query.strip():
            why = "the query is empty"
        elif not index.terms(ranking.query):
            why = "this query has only stop words, such as 'the' and 'of', which are not indexed"
        elif filtered:
            why = "no document that matches --where contains a word of this query"
        console.out.print(f"Nothing found: {why}.")
    width = max(100, min(200, console.out.width - 10))  # one line each if possible
    snippets = index.snippets(ranking.query)
    for hit in ranking:
        doc = index.doc(hit.doc_id)
        title = escape(sanitize(doc.title or doc.doc_id))
        console.out.print(
            f"[dim]{hit.rank:3}[/] [bold]{title}[/]  [cyan]{hit.score:.2f}[/]{_origin(hit)}"
            f"  [dim]{escape(sanitize(doc.source or doc.doc_id))}[/]",
            soft_wrap=True,
        )
        snippet = snippets(doc.text, width, hit.passage)
        text = Text("    " + sanitize(snippet.text), style="")
        for start, stop in snippet.matches:
            text.stylize("bold yellow", start + 4, stop + 4)
        console.out.print(text, soft_wrap=True)


def _origin(hit: "Hit") -> str:
    """The first stage's rank if it is another, and how the hit was found unless by its words."""
    origin = ""
    if hit.first_rank is not None and hit.first_rank != hit.rank:
        origin = f" [dim]{'↑' if hit.first_rank > hit.rank else '↓'} from {hit.first_rank}[/]"
    if "by words" not in hit.found:
        origin += f" [magenta]{escape(sanitize(hit.found))}[/]"
    return origin


def explain(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    query: Annotated[str, typer.Argument(help="The query.")],
    docs: Annotated[
        list[str], typer.Argument(metavar="DOC [DOC]", help="One document id, or two.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder, or 'strong', 'default', 'fast' or 'tiny' from the package. "
            "Of a cascade, the model that ranked the document is explained."
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Also show kernels and raw values.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write an HTML file.")] = None,
    json: console.AsJson = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="[query:]WORD[=OTHER]",
            help="Remove or replace a word of the (first) document or of the query.",
        ),
    ] = None,
    method: console.ModelsMethod = None,
    first_stage: console.FirstStage = None,
    regularization: console.Regularization = None,
    device: console.Device = "cpu",
    exact: console.Exact = False,
) -> None:
    """Explain a document's score, or two documents side by side."""
    from glassrank.explanations import compare_if_two, explain_docs, html_page
    from glassrank.explanations.terminal import draw
    from glassrank.rerank import Pipeline
    from glassrank.storage.files import atomic_write

    if len(docs) > 2:
        raise InputError(f"expected one or two document ids, found {len(docs)}")
    if json and html is not None:
        raise InputError("give --json or --html, not both")
    if what_if is not None and html is not None:
        raise InputError("--what-if has no HTML form; leave out --html")
    pipeline = Pipeline.open(
        *(index, model or "default"),
        method=method,
        first_stage=first_stage,
        regularization=regularization,
        device=device,
        exact=exact,
        calibrate=False,
    )
    if what_if is not None:
        _what_if(pipeline, query, docs[0], _change(what_if), json)
        return
    shown = compare_if_two(explain_docs(pipeline, query, docs))
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
        raise InputError(f"--what-if takes WORD or query:WORD=OTHER, found {text!r}")
    return Change("query" if asked != text else "document", word, by)


def _what_if(pipeline: "Pipeline", query: str, doc_id: str, change: "Change", json: bool) -> None:
    """Print how a change moves the document among the first stage's results."""
    from rich.table import Table

    from glassrank.explanations import what_if_doc
    from glassrank.explanations.structure import format_number

    answer, ids = what_if_doc(pipeline, query, doc_id, change)
    if json:
        console.print_json({**answer.to_json(), "doc_ids": ids})
        return
    moved = answer.moved[answer.doc]
    console.out.print(Text(f"query: {sanitize(answer.query)}\n\n{sanitize(answer.text)}\n"))
    console.out.print(
        f"score {format_number(moved.score_before)} -> {format_number(moved.score_after)}, "
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
            format_number(row.score_before),
            format_number(row.score_after),
        )
    if others:
        console.out.print(table)
