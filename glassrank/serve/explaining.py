"""`/explain`: one document's score, two documents or two models side by side, or what a change
would do."""

from functools import partial
from typing import Any

import numpy as np
from fastapi import Request
from starlette.responses import Response

from glassrank.deadline import Deadline
from glassrank.explain import Change, compare, explain, what_if
from glassrank.explain.changes import docs_in_time
from glassrank.rank import Pipeline
from glassrank.rank.candidates import characters_read
from glassrank.serve.forms import Explain, check_method
from glassrank.serve.opened import Opened
from glassrank.serve.refusals import RefusedError
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.store import text_of


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
        check_method(form.method, service.limits)
        budget_ms = service.options.texts_budget_ms
        work = partial(self.answer, opened, form)
        return json_response(await service.run(request, service.texts, work, budget_ms))

    def answer(self, opened: Opened, form: Explain, deadline: Deadline) -> bytes:
        pipelines = [opened.need(model)[1] for model in form.models or (None,)]
        if form.change is not None:
            change = Change(**form.change.model_dump())
            return to_bytes(self._changed(opened, pipelines[0], form, change, deadline))
        texts = form.texts or [self._text(opened, doc_id) for doc_id in form.doc_ids]
        found = []
        for pipeline in pipelines:
            first = _first_scores(opened, pipeline, form, form.doc_ids, deadline)
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
                        deadline=deadline,
                    )
                )
        return to_bytes((compare(*found) if len(found) == 2 else found[0]).to_json())

    def _text(self, opened: Opened, doc_id: str) -> str:
        """What the model reads of a document, and people see of it."""
        return text_of(opened.index.doc(doc_id, self._service.limits.text_characters))

    def _changed(
        self, opened: Opened, pipeline: Pipeline, form: Explain, change: Change, deadline: Deadline
    ) -> dict[str, Any]:
        """How the first document moves among the first stage's results, or among given texts."""
        ids: list[str] = []
        texts, doc = form.texts, 0
        if form.doc_ids:
            most = self._service.limits.changed_documents
            depth = min(pipeline.reranker.usage.depth or most, most)
            method = form.method or opened.method(pipeline)
            found = opened.index.top_k([form.query], depth, method, deadline=deadline)[0]
            snapshot = opened.index.snapshot
            ids = [snapshot.doc_id(number) for number in found.docs.tolist()]
            ids = ids if form.doc_ids[0] in ids else [*ids, form.doc_ids[0]]
            doc = ids.index(form.doc_ids[0])
            characters = characters_read(pipeline.reranker)
            texts = [text_of(opened.index.doc(doc_id, characters)) for doc_id in ids]
            texts[doc] = self._text(opened, ids[doc])
            count = docs_in_time(pipeline.reranker, texts, change, deadline)
            kept = sorted({doc, *range(min(count, len(ids)))})
            ids, texts, doc = [ids[n] for n in kept], [texts[n] for n in kept], kept.index(doc)
        alone = form.model_copy(update={"first_score": None})
        first = _first_scores(opened, pipeline, alone, ids, deadline)
        answer = what_if(
            pipeline.reranker,
            form.query,
            texts,
            change,
            doc=doc,
            first_stage=first,
            deadline=deadline,
        )
        return {**answer.to_json(), "doc_ids": ids}


def need_document(opened: Opened, doc_id: str) -> None:
    if doc_id not in opened.index:
        raise RefusedError(404, f"there is no document of the id {doc_id!r}")


def _first_scores(
    opened: Opened, pipeline: Pipeline, form: Explain, ids: list[str], deadline: Deadline
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
    numbers = [opened.index.snapshot.find(doc_id) for doc_id in ids]
    for depth in (pipeline.candidates, len(opened.index)):
        found = opened.index.top_k([form.query], depth, method, deadline=deadline)[0]
        wanted = np.isin(found.docs, numbers)
        if wanted.sum() == len(numbers):
            break
    scores = dict(zip(found.docs[wanted].tolist(), found.scores[wanted].tolist(), strict=True))
    return [scores.get(number, 0.0) for number in numbers]
