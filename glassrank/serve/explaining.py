"""`/explain`: one document's score, two documents or two models side by side, or what a change
would do."""

from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response

from glassrank.deadline import Deadline
from glassrank.explain import Change, compare, explain, what_if
from glassrank.rank import Pipeline
from glassrank.serve.forms import Explain
from glassrank.serve.opened import Opened
from glassrank.serve.refusals import RefusedError
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.store import text_of

_AMONG = 100
"""Among so many first-stage results a change's ranks are counted, unless the model says."""


class Explainer:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request, form: Explain) -> Response:
        service = self._service
        form.check(service.limits)
        opened = service.opened
        for model in form.models or (None,):
            opened.need(model)
        for doc_id in form.doc_ids:
            need_document(opened, doc_id)
        budget_ms = service.options.texts_budget_ms
        work = partial(self.answer, opened, form)
        return json_response(await service.run(request, service.texts, work, budget_ms))

    def answer(self, opened: Opened, form: Explain, deadline: Deadline) -> bytes:
        pipelines = [opened.need(model)[1] for model in form.models or (None,)]
        if form.change is not None:
            return to_bytes(_changed(opened, pipelines[0], form, form.change.model_dump()))
        texts = form.texts or [_text(opened, doc_id) for doc_id in form.doc_ids]
        found = []
        for pipeline in pipelines:
            first = _first_scores(opened, pipeline, form, form.doc_ids)
            for number, text in enumerate(texts):
                doc_id = form.doc_ids[number] if form.doc_ids else ""
                own = first[number] if first else None
                words = pipeline.stored_words(doc_id) if doc_id else None
                found.append(
                    explain(
                        pipeline.reranker,
                        form.query,
                        text,
                        doc_id=doc_id,
                        first_stage=own,
                        words=words,
                    )
                )
        return to_bytes((compare(*found) if len(found) == 2 else found[0]).to_json())


def need_document(opened: Opened, doc_id: str) -> None:
    if doc_id not in opened.index:
        raise RefusedError(404, f"there is no document of the id {doc_id!r}")


def _text(opened: Opened, doc_id: str) -> str:
    """What the model reads of a document."""
    return text_of(opened.index.doc(doc_id))


def _changed(
    opened: Opened, pipeline: Pipeline, form: Explain, change: dict[str, Any]
) -> dict[str, Any]:
    """How the first document moves among the first stage's results, or among the given texts."""
    ids: list[str] = []
    texts = form.texts
    if form.doc_ids:
        depth = pipeline.reranker.usage.depth or _AMONG
        method = form.method or opened.method(pipeline)
        ids = [hit.doc_id for hit in opened.index.search(form.query, depth, method)]
        ids = ids if form.doc_ids[0] in ids else [*ids, form.doc_ids[0]]
        texts = [_text(opened, doc_id) for doc_id in ids]
    first = _first_scores(opened, pipeline, form.model_copy(update={"first_score": None}), ids)
    doc = ids.index(form.doc_ids[0]) if ids else 0
    answer = what_if(
        pipeline.reranker, form.query, texts, Change(**change), doc=doc, first_stage=first
    )
    return {**answer.to_json(), "doc_ids": ids}


def _first_scores(
    opened: Opened, pipeline: Pipeline, form: Explain, ids: list[str]
) -> list[float] | None:
    """The first stage's scores, where the model has a use for them. A document that it does not
    find has no word of the query, and the score 0."""
    if pipeline.reranker.model.first_stage_weight is None:
        return None
    if form.first_scores is not None:
        return form.first_scores
    if not ids:
        return None
    method = form.method or opened.method(pipeline)
    for depth in (pipeline.candidates, len(opened.index)):
        found = {hit.doc_id: hit.score for hit in opened.index.search(form.query, depth, method)}
        if all(doc_id in found for doc_id in ids):
            break
    return [found.get(doc_id, 0.0) for doc_id in ids]
