"""`gr.explain(search, query, hit, hit)`: hits of a pipeline, by the scores they ranked with."""

from typing import Any

from glassrank.errors import InputError
from glassrank.explain.explainers import explain
from glassrank.explain.explanation import Explanation, ExplanationPair, compare
from glassrank.rank import Pipeline, Reranker
from glassrank.store import text_of
from glassrank.types import Hit


def explain_hits(pipeline: Pipeline, query: str, *hits: Hit) -> Explanation | ExplanationPair:
    """Why a hit has its score, or how two differ."""
    if len(hits) not in (1, 2):
        raise InputError(f"one hit or two can be explained, not {len(hits)}")
    explanations = [
        explain(
            pipeline.reranker,
            query,
            text_of(pipeline.index.doc(hit.doc_id)),
            doc_id=hit.doc_id,
            first_stage=hit.first_score,
            words=pipeline.stored_words(hit.doc_id),
        )
        for hit in hits
    ]
    return compare(*explanations) if len(explanations) == 2 else explanations[0]


def explain_any(ranks: Pipeline | Reranker, query: str, *what: Any, **options: Any) -> Any:
    """Hits of a pipeline, or a text with a model alone."""
    if isinstance(ranks, Pipeline):
        return explain_hits(ranks, query, *what)
    return explain(ranks, query, *what, **options)
