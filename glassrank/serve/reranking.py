"""`/v1/rerank` and `/v2/rerank`: given texts, in the formats of Cohere and Jina, so that their
clients need no change but the URL."""

import uuid
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

_CHARACTERS_PER_WORD = 6

Version = Literal["1", "2"]


async def rerank_texts(
    service: Service, request: Request, params: RerankRequest, version: Version
) -> Response:
    """Ranks the texts of a request with a model, and responds in the client's format."""
    params.check(service.limits)
    loaded = service.loaded
    loaded.choose_model(None)
    budget_ms = params.budget_ms or service.options.texts_budget_ms
    work = partial(_respond, service, loaded, params, version)
    return json_response(await service.run(request, service.texts, work, budget_ms))


def _respond(
    service: Service,
    loaded: LoadedIndex,
    params: RerankRequest,
    version: Version,
    deadline: Deadline,
) -> bytes:
    """The body of the response, with warnings about what was not read or not re-ranked."""
    texts = params.texts(service.limits)
    known = params.model in loaded.pipelines
    model, _ = loaded.choose_model(params.model if known else None)
    words = len(split_words(params.query)) * len(texts)
    counting = service.scheduler.counting_deadline(deadline)
    for text in texts:  # estimated once there is no time to count
        late = counting.has_passed()
        words += len(text) // _CHARACTERS_PER_WORD if late else len(split_words(text))
    rerankers = loaded.list_rerankers(model)
    ranking = rank(params.query, texts, model=rerankers, deadline=deadline, k=params.top_n)
    service.metrics.depth.labels(model).observe(ranking.depth)
    shows_texts = params.return_documents
    if shows_texts is None:  # Jina returns documents by default, Cohere does not
        shows_texts = (params.model or "").startswith("jina")
    warnings = []
    if params.model is not None and not known:
        warnings.append(f"there is no model {params.model!r} here; {model} was used")
    if ranking.truncated:
        warnings.append(f"of {ranking.truncated} documents not all passages were read")
    if late_texts := len(texts) - ranking.depth:
        warnings.append(
            f"budget used up at depth {ranking.depth}; the other {late_texts} documents are "
            "below, ordered by BM25"
        )
    results = []
    for hit, value in zip(ranking.hits, relevance_scores(ranking), strict=True):
        result: dict[str, Any] = {"index": int(hit.doc_id), "relevance_score": value}
        if shows_texts:
            document = params.documents[int(hit.doc_id)]
            result["document"] = {"text": document} if isinstance(document, str) else document
        results.append(result)
    response = {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": model,
        "results": results,
        "usage": {"total_tokens": words, "prompt_tokens": words},
        "meta": {
            "api_version": {"version": version},
            "billed_units": {"search_units": 0},
            "warnings": warnings,
        },
    }
    try:
        return to_bytes(response)
    except ValueError:  # 1e999, in a field of a document that is sent back
        raise bad_request("documents: a number is too large to be sent back") from None
