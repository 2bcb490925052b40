"""`/explain`: one document's score, two documents or two models side by side, or what a change
would do."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response

from glassrank.deadline import Deadline
from glassrank.explaining import (
    Change,
    Explanation,
    explain_docs,
    one_or_both,
    what_if,
    what_if_doc,
)
from glassrank.explaining.explainers import explain_text
from glassrank.ranking import Pipeline
from glassrank.serve.forms import Explain, check_method
from glassrank.serve.opened import Opened
from glassrank.serve.refusals import RefusedError
from glassrank.serve.service import Service, json_response, to_bytes


class Explainer:
    """Answers `/explain`."""

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
        """The body of the answer."""
        pipelines = [opened.need(model)[1] for model in form.models or (None,)]
        if form.change is not None:
            change = Change(**form.change.model_dump())
            return to_bytes(self._changed(pipelines[0], form, change, deadline))
        explanations = [
            explanation
            for pipeline in pipelines
            for explanation in self._explained(pipeline, form, deadline)
        ]
        return to_bytes(one_or_both(explanations).to_json())

    def _explained(
        self, pipeline: Pipeline, form: Explain, deadline: Deadline
    ) -> Iterable[Explanation]:
        """Documents as they are listed, or texts by themselves."""
        if form.doc_ids:
            return explain_docs(
                pipeline,
                form.query,
                form.doc_ids,
                first_scores=form.first_scores,
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
        self, pipeline: Pipeline, form: Explain, change: Change, deadline: Deadline
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


def need_document(opened: Opened, doc_id: str) -> None:
    """Refuses a document that the index does not have."""
    if doc_id not in opened.index:
        raise RefusedError(404, f"there is no document of the id {doc_id!r}")
