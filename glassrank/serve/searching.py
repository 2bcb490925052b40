"""`/search`: one query or several, whole or as a stream, within one budget. And `/explain`: why a
document has its score; two documents, or two models, side by side; what a change would do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from glassrank.deadline import NEVER, Deadline, now, thread_time
from glassrank.explanations import (
    Change,
    Explanation,
    explain_docs,
    one_or_both,
    what_if,
    what_if_doc,
)
from glassrank.explanations.explainers import explain_text
from glassrank.index import Index
from glassrank.index.snippets import CHARACTERS_READ, LENGTH, Snippets
from glassrank.rerank import Pipeline
from glassrank.serve.error_responses import HttpError, bad_request
from glassrank.serve.limits import Limits
from glassrank.serve.loaded import LoadedIndex
from glassrank.serve.schemas import ExplainRequest, SearchRequest, check_method
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.tracing import span
from glassrank.types import Hit, Ranking

NDJSON = "application/x-ndjson"

_ALWAYS_SHOWN = 10
"""Hits of a request that have titles and snippets however late it is: without, there is nothing to
see."""

Emit = Callable[[bytes], None]


class Searcher:
    """What is wrong with a request is said at once; then it waits for a thread within its
    budget."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._scheduler = service.scheduler

    async def __call__(self, request: Request, form: SearchRequest) -> Response:
        service, options = self._service, self._service.options
        form.check(service.limits)
        loaded = service.loaded
        loaded.choose(form.model)  # what is wrong with a request is said before it waits
        check_method(form.method, service.limits)
        budget_ms = form.budget_ms or options.budget_ms
        others = service.searches.admission.count > 0
        work = partial(self.answer, loaded, form, request.state.arrived, others=others)
        needs = self._scheduler.min_response_ms(form.snippets * form.k * len(form.queries))

        def run(work: Callable[[Deadline], bytes]) -> Awaitable[bytes]:
            return service.run(request, service.searches, work, budget_ms, needs)

        if form.stream or NDJSON in request.headers.get("accept", ""):
            return await streamed(lambda emit: run(partial(work, emit=emit)))
        return json_response(await run(work))

    def answer(
        self,
        loaded: LoadedIndex,
        form: SearchRequest,
        arrived: float,
        deadline: Deadline,
        emit: Emit | None = None,
        *,
        others: bool = False,
    ) -> bytes:
        """The body of the answer; with `emit`, each stage of each query becomes a line instead.
        `others` were searching when it arrived."""
        began = now()
        whole = Deadline.after(self._service.options.work_ms, thread_time)
        room = Room(self._service.limits.response_bytes)
        answers = []
        for number, query in enumerate(form.queries):
            # A query that is late is answered by what the first stage finds, as long as that is in
            # bounds for the whole request.
            whole.check(f"{len(form.queries)} queries at once")
            # Queries of one request share its time evenly; what one leaves over is the others'.
            granted = deadline.share(1 / (len(form.queries) - number))
            line = None if emit is None else partial(_line, emit, number)
            with span("query", k=form.k):
                answers.append(self._one(loaded, form, query, arrived, granted, room, line, others))
        body = b"" if emit else to_bytes(_joined(form, answers))
        made = sum("snippet" in hit for answer in answers for hit in answer["hits"])
        self._scheduler.learn("answer", made, now() - began - sum(map(_by_models, answers)))
        return body

    def _one(
        self,
        loaded: LoadedIndex,
        form: SearchRequest,
        query: str,
        arrived: float,
        deadline: Deadline,
        room: "Room",
        line: Callable[[str, dict[str, Any]], None] | None,
        others: bool,
    ) -> dict[str, Any]:
        began = now()
        queued = began - arrived
        model, pipeline = loaded.choose(form.model)
        always = max(1, _ALWAYS_SHOWN // len(form.queries))
        shown = Shown(loaded.index, query, room, self._service.limits, form.snippets, always)
        stages = pipeline.stream(
            query,
            form.k,
            deadline=self._scheduler.ranking_deadline(deadline, form.snippets * form.k),
            method=form.method,
            first=line is not None,
            where=form.where,
        )
        answer: dict[str, Any] = {}
        for ranking in stages:
            ranked = now()
            texts = shown.texts(ranking, deadline)
            ended = now()
            self._scheduler.learn("snippets", shown.made, ended - ranked)
            timing = {"queue": queued, **ranking.timing, "snippets": ended - ranked}
            del timing["total"]  # which was that of ranking alone
            timing["total"] = ended - arrived
            answer = {
                "query": query,
                "model": model,
                "method": form.method or pipeline.method,
                "generation": loaded.index.generation,
                "candidates": pipeline.candidates,
                # A budget that was used up by waiting has nothing left to grant.
                "granted_ms": max(0.0, round(ended - began + deadline.remaining(), 3)),
                "shared": others or self._service.searches.admission.count > 1,
                **replace(ranking, timing=timing).to_json(
                    lambda hit: texts[hit.rank - 1]  # noqa: B023
                ),
            }
            if left_out := loaded.index.left_out(query):
                answer["left_out"] = left_out  # terms that too many documents have
            if line:
                final = len(ranking.depths) == len(pipeline.stages)
                line("final" if final else "first_stage", answer)
        if pipeline.stages:
            self._service.metrics.depth.labels(model).observe(answer["depth"])
            self._service.metrics.granted.labels(model).observe(answer["granted_ms"] / 1e3)
        return answer


class Room:
    """Bytes that a response may still take for titles, snippets and metadata."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, shown: dict[str, Any]) -> bool:
        """Whether there was room for this."""
        self.left -= len(to_bytes(shown))
        return self.left >= 0


class Shown:
    """Titles, snippets and metadata of hits. What was made once, for the first stage's, is not made
    again, and what there is no time or no room for is not made at all."""

    def __init__(
        self,
        index: Index,
        query: str,
        room: Room,
        limits: Limits,
        snippets: bool,
        always: int,
    ) -> None:
        """The first hits, so many, are `always` shown whole."""
        self._always = always
        self._room = room
        self._limits = limits
        self._snippets = index.snippets(query) if snippets else None
        self._texts: dict[tuple[str, tuple[int, int] | None], dict[str, Any]] = {}
        self.made = 0
        """Snippets, for the last ranking."""

    def texts(self, ranking: Ranking, deadline: Deadline = NEVER) -> list[dict[str, Any]]:
        """One for each hit."""
        before = len(self._texts)
        snippets = self._snippets
        texts = [
            self._text(hit, snippets)
            if snippets and (hit.rank <= self._always or not deadline.has_passed())
            else {}
            for hit in ranking
        ]
        self.made = len(self._texts) - before
        return texts

    def _text(self, hit: Hit, snippets: Snippets) -> dict[str, Any]:
        key = hit.doc_id, hit.passage
        if key not in self._texts:
            text = self._make_text(hit, snippets) if self._room.left > 0 else None
            self._texts[key] = text if text and self._room.take(text) else {"cut": True}
        elif not self._room.take(self._texts[key]):  # a stream sends it once more
            return {"cut": True}
        return self._texts[key]

    def _make_text(self, hit: Hit, snippets: Snippets) -> dict[str, Any]:
        most = CHARACTERS_READ if hit.passage is None else hit.passage[1] + LENGTH
        doc = hit.read_prefix(most + 1)
        if doc is None:
            return {}
        snippet = snippets(doc.text, passage=hit.passage)
        limits = self._limits
        metadata = cut_metadata(doc.metadata, limits.metadata_bytes)
        is_cut = (
            doc.fields_cut
            or max(len(doc.title), len(doc.source)) > limits.title_characters
            or len(metadata) < len(doc.metadata)
        )
        return {
            "title": doc.title[: limits.title_characters],
            "source": doc.source[: limits.title_characters],
            "snippet": {"text": snippet.text, "matches": snippet.matches},
            **({"metadata": metadata} if metadata else {}),
            **({"cut": True} if is_cut else {}),
        }


def cut_metadata(metadata: Mapping[str, object], most: int) -> dict[str, object]:
    """The entries that fit into so many bytes of JSON, one after another.

    >>> cut_metadata({"year": 1999, "text": "long " * 99, "n": 1}, 100)
    {'year': 1999, 'n': 1}
    """
    entries, left = {}, most
    for name, value in metadata.items():
        size = len(to_bytes({name: value}))
        if size <= left:
            entries[name] = value
            left -= size
    return entries


def _by_models(answer: dict[str, Any]) -> float:
    """Milliseconds for which models have read and scored: the part that there need not be."""
    timing: dict[str, float] = answer["timing_ms"]
    return sum(ms for name, ms in timing.items() if name.startswith(("query", "scoring")))


def _joined(form: SearchRequest, answers: list[dict[str, Any]]) -> dict[str, Any]:
    return answers[0] if isinstance(form.query, str) else {"results": answers}


def _line(emit: Emit, number: int, stage: str, answer: dict[str, Any]) -> None:
    emit(to_bytes({"stage": stage, "number": number, **answer}) + b"\n")


async def streamed(run: Callable[[Emit], Awaitable[bytes]]) -> Response:
    """Lines as they come from the thread that makes them. A refusal, which is only known when that
    thread begins, still has its own status: nothing is sent before the first line is there."""
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
        error = working.exception()
        if error is not None:
            message = (
                error.message if isinstance(error, HttpError) else "the rest could not be made"
            )
            yield to_bytes({"stage": "error", "message": message}) + b"\n"

    return StreamingResponse(body(), media_type=NDJSON)


class ScoreExplainer:
    """What is wrong with a request is said at once; the rest is computed where texts are ranked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request, form: ExplainRequest) -> Response:
        service = self._service
        form.check(service.limits)
        loaded = service.loaded
        for model in form.models or (None,):
            loaded.need(model)
        for doc_id in form.doc_ids:
            need_document(loaded, doc_id, service.limits)
        check_method(form.method, service.limits)
        budget_ms = service.options.texts_budget_ms
        work = partial(self.answer, loaded, form)
        return json_response(await service.run(request, service.texts, work, budget_ms))

    def answer(self, loaded: LoadedIndex, form: ExplainRequest, deadline: Deadline) -> bytes:
        """The body of the answer: one explanation, two side by side, or what a change did."""
        named = [loaded.need(model) for model in form.models or (None,)]
        if form.change is not None:
            change = Change(**form.change.model_dump())
            return to_bytes(self._changed(named[0][1], form, change, deadline))
        explanations: list[Explanation] = []
        both = len(named) == 2
        for place, (_, pipeline) in enumerate(named):
            # Two documents of a cascade may have been placed by two models: each by its own.
            which = slice(place, place + 1) if both and len(form.doc_ids) == 2 else slice(None)
            explanations += self._explained(pipeline, form, which, deadline)
        if both and len({each.model for each in explanations}) == 1:  # of one family
            explanations = [
                replace(each, model=f"{each.model} ({name})")
                for each, (name, _) in zip(explanations, named, strict=True)
            ]
        return to_bytes(one_or_both(explanations).to_json())

    def _explained(
        self, pipeline: Pipeline, form: ExplainRequest, which: slice, deadline: Deadline
    ) -> Iterable[Explanation]:
        """Documents as they are listed, or texts by themselves."""
        if form.doc_ids:
            first_scores = form.first_scores
            return explain_docs(
                pipeline,
                form.query,
                form.doc_ids[which],
                first_scores=None if first_scores is None else first_scores[which],
                characters=self._service.limits.text_characters,
                method=form.method,
                deadline=deadline,
            )
        first: list[float] | list[None] = form.first_scores or [None] * len(form.texts)
        return (
            explain_text(pipeline.reranker, form.query, text, first_stage=score, deadline=deadline)
            for text, score in zip(form.texts, first, strict=True)
        )

    def _changed(
        self, pipeline: Pipeline, form: ExplainRequest, change: Change, deadline: Deadline
    ) -> dict[str, Any]:
        """How the first document moves among the first stage's results, or among given texts."""
        if form.doc_ids:
            limits = self._service.limits
            answer, ids = what_if_doc(
                pipeline,
                form.query,
                form.doc_ids[0],
                change,
                most=limits.changed_documents,
                characters=limits.text_characters,
                method=form.method,
                deadline=deadline,
            )
        else:
            answer = what_if(pipeline.reranker, form.query, form.texts, change, deadline=deadline)
            ids = []
        return {**answer.to_json(), "doc_ids": ids}


def need_document(loaded: LoadedIndex, doc_id: str, limits: Limits) -> None:
    """404 with a sentence where there is none, before anything is computed."""
    if len(doc_id) > limits.id_characters:
        raise bad_request(f"a document id has at most {limits.id_characters:,} characters")
    if doc_id not in loaded.index:
        raise HttpError(404, f"there is no document of the id {doc_id!r}")
