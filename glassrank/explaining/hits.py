"""Documents of a pipeline's index, explained by the scores that its search lists: from the same
store, with the same first stage, rounded or exact as the pipeline ranks."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError
from glassrank.explaining.changes import Change, WhatIf, docs_in_time, what_if
from glassrank.explaining.explainers import explain_text
from glassrank.explaining.explanation import Explanation, ExplanationPair, compare
from glassrank.models import Words
from glassrank.ranking import Pipeline, Reranker
from glassrank.ranking.candidates import characters_read
from glassrank.store import text_of
from glassrank.types import Hit

_CHANGED_AMONG = 100
"""So many first-stage results, unless the model says how deep it ranks."""


def explain_docs(
    pipeline: Pipeline,
    query: str,
    doc_ids: Sequence[str],
    *,
    placed_by: Sequence[int] | None = None,
    first_scores: Sequence[float] | None = None,
    characters: int | None = None,
    method: str | None = None,
    deadline: Deadline = NEVER,
) -> list[Explanation]:
    """Each document's own explanation, by the model of a cascade that placed it: the one of this
    number, or the one that does so without a budget. The first stage's scores are looked up where
    a model has a use for them, unless they are given; `characters` bounds what is read of a text.
    """
    texts = [text_of(pipeline.index.doc(doc_id, characters)) for doc_id in doc_ids]
    models = [
        pipeline.models[max(number, 1) - 1]  # one that no model came to is explained by the first
        for number in placed_by or _placed_by(pipeline, query, doc_ids, method, deadline)
    ]
    first: Sequence[float | None] = [None] * len(doc_ids)
    if any(model.reranker.model.first_stage_weight is not None for model in models):
        first = first_scores or pipeline.first_scores(
            query, doc_ids, method=method, deadline=deadline
        )
    return [
        explain_text(
            model.reranker,
            query,
            text,
            doc_id=doc_id,
            first_stage=score,
            words=model.words(doc_id),
            deadline=deadline,
        )
        for model, doc_id, text, score in zip(models, doc_ids, texts, first, strict=True)
    ]


def _placed_by(
    pipeline: Pipeline,
    query: str,
    doc_ids: Sequence[str],
    method: str | None,
    deadline: Deadline,
) -> list[int]:
    """Numbers of models, as a ranking has them."""
    if len(pipeline.models) == 1:
        return [1] * len(doc_ids)
    k = pipeline.candidates
    *_, final = pipeline.stages(query, k, deadline=deadline, method=method, first=False)
    placed = {hit.doc_id: hit.placed_by for hit in final}
    return [placed.get(doc_id, 0) for doc_id in doc_ids]


def explain_hits(pipeline: Pipeline, query: str, *hits: Hit) -> Explanation | ExplanationPair:
    """Why a hit has its score, or how two differ."""
    if len(hits) not in (1, 2):
        raise InputError(f"one hit or two can be explained, not {len(hits)}")
    given = [hit.first_score for hit in hits if hit.first_score is not None]
    explanations = explain_docs(
        pipeline,
        query,
        [hit.doc_id for hit in hits],
        placed_by=[hit.placed_by for hit in hits],
        first_scores=given if len(given) == len(hits) else None,
    )
    return one_or_both(list(map(_as_listed, explanations, hits)))


def _as_listed(explanation: Explanation, hit: Hit) -> Explanation:
    """With a note where the list has another score, to keep a hit below those of later models."""
    if math.isclose(explanation.score, hit.score, rel_tol=1e-3, abs_tol=1e-3):
        return explanation
    note = (
        f"In the list it has the score {hit.score:.4f}, to stand below what was ranked by "
        "another model, or in time."
    )
    return replace(explanation, notes=(*explanation.notes, note))


def one_or_both(explanations: Sequence[Explanation]) -> Explanation | ExplanationPair:
    """One by itself; two side by side."""
    return compare(*explanations) if len(explanations) == 2 else explanations[0]


def what_if_doc(
    pipeline: Pipeline,
    query: str,
    doc_id: str,
    change: Change,
    *,
    most: int | None = None,
    characters: int | None = None,
    method: str | None = None,
    deadline: Deadline = NEVER,
) -> tuple[WhatIf, list[str]]:
    """How a document moves among the first stage's results, `most` of them at most and as many as
    there is time for; and their ids. All are scored live: a changed text is in no store."""
    reranker, index = pipeline.reranker, pipeline.index
    depth = reranker.usage.depth or _CHANGED_AMONG
    depth = depth if most is None else min(depth, most)
    found = index.top_k([query], depth, method or pipeline.method, deadline=deadline)[0]
    ids = [index.snapshot.doc_id(number) for number in found.docs.tolist()]
    ids = ids if doc_id in ids else [*ids, doc_id]
    doc = ids.index(doc_id)
    read = characters_read(reranker)
    texts = [text_of(index.doc(found_id, read)) for found_id in ids]
    texts[doc] = text_of(index.doc(doc_id, characters))
    count = docs_in_time(reranker, texts, change, deadline)
    kept = sorted({doc, *range(min(count, len(ids)))})
    ids, texts, doc = [ids[n] for n in kept], [texts[n] for n in kept], kept.index(doc)
    first = None
    if reranker.model.first_stage_weight is not None:
        first = pipeline.first_scores(query, ids, method=method, deadline=deadline)
    answer = what_if(reranker, query, texts, change, doc=doc, first_stage=first, deadline=deadline)
    return answer, ids


@overload
def explain(ranks: Pipeline, query: str, hit: Hit, /) -> Explanation: ...


@overload
def explain(ranks: Pipeline, query: str, hit: Hit, other: Hit, /) -> ExplanationPair: ...


@overload
def explain(
    ranks: Reranker,
    query: str,
    text: str,
    /,
    *,
    doc_id: str = "",
    first_stage: float | None = None,
    words: Words | None = None,
    pieces: bool = False,
    deadline: Deadline = NEVER,
) -> Explanation: ...


def explain(ranks: Pipeline | Reranker, query: str, /, *what: Any, **options: Any) -> Any:
    """Why a hit of a pipeline has its score, or how two hits differ; or why a text has the score
    that a model alone gives it, with the options of `explain_text`."""
    if isinstance(ranks, Pipeline):
        return explain_hits(ranks, query, *what, **options)
    return explain_text(ranks, query, *what, **options)
