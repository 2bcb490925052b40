"""A first stage of any kind, and documents that are ranked from their texts, within one budget."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassrank.deadline import Clock, Deadline, LateError, now
from glassrank.errors import InputError, kind
from glassrank.ranking.cascade import Cascade
from glassrank.ranking.inputs import (
    check_budget,
    check_k,
    check_query,
    docs_of,
    warn_if_nothing_reached,
)
from glassrank.ranking.planner import Planner
from glassrank.ranking.stages import TextsStage, warm_up
from glassrank.ranking.texts import Model, rerankers_of
from glassrank.retrieve.first_stage import DocSource, FirstStage, ask, in_time
from glassrank.retrieve.search import TopK
from glassrank.types import Doc, Ranking

_CANDIDATES = 100
"""Fewer than where words are stored: each of these is encoded in the query's own time."""


class TextPipeline:
    """
    search = TextPipeline(Fts5("my.db", "docs"), budget_ms=50)
    ranking = search("how do I read a csv file?", k=10)

    The first stage is somebody else's; what it finds is read from the source of documents, and
    encoded and scored in the time that both have left. If the texts come too late the ranking is
    the first stage's own; if the first stage itself does, or fails, that is one sentence.
    """

    def __init__(
        self,
        first_stage: FirstStage,
        models: Model | Sequence[Model] | None = None,
        *,
        docs: DocSource | Mapping[Any, Any] | None = None,
        budget_ms: float | None = None,
        candidates: int = _CANDIDATES,
        clock: Clock = now,
    ) -> None:
        """`docs` may be a dict of texts by id, and need not be given where the first stage has a
        `fetch` of its own. Models are as in `rank`: several are a cascade. They are warmed up here,
        before any budget begins; with a model that mixes a first stage's score into its own, that
        share is left out, as it was learned for another one's scores."""
        check_budget(budget_ms)
        check_k(candidates)
        if not isinstance(first_stage, FirstStage):
            raise InputError(f"a first stage has search(query, k), {kind(first_stage)} has not")
        self.first_stage = first_stage
        self.budget_ms = budget_ms
        self.candidates = candidates
        self.models = tuple(rerankers_of(models, budget_ms is not None))
        self.planner = Planner(clock)
        self._source = _source(first_stage if docs is None else docs)
        for model in self.models:
            warm_up(model, clock)

    def __call__(self, query: str, k: int = 10, *, budget_ms: float | None = None) -> Ranking:
        """The best k. `budget_ms` counts from now, and covers everything."""
        check_query(query)
        check_k(k)
        check_budget(budget_ms)
        clock = self.planner.clock
        budget_ms = budget_ms or self.budget_ms
        deadline = Deadline.after(budget_ms, clock)
        began = clock()
        ids, scores = ask(self.first_stage, query, max(k, self.candidates), deadline)
        asked = clock()
        cascade = Cascade(TopK(np.arange(len(ids)), np.array(scores, np.float32)))
        cascade.timing["first_stage"] = asked - began
        due = self.planner.scored_by(deadline, len(ids))
        docs = self._docs(ids[: self.candidates], due)
        cascade.timing["texts"] = clock() - asked
        stages = [TextsStage(model, docs) for model in self.models] if docs else []
        depth = min(len(docs), self.candidates)
        cascade.rerank(query, stages, [depth] * len(stages), deadline, self.planner)
        if ids and not docs:
            cascade.depths, cascade.cut_short = (0,) * len(self.models), True
        began = clock()

        def doc(place: int, *_: int) -> Doc:
            return docs[place] if place < len(docs) else self._read([ids[place]])[0]

        hits = cascade.hits(k, ids.__getitem__, doc)
        took = clock() - began
        self.planner.learn("sorting", len(ids), took)
        cascade.timing["sorting"] = took
        ranking = cascade.ranking(query, hits, min(self.candidates, len(ids)))
        warn_if_nothing_reached(ranking, budget_ms, caller=2)
        return ranking

    def _docs(self, ids: Sequence[Any], due: Deadline) -> list[Doc]:
        """None at all where they are not there in time: half of them could not be told apart from
        those that were not scored for another reason."""
        if not ids:
            return []
        name = f"the source of documents {type(self._source).__name__}"
        try:
            return in_time(name, lambda: self._read(ids), due)
        except LateError:
            return []

    def _read(self, ids: Sequence[Any]) -> list[Doc]:
        docs = docs_of(self._source.fetch(ids))
        if len(docs) != len(ids):
            raise InputError(
                f"{len(docs)} documents came for {len(ids)} ids; give a source that has them all"
            )
        return [replace(doc, doc_id=str(doc_id)) for doc, doc_id in zip(docs, ids, strict=True)]


class _DictOfDocs:
    """Documents in a dict."""

    def __init__(self, docs: Mapping[Any, Any]) -> None:
        self._docs = docs

    def fetch(self, doc_ids: Sequence[Any]) -> list[Any]:
        """In the order of their ids."""
        try:
            return [self._docs[doc_id] for doc_id in doc_ids]
        except KeyError as error:
            raise InputError(
                f"the documents that were given lack {error.args[0]!r}, which the first stage "
                "found; give those that it searches"
            ) from None


def _source(docs: Any) -> DocSource:
    if isinstance(docs, Mapping):
        return _DictOfDocs(docs)
    if isinstance(docs, DocSource):
        return docs
    raise InputError(
        f"{kind(docs)} has no documents to fetch; give docs=, a dict of texts by id, or something "
        "with fetch(doc_ids)"
    )
