"""Documents of a pipeline's index, explained by the scores that its search lists: from the same
store, with the same first stage, rounded or exact as the pipeline ranks."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError
from glassrank.explanations.candidate_baseline import (
    CandidateBaseline,
    RankedDocs,
    live_passages,
    ranked_passage,
)
from glassrank.explanations.changes import Change, WhatIf, what_if_among
from glassrank.explanations.explainers import FOR_PASSAGES, explain_text
from glassrank.explanations.explanation import Explanation, ExplanationPair, compare
from glassrank.explanations.first_stage_terms import FirstStageTerms, divide_first_stage
from glassrank.explanations.reading import ReadPassage, read
from glassrank.explanations.subword_merging import merge_text_subwords
from glassrank.index.search import TopK
from glassrank.models.model import TokenEmbeddings
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank import Pipeline, Reranker, TextPipeline
from glassrank.types import Doc, Hit, Ranking

_FOR_OTHERS = 0.5
"""Of the time that is left, once the documents themselves are explained."""
_FOR_RANKING = 0.25
"""Of the time, where it must be found out which model of a cascade placed a document."""
_MOST_ENCODED = 256
"""Passages, to find out which documents a model of a cascade ranks: else all candidates count."""
_CHANGED_AMONG = 100
"""So many first-stage results, unless the model says how deep it ranks."""


def explain_docs(
    pipeline: Pipeline,
    query: str,
    doc_ids: Sequence[str],
    *,
    ranked_by: Sequence[int] | None = None,
    first_scores: Sequence[float] | None = None,
    characters: int | None = None,
    method: str | None = None,
    deadline: Deadline = NEVER,
) -> list[Explanation]:
    """Each document's own explanation, by the model of a cascade that placed it: the one of this
    number, or the one that does so without a budget. The first stage's scores are looked up where
    a model has a use for them, unless they are given; `characters` bounds what is read of a text.
    """
    for doc_id in doc_ids:
        pipeline.index.doc(doc_id, 0)  # says so where there is none
    reranked = _Reranked(pipeline, query, method, deadline)
    numbers = [
        max(number, 1)  # one that no model came to is explained by the first
        for number in ranked_by or map(reranked.ranked_by, doc_ids)
    ]
    models = [pipeline.stages[number - 1] for number in numbers]
    first: Sequence[float | None] = [None] * len(doc_ids)
    if pipeline.first_stage is None and any(
        model.reranker.model.first_stage_weight is not None for model in models
    ):
        first = first_scores or pipeline.first_scores(
            query, doc_ids, method=method, deadline=deadline
        )
    explanations = []
    for place, (model, doc_id, score) in enumerate(zip(models, doc_ids, first, strict=True)):
        due = deadline.share(FOR_PASSAGES / (len(models) - place))
        passage = ranked_passage(model, query, doc_id, score, due)
        most = None if characters is None else max(characters, passage.stop if passage else 0)
        explanations.append(
            explain_text(
                model.reranker,
                query,
                pipeline.index.doc(doc_id, most),
                doc_id=doc_id,
                first_stage=score,
                words=model.words(doc_id, passage.number if passage else 0),
                passage=passage,
                left_out=model.left_out,
                deadline=deadline,
            )
        )
    divided = [
        reranked.divide_first_stage(explanation, score)
        for explanation, score in zip(explanations, first, strict=True)
    ]
    return [
        reranked.baseline(number).annotate(explanation)
        for number, explanation in zip(numbers, divided, strict=True)
    ]


class _Reranked:
    """What the pipeline's models rank for one query without a budget, looked up when asked for."""

    def __init__(
        self, pipeline: Pipeline, query: str, method: str | None, deadline: Deadline
    ) -> None:
        self._pipeline = pipeline
        self._query = query
        self._method = method
        self._deadline = deadline
        self._baselines: dict[int, CandidateBaseline] = {}

    @cached_property
    def _found(self) -> TopK:
        pipeline = self._pipeline
        return pipeline.top_k(
            self._query, pipeline.candidates, method=self._method, deadline=self._deadline
        )

    @cached_property
    def _final(self) -> Ranking:
        pipeline, k = self._pipeline, self._pipeline.candidates
        deadline = self._deadline.share(_FOR_RANKING)
        stages = pipeline.stream(
            self._query, k, deadline=deadline, method=self._method, first=False
        )
        return next(stages)

    def ranked_by(self, doc_id: str) -> int:
        """The number of the model that placed a document, as a ranking has it. Where all
        models rank all that is found, nothing needs to be scored to know it."""
        pipeline = self._pipeline
        models = len(pipeline.stages)
        if models == 1:
            return 1
        if self._deadline is NEVER and min(pipeline.depths) >= pipeline.candidates:
            return models if pipeline.index.snapshot.find(doc_id) in self._found.docs else 0
        return next((hit.stage for hit in self._final if hit.doc_id == doc_id), 0)

    def divide_first_stage(self, explanation: Explanation, score: float | None) -> Explanation:
        """By query word, where the first stage's score is a sum over them."""
        terms = self._first_stage_terms([word.text for word in explanation.query.words])
        if terms is None or score is None:
            return explanation
        number = self._pipeline.index.snapshot.find(explanation.doc_id)
        values = terms.by_word(np.array([number]), np.array([score], np.float32))
        return explanation if values is None else divide_first_stage(explanation, values[0])

    def _first_stage_terms(self, words: Sequence[str]) -> FirstStageTerms | None:
        pipeline = self._pipeline
        if pipeline.first_stage is not None:
            return None
        method = self._method or pipeline.method
        return FirstStageTerms(pipeline.index, method, self._query, words)

    def baseline(self, number: int) -> CandidateBaseline:
        """What the model of this number, from 1 on, ranks. One model ranks all candidates, so that
        nothing needs to be scored to know them; nor is it if that would take long."""
        if number not in self._baselines:
            stage = self._pipeline.stages[number - 1]
            asked = read(stage.reranker, self._query, "query").text
            words = merge_text_subwords(asked) if stage.reranker.model.info.uses_subwords else asked
            self._baselines[number] = CandidateBaseline(
                stage,
                self._query,
                self._candidates(number),
                self._deadline.share(_FOR_OTHERS),
                self._first_stage_terms([word.text for word in words.words]),
            )
        return self._baselines[number]

    def _candidates(self, number: int) -> RankedDocs:
        pipeline, found = self._pipeline, self._found
        stages = pipeline.stages
        if (
            len(stages) == 1
            or sum(live_passages(stage, found.docs).sum() for stage in stages) > _MOST_ENCODED
        ):
            return RankedDocs(found.docs, self._mixed(found.scores))
        hits = [hit for hit in self._final if hit.stage >= number]
        hits.sort(key=lambda hit: hit.first_rank or 0)
        return RankedDocs(
            np.array([pipeline.index.snapshot.find(hit.doc_id) for hit in hits], np.int64),
            self._mixed(np.array([hit.first_score or 0.0 for hit in hits], np.float32)),
        )

    def _mixed(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """The first stage's scores, as far as models have a use for them."""
        return scores if self._pipeline.first_stage is None else np.zeros_like(scores)


def explain_hits(
    pipeline: Pipeline | TextPipeline, query: str, *hits: Hit | str
) -> Explanation | ExplanationPair:
    """Why a hit has its score, or how two differ; of documents that are given by their ids, the
    scores that they have without a budget."""
    if len(hits) not in (1, 2):
        raise InputError(f"one hit or two can be explained, not {len(hits)}")
    if isinstance(pipeline, TextPipeline):
        return compare_if_two([_explain_text_hit(pipeline, query, hit) for hit in hits])
    listed = [hit for hit in hits if isinstance(hit, Hit)]
    if len(listed) < len(hits):
        ids = [hit.doc_id if isinstance(hit, Hit) else hit for hit in hits]
        return compare_if_two(explain_docs(pipeline, query, ids))
    given = [hit.first_score for hit in listed if hit.first_score is not None]
    explanations = explain_docs(
        pipeline,
        query,
        [hit.doc_id for hit in listed],
        ranked_by=[hit.stage for hit in listed],
        first_scores=given if len(given) == len(listed) else None,
    )
    return compare_if_two(list(map(_as_listed, explanations, listed)))


def _explain_text_hit(pipeline: TextPipeline, query: str, hit: Hit | str) -> Explanation:
    if isinstance(hit, Hit):
        model = pipeline.models[max(hit.stage, 1) - 1]
        return _as_listed(explain_text(model, query, hit.doc or "", doc_id=str(hit.doc_id)), hit)
    return explain_text(pipeline.models[-1], query, pipeline.doc(hit), doc_id=str(hit))


def _as_listed(explanation: Explanation, hit: Hit) -> Explanation:
    """With a note where the list has another score, to keep a hit below those of later models."""
    if math.isclose(explanation.score, hit.score, rel_tol=1e-3, abs_tol=1e-3):
        return explanation
    note = (
        f"In the list it has the score {hit.score:.4f}, to stand below what was ranked by "
        "another model, or in time."
    )
    return replace(explanation, notes=(*explanation.notes, note))


def compare_if_two(explanations: Sequence[Explanation]) -> Explanation | ExplanationPair:
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
    there is time for; and their ids. All are scored live, since a changed text is in no store, by
    the model of a cascade that placed the document."""
    number = _Reranked(pipeline, query, method, deadline).ranked_by(doc_id)
    reranker, index = pipeline.stages[max(number, 1) - 1].reranker, pipeline.index
    depth = reranker.usage.depth or _CHANGED_AMONG
    depth = depth if most is None else min(depth, most)
    found = pipeline.top_k(query, depth, method=method, deadline=deadline)
    ids = [index.snapshot.doc_id(number) for number in found.docs.tolist()]
    ids = ids if doc_id in ids else [*ids, doc_id]
    doc = ids.index(doc_id)
    docs = [index.doc(found_id, characters) for found_id in ids]
    first = None
    if pipeline.first_stage is None and reranker.model.first_stage_weight is not None:
        first = pipeline.first_scores(query, ids, method=method, deadline=deadline)
    answer, kept = what_if_among(
        reranker, query, docs, change, doc=doc, first_stage=first, deadline=deadline
    )
    return answer, [ids[number] for number in kept]


@overload
def explain(ranks: Pipeline | TextPipeline, query: str, hit: Hit | str, /) -> Explanation: ...


@overload
def explain(
    ranks: Pipeline | TextPipeline, query: str, hit: Hit | str, other: Hit | str, /
) -> ExplanationPair: ...


@overload
def explain(
    ranks: Reranker,
    query: str,
    text: str | Doc,
    /,
    *,
    doc_id: str = "",
    first_stage: float | None = None,
    words: TokenEmbeddings | None = None,
    passage: ReadPassage | None = None,
    left_out: TokenFilter | None = None,
    pieces: bool = False,
    deadline: Deadline = NEVER,
) -> Explanation: ...


def explain(
    ranks: Pipeline | TextPipeline | Reranker, query: str, /, *what: Any, **options: Any
) -> Any:
    """Why a hit of a pipeline has its score, or how two hits differ, which may also be given by
    their ids; or why a text has the score
    that a model alone gives it, with the options of `explain_text`."""
    if isinstance(ranks, Pipeline | TextPipeline):
        return explain_hits(ranks, query, *what, **options)
    return explain_text(ranks, query, *what, **options)
