"""`/search`: one query or several within one budget, in one response or as a stream. `/explain`:
why a document has its score; two documents, or two models, side by side; what a change would do.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from glassrank.deadline import Deadline, now, thread_time
from glassrank.explanations import (
    Change,
    Explanation,
    compare_if_two,
    explain_docs,
    what_if,
    what_if_doc,
)
from glassrank.explanations.explainers import explain_text
from glassrank.index.snippets import MAX_CHARS_READ, SNIPPET_CHARS, SnippetMaker
from glassrank.rerank import Pipeline
from glassrank.serve.error_responses import HttpError, bad_request
from glassrank.serve.interleaving import Interleaving
from glassrank.serve.limits import Limits
from glassrank.serve.loaded import LoadedIndex
from glassrank.serve.query_log import MOST_SHOWN
from glassrank.serve.schemas import ExplainRequest, SearchRequest, check_method
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.tracing import span
from glassrank.types import Hit, Ranking

NDJSON = "application/x-ndjson"

_ALWAYS_SHOWN = 10
"""Hits of a request that get a title and a snippet however late it is: users need to see some."""

Emit = Callable[[bytes], None]


async def search(service: Service, request: Request, params: SearchRequest) -> Response:
    """Checks a request at once, then runs it in a thread within its budget."""
    params.check(service.limits)
    loaded = service.loaded
    loaded.choose(params.model)  # report a bad request before it waits
    check_method(params.method, service.limits)
    budget_ms = params.budget_ms or service.options.budget_ms
    needs = service.scheduler.min_response_ms(params.snippets * params.k * len(params.queries))
    searcher = Searcher(service, loaded, params, request.state.arrived)

    def run(emit: Emit | None = None) -> Awaitable[bytes]:
        work = partial(searcher.respond, emit=emit)
        return service.run(request, service.searches, work, budget_ms, needs)

    if params.stream or NDJSON in request.headers.get("accept", ""):
        return await stream_lines(run)
    return json_response(await run())


class Searcher:
    """The queries of one request, on the index as it was when the request arrived."""

    def __init__(
        self, service: Service, loaded: LoadedIndex, params: SearchRequest, arrived: float
    ) -> None:
        self._service = service
        self._scheduler = service.scheduler
        self._loaded = loaded
        self._params = params
        self._arrived = arrived
        self._others = service.searches.admission.count > 0
        always = max(1, _ALWAYS_SHOWN // len(params.queries))
        self._writer = HitWriter(service.limits, always)

    def respond(self, deadline: Deadline, emit: Emit | None = None) -> bytes:
        """The body of the response; with `emit`, each stage of each query becomes a line."""
        began, queries = now(), self._params.queries
        work_limit = Deadline.after(self._service.options.work_ms, thread_time)
        results = []
        for number, query in enumerate(queries):
            # A late query still gets the first stage's hits, within the request's computing time.
            work_limit.check(f"{len(queries)} queries at once")
            # Queries of a request share its time; what one does not use is left to the others.
            granted = deadline.share(1 / (len(queries) - number))
            with span("query", k=self._params.k):
                results.append(self._search(number, query, granted, emit))
        body = b""
        if emit is None:
            is_single = isinstance(self._params.query, str)
            body = to_bytes(results[0] if is_single else {"results": results})
        made = sum("snippet" in hit for result in results for hit in result["hits"])
        self._scheduler.learn("response", made, now() - began - sum(map(_model_ms, results)))
        return body

    def _search(
        self, number: int, query: str, deadline: Deadline, emit: Emit | None
    ) -> dict[str, Any]:
        began = now()
        loaded, params = self._loaded, self._params
        model, pipeline = loaded.choose(params.model)
        snippets = loaded.index.snippets(query) if params.snippets else None
        query_id = secrets.token_hex(8)
        interleaving = self._service.interleaving
        if interleaving is not None and (params.model is not None or not interleaving.draw()):
            interleaving = None

        def rank(pipeline: Pipeline, deadline: Deadline, first: bool) -> Iterator[Ranking]:
            deadline = self._scheduler.ranking_deadline(deadline, params.snippets * params.k)
            return pipeline.stream(
                query,
                params.k,
                deadline=deadline,
                method=params.method,
                first=first,
                where=params.where,
            )

        if interleaving is None:
            rankings = rank(pipeline, deadline, emit is not None)
        else:
            *before, one = rank(pipeline, deadline.share(0.5), emit is not None)
            *_, other = rank(loaded.choose(interleaving.models[1])[1], deadline, False)
            both = interleave_rankings(interleaving, query_id, one, other, params.k)
            rankings = iter([*before, both])
        result: dict[str, Any] = {}
        for ranking in rankings:
            ranked = now()
            texts = self._writer.write(ranking, snippets, deadline)
            ended = now()
            self._scheduler.learn("snippets", self._writer.made, ended - ranked)
            # The total is the request's, not that of ranking alone.
            ranking_ms = {name: ms for name, ms in ranking.timing.items() if name != "total"}
            timing = {"queue": began - self._arrived, **ranking_ms, "snippets": ended - ranked}
            timing["total"] = ended - self._arrived
            result = {
                "query": query,
                "model": model,
                "method": params.method or pipeline.method,
                "retrieval": pipeline.retrieval,
                "generation": loaded.index.generation,
                "candidates": pipeline.candidates,
                # Waiting may have used up the whole budget.
                "granted_ms": max(0.0, round(ended - began + deadline.remaining(), 3)),
                "shared": self._others or self._service.searches.admission.count > 1,
                **replace(ranking, timing=timing).to_json(
                    lambda hit: texts[hit.rank - 1]  # noqa: B023
                ),
            }
            if self._service.takes_feedback:
                result |= {"query_id": query_id, "interleaved": interleaving is not None}
            if left_out := loaded.index.dropped_terms(query):
                result["left_out"] = left_out  # terms that too many documents have
            if emit is not None:
                is_final = len(ranking.depths) == len(pipeline.stages)
                stage = "final" if is_final else "first_stage"
                emit(to_bytes({"stage": stage, "number": number, **result}) + b"\n")
        if (log := self._service.query_log) is not None:
            shown = [hit["doc_id"] for hit in result["hits"][:MOST_SHOWN]]
            log.write("search", query_id, query=query, model=model, shown=shown)
        if pipeline.stages:
            self._service.metrics.depth.labels(model).observe(result["depth"])
            self._service.metrics.granted.labels(model).observe(result["granted_ms"] / 1e3)
        return result


def interleave_rankings(
    interleaving: Interleaving, query_id: str, first: Ranking, second: Ranking, k: int
) -> Ranking:
    """The first ranking, with the hits and the time of both."""
    by_id = {hit.doc_id: hit for hit in (*second, *first)}
    ids = interleaving.draft(
        query_id, [hit.doc_id for hit in first], [hit.doc_id for hit in second], k
    )
    return replace(
        first,
        hits=tuple(by_id[doc_id].at_rank(rank) for rank, doc_id in enumerate(ids, 1)),
        timing={**first.timing, "interleaving": second.timing["total"]},
    )


class HitWriter:
    """Titles, snippets and metadata of a request's hits. It makes each once, although a stream
    shows hits twice, and leaves out what there is no time or no room for."""

    def __init__(self, limits: Limits, always: int) -> None:
        """The first `always` hits of a query are complete however late it is."""
        self._limits = limits
        self._always = always
        self._bytes_left = limits.response_bytes
        self._texts: dict[tuple[str, str, tuple[int, int] | None], dict[str, Any]] = {}
        self.made = 0
        """Snippets made for the last ranking."""

    def write(
        self, ranking: Ranking, snippets: SnippetMaker | None, deadline: Deadline
    ) -> list[dict[str, Any]]:
        """One dict for each hit; without `snippets` it is empty."""
        before = len(self._texts)
        texts = [
            self._write_hit(ranking.query, hit, snippets)
            if snippets and (hit.rank <= self._always or not deadline.has_passed())
            else {}
            for hit in ranking
        ]
        self.made = len(self._texts) - before
        return texts

    def _write_hit(self, query: str, hit: Hit, snippets: SnippetMaker) -> dict[str, Any]:
        key = query, hit.doc_id, hit.passage
        if key not in self._texts:
            text = self._read_hit(hit, snippets) if self._bytes_left > 0 else None
            self._texts[key] = text if text and self._has_room(text) else {"cut": True}
        elif not self._has_room(self._texts[key]):  # a stream sends it again
            return {"cut": True}
        return self._texts[key]

    def _has_room(self, shown: dict[str, Any]) -> bool:
        self._bytes_left -= len(to_bytes(shown))
        return self._bytes_left >= 0

    def _read_hit(self, hit: Hit, snippets: SnippetMaker) -> dict[str, Any]:
        most = MAX_CHARS_READ if hit.passage is None else hit.passage[1] + SNIPPET_CHARS
        doc = hit.read_prefix(most + 1)
        if doc is None:
            return {}
        snippet = snippets(doc.text, passage=hit.passage)
        most_characters = self._limits.title_characters
        metadata = cut_metadata(doc.metadata, self._limits.metadata_bytes)
        is_cut = (
            doc.fields_cut
            or max(len(doc.title), len(doc.source)) > most_characters
            or len(metadata) < len(doc.metadata)
        )
        return {
            "title": doc.title[:most_characters],
            "source": doc.source[:most_characters],
            "snippet": {"text": snippet.text, "matches": snippet.matches},
            **({"metadata": metadata} if metadata else {}),
            **({"cut": True} if is_cut else {}),
        }


def cut_metadata(metadata: Mapping[str, object], most: int) -> dict[str, object]:
    """The entries that fit into `most` bytes of JSON, in their order.

    >>> cut_metadata({"year": 1999, "text": "long " * 99, "n": 1}, 100)
    {'year': 1999, 'n': 1}
    """
    entries, left = {}, most
    for name, value in metadata.items():
        if isinstance(value, str) and len(value) > left:
            continue  # writing it to see how long it is would take most of a search's time
        size = len(to_bytes({name: value}))
        if size <= left:
            entries[name] = value
            left -= size
    return entries


def _model_ms(result: dict[str, Any]) -> float:
    """Milliseconds that models took: the part of a search that a budget can cut."""
    timing: dict[str, float] = result["timing_ms"]
    return sum(ms for name, ms in timing.items() if name.startswith(("query", "scoring")))


async def stream_lines(run: Callable[[Emit], Awaitable[bytes]]) -> Response:
    """Streams lines from the thread that makes them. It sends nothing before the first line, so an
    error until then still has its own status."""
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def emit(line: bytes) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    working = asyncio.ensure_future(run(emit))
    working.add_done_callback(lambda _: lines.put_nowait(None))
    first = await lines.get()
    if first is None:
        await working

    async def body() -> AsyncIterator[bytes]:
        line = first
        while line is not None:
            yield line
            line = await lines.get()
        if (error := working.exception()) is not None:
            if not isinstance(error, HttpError):
                error = HttpError(500, "the rest of the response failed")
            last = {"stage": "error", "code": error.code, "message": error.message}
            yield to_bytes(last) + b"\n"

    return StreamingResponse(body(), media_type=NDJSON)


async def explain(service: Service, request: Request, params: ExplainRequest) -> Response:
    """Checks a request at once; computes it in the queue of re-ranked texts."""
    params.check(service.limits)
    loaded = service.loaded
    for model in params.models or (None,):
        loaded.choose_model(model)
    for doc_id in params.doc_ids:
        check_document(loaded, doc_id, service.limits)
    check_method(params.method, service.limits)
    work = partial(explain_scores, loaded, params, service.limits)
    budget_ms = service.options.texts_budget_ms
    return json_response(await service.run(request, service.texts, work, budget_ms))


def explain_scores(
    loaded: LoadedIndex, params: ExplainRequest, limits: Limits, deadline: Deadline
) -> bytes:
    """The body of the response: one explanation, two side by side, or a change's effect."""
    named = [loaded.choose_model(model) for model in params.models or (None,)]
    if params.change is not None:
        change = Change(**params.change.model_dump())
        return to_bytes(_apply_change(named[0][1], params, change, limits, deadline))
    explanations: list[Explanation] = []
    both = len(named) == 2
    for place, (_, pipeline) in enumerate(named):
        # Two documents of a cascade may be ranked by two models: each explains its own.
        which = slice(place, place + 1) if both and len(params.doc_ids) == 2 else slice(None)
        explanations += _explain(pipeline, params, which, limits, deadline)
    if both and len({each.model for each in explanations}) == 1:  # two models of one family
        explanations = [
            replace(each, model=f"{each.model} ({name})")
            for each, (name, _) in zip(explanations, named, strict=True)
        ]
    return to_bytes(compare_if_two(explanations).to_json())


def _explain(
    pipeline: Pipeline, params: ExplainRequest, which: slice, limits: Limits, deadline: Deadline
) -> Iterable[Explanation]:
    """Documents of the index, or given texts."""
    first_scores, added = params.first_scores, params.regularizations
    if params.doc_ids:
        return explain_docs(
            pipeline,
            params.query,
            params.doc_ids[which],
            first_scores=None if first_scores is None else first_scores[which],
            regularization=None if added is None else added[which],
            characters=limits.text_characters,
            method=params.method,
            deadline=deadline,
        )
    first: list[float] | list[None] = first_scores or [None] * len(params.texts)
    return (
        explain_text(pipeline.reranker, params.query, text, first_stage=score, deadline=deadline)
        for text, score in zip(params.texts, first, strict=True)
    )


def _apply_change(
    pipeline: Pipeline, params: ExplainRequest, change: Change, limits: Limits, deadline: Deadline
) -> dict[str, Any]:
    """How the first document moves among the first stage's hits, or among given texts."""
    if params.doc_ids:
        result, ids = what_if_doc(
            pipeline,
            params.query,
            params.doc_ids[0],
            change,
            most=limits.changed_documents,
            characters=limits.text_characters,
            method=params.method,
            deadline=deadline,
        )
    else:
        reranker, ids = pipeline.reranker, []
        result = what_if(reranker, params.query, params.texts, change, deadline=deadline)
    return {**result.to_json(), "doc_ids": ids}


def check_document(loaded: LoadedIndex, doc_id: str, limits: Limits) -> None:
    """Raises 404 if the index does not have this document."""
    if len(doc_id) > limits.id_characters:
        raise bad_request(f"a document id has at most {limits.id_characters:,} characters")
    if doc_id not in loaded.index:
        raise HttpError(404, f"there is no document with the id {doc_id!r}")
