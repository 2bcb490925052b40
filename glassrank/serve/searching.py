"""`/search`: one query or several, whole or as a stream, within one budget."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from glassrank.deadline import Deadline, computed, now
from glassrank.rank import CostModel
from glassrank.serve.forms import Search, check_method
from glassrank.serve.opened import Opened
from glassrank.serve.refusals import RefusedError
from glassrank.serve.results import Shown, rankings, stages
from glassrank.serve.service import Service, json_response, to_bytes

NDJSON = "application/x-ndjson"

_ALWAYS_SHOWN = 10
"""Hits of a request that have titles and snippets however late it is: without, there is nothing to
see."""

Emit = Callable[[bytes], None]


class Searcher:
    """Knows what an answer costs besides scoring, so that scoring leaves time for it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._besides = CostModel()  # all but scoring, by the number of snippets
        self._closing = CostModel()  # what comes after ranking

    async def __call__(self, request: Request, form: Search) -> Response:
        service, options = self._service, self._service.options
        form.check(service.limits)
        opened = service.opened
        opened.choose(form.model)  # what is wrong with a request is said before it waits
        check_method(form.method, service.limits)
        budget_ms = form.budget_ms or options.budget_ms
        work = partial(self.answer, opened, form, request.state.arrived)
        needs = self._besides.predict(form.snippets * form.k * len(form.queries))

        def run(work: Callable[[Deadline], bytes]) -> Awaitable[bytes]:
            return service.run(request, service.searches, work, budget_ms, needs)

        if form.stream or NDJSON in request.headers.get("accept", ""):
            return await streamed(lambda emit: run(partial(work, emit=emit)))
        return json_response(await run(work))

    def answer(
        self,
        opened: Opened,
        form: Search,
        arrived: float,
        deadline: Deadline,
        emit: Emit | None = None,
    ) -> bytes:
        """The body of the answer; with `emit`, each stage of each query becomes a line instead."""
        began = now()
        whole = Deadline.after(self._service.options.work_ms, computed)
        answers = []
        for number, query in enumerate(form.queries):
            # A query that is late is answered by what the first stage finds, as long as that is in
            # bounds for the whole request.
            whole.check(f"{len(form.queries)} queries at once")
            # Queries of one request share its time evenly; what one leaves over is the others'.
            share = deadline.left() / (len(form.queries) - number)
            line = None if emit is None else partial(_line, emit, number)
            own = Deadline(now, now() + share)
            answers.append(self._one(opened, form, query, arrived, own, line))
        body = b"" if emit else to_bytes(_joined(form, answers))
        scoring = sum(answer["timing_ms"].get("scoring", 0.0) for answer in answers)
        made = sum("snippet" in hit for answer in answers for hit in answer["hits"])
        self._besides.learn(made, now() - began - scoring)
        return body

    def _one(
        self,
        opened: Opened,
        form: Search,
        query: str,
        arrived: float,
        deadline: Deadline,
        line: Callable[[str, dict[str, Any]], None] | None,
    ) -> dict[str, Any]:
        queued = now() - arrived
        model, pipeline = opened.choose(form.model)
        method = form.method or opened.method(pipeline)
        always = max(1, _ALWAYS_SHOWN // len(form.queries))
        shown = Shown(opened.index, query, snippets=form.snippets, always=always)
        answer: dict[str, Any] = {}
        reserve = self._closing.predict(form.snippets * form.k)
        ranked_by = deadline.earlier(min(reserve, max(0.0, deadline.left() / 2)))
        for ranking in rankings(
            opened.index, pipeline, query, form.k, method, ranked_by, both=line is not None
        ):
            ranked = now()
            hits = shown.hits(ranking, deadline)
            ended = now()
            self._closing.learn(shown.made, ended - ranked)
            timing = {"queue": queued, **ranking.timing, "snippets": ended - ranked}
            timing.pop("total", None)  # which was that of ranking alone
            timing["total"] = ended - arrived
            answer = {
                "query": query,
                "model": model,
                "method": method,
                "generation": opened.index.generation,
                "depth": ranking.depth,
                "candidates": pipeline.candidates if pipeline else 0,
                "timing_ms": {name: round(ms, 3) for name, ms in timing.items()},
                "stages": stages(timing, ranking.depth),
                "hits": hits,
            }
            if left_out := opened.index.left_out(query):
                answer["left_out"] = left_out  # terms that too many documents have
            if line:
                last = pipeline is None or "scoring" in timing
                line("final" if last else "first_stage", answer)
        if pipeline is not None:
            self._service.metrics.depth.labels(model).observe(answer["depth"])
        return answer


def _joined(form: Search, answers: list[dict[str, Any]]) -> dict[str, Any]:
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
                error.message if isinstance(error, RefusedError) else "the rest could not be made"
            )
            yield to_bytes({"stage": "error", "message": message}) + b"\n"

    return StreamingResponse(body(), media_type=NDJSON)
