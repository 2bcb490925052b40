"""`/v1/rerank` and `/v2/rerank`: given texts, in the forms of Cohere's and Jina's services, so that
their clients need no change but the address."""

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from glassrank.deadline import Deadline
from glassrank.rerank import rank
from glassrank.rerank.relevance import relevance_scores
from glassrank.serve.error_responses import bad_request
from glassrank.serve.loaded import LoadedIndex
from glassrank.serve.schemas import RerankRequest
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.text import split_words
from glassrank.types import Ranking

_CHARACTERS_PER_WORD = 6

Version = Literal["1", "2"]


class TextsReranker:
    """Texts that come with the request, in the order of a model and in the words of its client."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request, form: RerankRequest, version: Version) -> Response:
        service = self._service
        form.check(service.limits)
        loaded = service.loaded
        loaded.need(None)
        budget_ms = form.budget_ms or service.options.texts_budget_ms
        work = partial(self.answer, loaded, form, version)
        return json_response(await service.run(request, service.texts, work, budget_ms))

    def answer(
        self, loaded: LoadedIndex, form: RerankRequest, version: Version, deadline: Deadline
    ) -> bytes:
        """The body of the answer, with warnings of what was not read or not re-ranked."""
        texts = form.texts(self._service.limits)
        known = form.model in loaded.pipelines
        model, _ = loaded.need(form.model if known else None)
        lengths = list(_lengths(texts, self._service.scheduler.counting_deadline(deadline)))
        words = len(split_words(form.query)) * len(texts) + sum(lengths)
        ranking = rank(
            form.query,
            texts,
            model=loaded.for_texts(model),
            deadline=deadline,
            k=form.top_n,
        )
        self._service.metrics.depth.labels(model).observe(ranking.depth)
        # Jina returns documents unless told otherwise, Cohere if told so.
        shown = (form.model or "").startswith("jina")
        if form.return_documents is not None:
            shown = form.return_documents
        warnings = []
        if form.model is not None and not known:
            warnings.append(f"there is no model {form.model!r} here; {model} was used")
        warnings += _left_out(ranking, len(texts))
        answer = {
            "id": str(uuid.uuid4()),
            "object": "list",
            "model": model,
            "results": [
                _result(form, int(hit.doc_id), value, shown)
                for hit, value in zip(ranking.hits, relevance_scores(ranking), strict=True)
            ],
            "usage": {"total_tokens": words, "prompt_tokens": words},
            "meta": {
                "api_version": {"version": version},
                "billed_units": {"search_units": 0},
                "warnings": warnings,
            },
        }
        try:
            return to_bytes(answer)
        except ValueError:  # 1e999, in a field of a document that is sent back
            raise bad_request("documents: a number is too large to be sent back") from None


def _lengths(texts: list[str], until: Deadline) -> Iterator[int]:
    """Words in each text: counted, and estimated where there is no time to count them."""
    for text in texts:
        late = until.has_passed()
        yield len(text) // _CHARACTERS_PER_WORD if late else len(split_words(text))


def _left_out(ranking: Ranking, texts: int) -> list[str]:
    """What the model did not read, in sentences."""
    warnings = []
    if ranking.truncated:
        warnings.append(f"of {ranking.truncated} documents not all passages were read")
    if late := texts - ranking.depth:
        warnings.append(
            f"the budget sufficed for {ranking.depth} documents; the other {late} are below them, "
            "ordered by BM25"
        )
    return warnings


def _result(form: RerankRequest, number: int, value: float, shown: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"index": number, "relevance_score": value}
    if shown:
        document = form.documents[number]
        result["document"] = {"text": document} if isinstance(document, str) else document
    return result
