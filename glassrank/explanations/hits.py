"""Explains documents of a pipeline's index with the scores that its search lists: from the same
store, with the same first stage, rounded or exact as the pipeline ranks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError
from glassrank.explanations.candidate_baseline import (
    CandidateBaseline,
    count_encoded_passages,
    find_ranked_passage,
)
from glassrank.explanations.changes import Change, WhatIf, what_if_among
from glassrank.explanations.explainers import PASSAGE_TIME_SHARE, explain_text
from glassrank.explanations.explanation import Explanation, ExplanationPair, compare
from glassrank.explanations.first_stage_terms import divide_first_stage, split_first_scores
from glassrank.explanations.reading import ReadPassage, read
from glassrank.explanations.structure import (
    SIMILAR_DOCS,
    ScorePart,
    Text,
    format_signed,
)
from glassrank.explanations.subword_merging import merge_text_subwords
from glassrank.index.search import TopK
from glassrank.models.model import TokenEmbeddings
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank import Pipeline, Reranker, TextPipeline
from glassrank.rerank.hybrid import found_by_names
from glassrank.types import Doc, Hit, Ranking, describe_found

_BASELINE_TIME_SHARE = 0.5
"""Of the time that is left once the documents themselves are explained."""
_RANKING_TIME_SHARE = 0.25
"""Of the time, to find out which model of a cascade ranked a document."""
_MAX_ENCODED = 256
"""Passages that are encoded to find out which documents a model of a cascade ranks; if there are
more, all candidates count."""
_WHAT_IF_DEPTH = 100
"""First-stage hits among which a change is ranked, unless the model says how deep it ranks."""


def explain_docs(
    pipeline: Pipeline,
    query: str,
    doc_ids: Sequence[str],
    *,
    ranked_by: Sequence[int] | None = None,
    first_scores: Sequence[float] | None = None,
    found: Sequence[str] | None = None,
    regularization: Sequence[float] | None = None,
    characters: int | None = None,
    method: str | None = None,
    deadline: Deadline = NEVER,
) -> list[Explanation]:
    """Explains each document by the model of a cascade that ranked it: the stage of the number
    `ranked_by`, or the one that ranks it without a budget. Computes the first stage's scores if a
    model needs them and they are not given, and in the same way what similar documents add
    (`regularization`). `characters` bounds what is read of a text."""
    if not query.strip():
        raise InputError("the query is empty; expected some words")
    for doc_id in doc_ids:
        pipeline.index.doc(doc_id, 0)  # raises if there is none
    ranking = _FullRanking(pipeline, query, method, deadline)
    # A document that no model reached is explained by the first.
    numbers = [max(number, 1) for number in ranked_by or map(ranking.ranked_by, doc_ids)]
    stages = [pipeline.stages[number - 1] for number in numbers]
    first: Sequence[float | None] = [None] * len(doc_ids)
    if pipeline.first_stage is None and any(
        stage.reranker.model.first_stage_weight is not None for stage in stages
    ):
        first = first_scores or pipeline.first_scores(
            query, doc_ids, method=method, deadline=deadline
        )
    explanations = []
    for place, (stage, doc_id, score) in enumerate(zip(stages, doc_ids, first, strict=True)):
        share = deadline.share(PASSAGE_TIME_SHARE / (len(stages) - place))
        passage = find_ranked_passage(stage, query, doc_id, score, share)
        most = None if characters is None else max(characters, passage.stop if passage else 0)
        explanation = explain_text(
            stage.reranker,
            query,
            pipeline.index.doc(doc_id, most),
            passage=passage,
            doc_id=doc_id,
            first_stage=score,
            embeddings=stage.read_embeddings(doc_id, passage.number if passage else 0),
            left_out=stage.left_out,
            deadline=deadline,
        )
        explanations.append(ranking.divide_first_stage(explanation, score))
    if pipeline.retrieval != "bm25":
        found_ways = found or list(map(ranking.describe_found, doc_ids))
        explanations = [
            _add_note(explanation, f"Found {how}.") if how else explanation
            for explanation, how in zip(explanations, found_ways, strict=True)
        ]
    regularization = regularization or [
        ranking.get_regularization(number).get(pipeline.index.snapshot.find(doc_id), 0.0)
        for number, doc_id in zip(numbers, doc_ids, strict=True)
    ]
    return [
        ranking.get_baseline(number).annotate(_add_regularization(explanation, added))
        for number, explanation, added in zip(numbers, explanations, regularization, strict=True)
    ]


def _add_note(explanation: Explanation, note: str) -> Explanation:
    return replace(explanation, notes=(*explanation.notes, note))


def _add_regularization(explanation: Explanation, added: float) -> Explanation:
    """With what similar documents add, as a part of its own."""
    if not added:
        return explanation
    part = ScorePart(SIMILAR_DOCS, "constant", added)
    root = explanation.parts
    changed = replace(
        explanation,
        score=explanation.score + added,
        parts=ScorePart.total(root.name, root.kind, (*root.children, part)),
        rest=(*explanation.rest, part),
    )
    return _add_note(
        changed,
        f"Candidates that are similar to it have {'higher' if added > 0 else 'lower'} scores, "
        f"which changes its own by {format_signed(added)}.",
    )


@dataclass(frozen=True)
class _FullRanking:
    """What the stages of a pipeline rank for one query without a budget; computed when needed."""

    _pipeline: Pipeline
    _query: str
    _method: str | None
    _deadline: Deadline
    _baselines: dict[int, CandidateBaseline] = field(default_factory=dict)

    @cached_property
    def _candidates(self) -> TopK:
        k = self._pipeline.candidates
        return self._pipeline.top_k(self._query, k, method=self._method, deadline=self._deadline)

    @cached_property
    def _final(self) -> Ranking:
        deadline, k = self._deadline.share(_RANKING_TIME_SHARE), self._pipeline.candidates
        rankings = self._pipeline.stream(
            self._query, k, deadline=deadline, method=self._method, first=False
        )
        return next(rankings)

    def ranked_by(self, doc_id: str) -> int:
        """The stage that ranks a document, 0 if none does; computes scores only if it must."""
        pipeline = self._pipeline
        stages = len(pipeline.stages)
        if stages == 1:
            return 1
        if self._deadline is NEVER and min(pipeline.depths) >= pipeline.candidates:
            return stages if pipeline.index.snapshot.find(doc_id) in self._candidates.docs else 0
        return next((hit.stage for hit in self._final if hit.doc_id == doc_id), 0)

    def get_regularization(self, number: int) -> dict[int, float]:
        """What similar documents add to the documents that a stage ranks last, by their numbers."""
        if not self._pipeline.stages[number - 1].is_regularized:
            return {}
        find = self._pipeline.index.snapshot.find
        return {find(hit.doc_id): hit.regularization for hit in self._final if hit.stage == number}

    def describe_found(self, doc_id: str) -> str:
        """How a document becomes a candidate; empty if it is none of the first ones."""
        top = self._candidates
        place = np.flatnonzero(top.docs == self._pipeline.index.snapshot.find(doc_id))
        if top.found_by is None or not len(place):
            return ""
        names = found_by_names(self._method or self._pipeline.method)
        return describe_found(names[top.found_by[place[0]]])

    def divide_first_stage(self, explanation: Explanation, score: float | None) -> Explanation:
        """Divides the first stage's share by query word, if its score is a sum over them."""
        if score is None:
            return explanation
        number = self._pipeline.index.snapshot.find(explanation.doc_id)
        top = TopK(np.array([number]), np.array([score], np.float32))
        values = self._split_first_scores(explanation.query, top)
        return explanation if values is None else divide_first_stage(explanation, values[0])

    def _split_first_scores(self, query: Text, top: TopK) -> NDArray[np.float64] | None:
        pipeline = self._pipeline
        if pipeline.first_stage is not None:
            return None
        words, method = [word.text for word in query.words], self._method or pipeline.method
        return split_first_scores(pipeline.index, method, self._query, words, top.docs, top.scores)

    def get_baseline(self, number: int) -> CandidateBaseline:
        """The baseline of the stage of this number, which counts from 1."""
        if number not in self._baselines:
            stage = self._pipeline.stages[number - 1]
            text = read(stage.reranker, self._query, "query").text
            words = merge_text_subwords(text) if stage.reranker.model.info.uses_subwords else text
            self._baselines[number] = CandidateBaseline.compute(
                stage,
                self._query,
                self._list_ranked(number),
                self._deadline.share(_BASELINE_TIME_SHARE),
                partial(self._split_first_scores, words),
                self.get_regularization(number),
            )
        return self._baselines[number]

    def _list_ranked(self, number: int) -> TopK:
        """The documents that a stage ranks; all candidates if it would take long to find out."""
        pipeline, found = self._pipeline, self._candidates
        stages = pipeline.stages
        docs, scores = found.docs, found.scores
        if len(stages) > 1 and (
            sum(count_encoded_passages(stage, docs).sum() for stage in stages) <= _MAX_ENCODED
        ):
            hits = [hit for hit in self._final if hit.stage >= number]
            hits.sort(key=lambda hit: hit.first_rank or 0)
            find = pipeline.index.snapshot.find
            docs = np.array([find(hit.doc_id) for hit in hits], np.int64)
            scores = np.array([hit.first_score or 0.0 for hit in hits], np.float32)
        # Models use the scores of the index's own first stage only.
        return TopK(docs, scores if pipeline.first_stage is None else np.zeros_like(scores))


def explain_hits(
    pipeline: Pipeline | TextPipeline, query: str, *hits: Hit | str
) -> Explanation | ExplanationPair:
    """Why a hit has its score, or how two differ; ids stand for hits without a budget."""
    if len(hits) not in (1, 2):
        raise InputError(f"expected one hit or two to explain, not {len(hits)}")
    if isinstance(pipeline, TextPipeline):
        return compare_if_two([_explain_text_hit(pipeline, query, hit) for hit in hits])
    listed = [hit for hit in hits if isinstance(hit, Hit)]
    if len(listed) < len(hits):
        ids = [hit.doc_id if isinstance(hit, Hit) else hit for hit in hits]
        return compare_if_two(explain_docs(pipeline, query, ids))
    first_scores = [hit.first_score for hit in listed if hit.first_score is not None]
    explanations = explain_docs(
        pipeline,
        query,
        [hit.doc_id for hit in listed],
        ranked_by=[hit.stage for hit in listed],
        first_scores=first_scores if len(first_scores) == len(listed) else None,
        found=[hit.found for hit in listed],
        regularization=[hit.regularization for hit in listed],
    )
    return compare_if_two(list(map(_note_listed_score, explanations, listed)))


def _explain_text_hit(pipeline: TextPipeline, query: str, hit: Hit | str) -> Explanation:
    if not isinstance(hit, Hit):
        return explain_text(pipeline.models[-1], query, pipeline.doc(hit), doc_id=str(hit))
    model = pipeline.models[max(hit.stage, 1) - 1]
    explanation = explain_text(model, query, hit.doc or "", doc_id=str(hit.doc_id))
    return _note_listed_score(explanation, hit)


def _note_listed_score(explanation: Explanation, hit: Hit) -> Explanation:
    """Adds a note if the list has another score, which keeps a hit below those of later models."""
    if math.isclose(explanation.score, hit.score, rel_tol=1e-3, abs_tol=1e-3):
        return explanation
    return _add_note(
        explanation,
        f"The list has the score {hit.score:.4f}, which keeps the document below those that a "
        "later model ranked, or that were ranked in time.",
    )


def compare_if_two(explanations: Sequence[Explanation]) -> Explanation | ExplanationPair:
    """One explanation, or two side by side."""
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
    """How a change moves a document among the first stage's hits, `most` at most and as many as
    there is time for; and their ids. The stage that ranks the document encodes and scores all of
    them, since a changed text is in no store."""
    number = _FullRanking(pipeline, query, method, deadline).ranked_by(doc_id)
    reranker, index = pipeline.stages[max(number, 1) - 1].reranker, pipeline.index
    depth = reranker.usage.depth or _WHAT_IF_DEPTH
    depth = depth if most is None else min(depth, most)
    found = pipeline.top_k(query, depth, method=method, deadline=deadline)
    ids = [index.snapshot.doc_id(number) for number in found.docs.tolist()]
    ids = ids if doc_id in ids else [*ids, doc_id]
    docs = [index.doc(found_id, characters) for found_id in ids]
    first = None
    if pipeline.first_stage is None and reranker.model.first_stage_weight is not None:
        first = pipeline.first_scores(query, ids, method=method, deadline=deadline)
    result, kept = what_if_among(
        reranker, query, docs, change, doc=ids.index(doc_id), first_stage=first, deadline=deadline
    )
    return result, [ids[number] for number in kept]


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
    embeddings: TokenEmbeddings | None = None,
    passage: ReadPassage | Literal["best"] | None = "best",
    left_out: TokenFilter | None = None,
    subwords: bool = False,
    deadline: Deadline = NEVER,
) -> Explanation: ...


def explain(
    ranks: Pipeline | TextPipeline | Reranker, query: str, /, *what: Any, **options: Any
) -> Any:
    """Why a hit of a pipeline has its score, or how two hits differ: give hits or document ids. Or
    why a text has the score of a re-ranker, with the options of `explain_text`."""
    if isinstance(ranks, Pipeline | TextPipeline):
        return explain_hits(ranks, query, *what, **options)
    return explain_text(ranks, query, *what, **options)
