"""Ranks texts within one budget: a list of them, without an index or a store, or the candidates
of any first stage."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from glassrank.deadline import Clock, Deadline, LateError, check_budget, now
from glassrank.errors import InputError, describe_type
from glassrank.index.first_stage import DocSource, FirstStage, call_by_deadline, retrieve_ids
from glassrank.index.list_bm25 import ENGLISH, rank_by_bm25
from glassrank.index.search import TopK, check_k, check_query
from glassrank.index.snippets import make_snippet
from glassrank.models.doc_reader import join_title
from glassrank.models.io.model_folder import PACKAGED
from glassrank.rerank.cascade import Cascade
from glassrank.rerank.inputs import (
    as_docs,
    as_ids,
    as_scores,
    check_not_empty,
    warn_if_few_reached,
)
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.stages import TextsStage, warm_up
from glassrank.text.analysis import Analyzer
from glassrank.text.languages import get_analyzer
from glassrank.tracing import span
from glassrank.types import Doc, Ranking

Model = Reranker | str | Path
"""A loaded model, or the name of its folder."""


def load(model: str | Path = "default", device: str = "cpu", *, warm: bool = False) -> Reranker:
    """A model folder, `strong`, `default`, `fast` or `tiny`, which come with the package, or
    `org/name` for one on the hub. Kept in memory, so that asking again costs nothing.

    The first time that it ranks texts, code is compiled and what a text costs is learned, before
    the budget begins; with `warm` that is done at once.
    """
    # One folder is one model, whether its path is a text or not; other texts may be on the hub.
    there = isinstance(model, str) and model not in PACKAGED and Path(model).is_dir()
    reranker = _load_cached(Path(model) if there else model, device)
    if warm:
        warm_up(reranker)
    return reranker


@lru_cache(maxsize=4)
def _load_cached(model: str | Path, device: str) -> Reranker:
    return Reranker.load(model, device)


_FIRST_DOCS, _BEGINNING = 4, 100
"""Texts of a list, and characters of each, from which `auto` detects the language."""
_SCHEDULER = Scheduler()
"""Shared by all lists in this process: what it learns from one helps the next."""


def rank(
    query: str,
    texts: Iterable[str | Mapping[str, Any] | Doc],
    *,
    model: Model | Sequence[Model] | None = None,
    ids: Iterable[Any] | None = None,
    scores: Iterable[float] | None = None,
    budget_ms: float | None = None,
    deadline: Deadline | None = None,
    k: int | None = None,
    language: str = "en",
    best_passages: bool = False,
    clock: Clock = now,
) -> Ranking:
    """Ranks texts, best first. A hit's `doc_id` is the place of its text in the list, from 0,
    unless `ids` are given. A text may be a dict with a `text`, a `title` and further fields.

    BM25 over the list orders texts first, in their `language` (`de`, `ja`, …, or `auto`), or the
    `scores` of the engine that found them do. Models score them in this order; texts that the
    budget, or the deadline, has no time for keep it, below the rest. Loading a model and warming it
    up, the first time, does not count; with a deadline, do it before (`load(warm=True)`). Several
    models are a cascade, as in a `Pipeline`: each further one re-orders the best of those before
    it. With `best_passages`, a further model reads of a long text only the passage that the one
    before it found best (IDCM, Hofstätter et al., SIGIR 2021). The default is the package's two
    models, or `default` alone without a budget.

    >>> texts = ["Dogs bark at night.", "The cat sat on the mat."]
    >>> rank("where did the cat sit?", texts)[0].doc_id
    1
    """
    check_query(query)
    check_not_empty(query)
    check_budget(budget_ms)
    if k is not None:
        check_k(k)
    get_analyzer(language).for_text("a")  # to load what detects languages takes a second, once
    began = clock()
    docs = as_docs(texts)
    names = as_ids(ids, len(docs))
    given = as_scores(scores, len(docs))
    beginnings = (doc.text[:_BEGINNING] for doc in docs[:_FIRST_DOCS])
    analyzer = get_analyzer(language).for_text(" ".join(beginnings))
    taken = clock() - began
    has_budget = budget_ms is not None or deadline is not None
    stages = _make_stages(load_rerankers(model, has_budget), docs, best_passages)
    if budget_ms is not None and deadline is None:
        for stage in stages:
            warm_up(stage.reranker, clock)
    deadline = deadline or Deadline.after(budget_ms, clock).earlier(taken)
    scheduler = _SCHEDULER if clock is now else Scheduler(clock)
    began = clock()
    with span("query", documents=len(docs)):
        if given is None:
            first = _order_by_bm25(query, docs, scheduler, deadline, analyzer)
        else:
            order = np.argsort(-given, kind="stable")
            first = TopK(order, given[order])
        cascade = Cascade(first, timing={"first_stage": clock() - began})
        depths = [len(docs)] * len(stages)
        # Without a budget, the last model would need no help to read all there is.
        planned = best_passages and not has_budget
        cascade.rerank(query, stages, depths, deadline, scheduler, planned=planned)
    show = partial(make_snippet, query, analyzer)
    make_hits = partial(cascade.hits, k, names.__getitem__, lambda place, *_: docs[place], show)
    hits = cascade.time_sorting(scheduler, "sorting", make_hits)
    ranking = cascade.ranking(query, hits, len(docs))
    warn_if_few_reached(ranking, budget_ms)
    return ranking


def _make_stages(
    models: Sequence[Reranker], docs: Sequence[Doc], best_passages: bool
) -> list[TextsStage]:
    return [
        TextsStage(model, docs, reads_best_passages=best_passages and number > 0)
        for number, model in enumerate(models)
    ]


async def arank(
    query: str, texts: Iterable[str | Mapping[str, Any] | Doc], **options: Any
) -> Ranking:
    """`rank` with `await`, in a thread. The budget starts when a thread is free."""
    import asyncio  # takes a twentieth of the time to a first ranking

    return await asyncio.to_thread(rank, query, texts, **options)


def _order_by_bm25(
    query: str,
    docs: Sequence[Doc],
    scheduler: Scheduler,
    deadline: Deadline,
    analyzer: Analyzer = ENGLISH,
) -> TopK:
    """By BM25 over the list; of long texts only the beginning, if there is no time for more."""
    most = scheduler.bm25_characters(deadline, len(docs))
    contents = [join_title(doc) for doc in docs]
    if most < max(map(len, contents), default=0):
        contents = [text[: int(most)] for text in contents]
    began = scheduler.clock()
    first = rank_by_bm25(query, contents, analyzer=analyzer)
    scheduler.learn("bm25", sum(map(len, contents)), scheduler.clock() - began)
    return first


LIST_MODELS = ("fast", "default")
"""Of the package, for a list with a budget: the fast model chooses the texts that are worth the
time of the better one."""


def load_rerankers(model: Model | Sequence[Model] | None, has_budget: bool) -> list[Reranker]:
    """Loads models that are given by name; by default, those of the package."""
    if model is None:
        model = LIST_MODELS if has_budget else LIST_MODELS[-1]
    several = isinstance(model, Sequence) and not isinstance(model, str)
    models: list[Any] = list(model) if several else [model]  # type: ignore[arg-type]
    if not models or not all(isinstance(one, Model) for one in models):
        raise InputError(
            "expected a model folder, 'strong', 'default', 'fast', 'tiny', the result of load(), "
            "or a list of those"
        )
    return [one if isinstance(one, Reranker) else load(one) for one in models]


_CANDIDATES = 100
"""Fewer than with a store: each of these is encoded on the fly."""


class TextPipeline:
    """
    search = TextPipeline(Fts5("my.db", "docs"), budget_ms=50)
    ranking = search("how do I read a csv file?", k=10)

    Re-ranks the candidates of an external first stage. Their texts come from a source of documents,
    and are encoded and scored in the time left. If the texts come too late, the ranking is the
    first stage's own; if the first stage is late or fails, that is an error.
    """

    def __init__(
        self,
        first_stage: FirstStage,
        models: Model | Sequence[Model] | None = None,
        *,
        docs: DocSource | Mapping[Any, Any] | None = None,
        budget_ms: float | None = None,
        candidates: int = _CANDIDATES,
        best_passages: bool = False,
        clock: Clock = now,
    ) -> None:
        """`docs` may be a dict of texts by id; it is not needed if the first stage has `fetch`.
        Models and `best_passages` are as in `rank`: several are a cascade. They are warmed up here,
        before any budget starts. A model does not interpolate with first-stage scores here: it was
        trained on others.
        """
        check_budget(budget_ms)
        check_k(candidates)
        if not isinstance(first_stage, FirstStage):
            raise InputError(
                f"a first stage needs search(query, k), which {describe_type(first_stage)} lacks"
            )
        self.first_stage = first_stage
        self.budget_ms = budget_ms
        self.candidates = candidates
        self.best_passages = best_passages
        self.models = tuple(load_rerankers(models, budget_ms is not None))
        self.scheduler = Scheduler(clock)
        self._source = _as_source(first_stage if docs is None else docs)
        for model in self.models:
            warm_up(model, clock)

    def __call__(self, query: str, k: int = 10, *, budget_ms: float | None = None) -> Ranking:
        """The best k. `budget_ms` starts now and covers everything."""
        check_query(query)
        check_not_empty(query)
        check_k(k)
        check_budget(budget_ms)
        clock = self.scheduler.clock
        budget_ms = budget_ms or self.budget_ms
        deadline = Deadline.after(budget_ms, clock)
        began = clock()
        ids, scores = retrieve_ids(self.first_stage, query, max(k, self.candidates), deadline)
        asked = clock()
        scoring_deadline = self.scheduler.scoring_deadline(deadline, len(ids))
        docs = self._docs(ids[: self.candidates], scoring_deadline)
        read = clock()
        first = TopK(np.arange(len(ids)), np.array(scores or [0.0] * len(ids), np.float32))
        if docs and as_scores(scores, len(ids)) is None:
            first = _append_unread(_order_by_bm25(query, docs, self.scheduler, deadline), len(ids))
        timing = {"first_stage": asked - began + clock() - read, "texts": read - asked}
        cascade = Cascade(first, timing=timing)
        stages = _make_stages(self.models, docs, self.best_passages) if docs else []
        depth = min(len(docs), self.candidates)
        depths, planned = [depth] * len(stages), self.best_passages and budget_ms is None
        cascade.rerank(query, stages, depths, deadline, self.scheduler, planned=planned)
        if ids and not docs:
            cascade.depths, cascade.cut_short = (0,) * len(self.models), True

        def doc(place: int, *_: int) -> Doc:
            return docs[place] if place < len(docs) else self._read([ids[place]])[0]

        snippets = partial(make_snippet, query, ENGLISH)
        make_hits = partial(cascade.hits, k, ids.__getitem__, doc, snippets)
        hits = cascade.time_sorting(self.scheduler, "sorting", make_hits)
        ranking = cascade.ranking(query, hits, min(self.candidates, len(ids)))
        warn_if_few_reached(ranking, budget_ms)
        return ranking

    async def aquery(self, query: str, k: int = 10, *, budget_ms: float | None = None) -> Ranking:
        """The same with `await`, in a thread. The budget starts when a thread is free."""
        import asyncio

        return await asyncio.to_thread(self, query, k, budget_ms=budget_ms)

    def doc(self, doc_id: Any) -> Doc:
        """One document of the source."""
        return self._read([doc_id])[0]

    def _docs(self, ids: Sequence[Any], deadline: Deadline) -> list[Doc]:
        """None of them where they come too late: half would look like unscored documents."""
        if not ids:
            return []
        name = f"the source of documents {type(self._source).__name__}"
        try:
            return call_by_deadline(name, lambda: self._read(ids), deadline)
        except LateError:
            return []

    def _read(self, ids: Sequence[Any]) -> list[Doc]:
        docs = as_docs(self._source.fetch(ids))
        if len(docs) != len(ids):
            raise InputError(
                f"{len(docs)} documents came for {len(ids)} ids; give a source that has them all"
            )
        return [replace(doc, doc_id=str(doc_id)) for doc, doc_id in zip(docs, ids, strict=True)]


def _append_unread(first: TopK, count: int) -> TopK:
    """Candidates whose texts were not read come last."""
    rest = np.arange(len(first.docs), count)
    return TopK(
        np.concatenate([first.docs, rest]),
        np.concatenate([first.scores, np.zeros(len(rest), np.float32)]),
    )


class _DictOfDocs:
    def __init__(self, docs: Mapping[Any, Any]) -> None:
        self._docs = docs

    def fetch(self, doc_ids: Sequence[Any]) -> list[Any]:
        """In the order of their ids."""
        try:
            return [self._docs[doc_id] for doc_id in doc_ids]
        except KeyError as error:
            raise InputError(
                f"the first stage found {error.args[0]!r}, which docs lacks; give the documents "
                "that it searches"
            ) from None


def _as_source(docs: Any) -> DocSource:
    if isinstance(docs, Mapping):
        return _DictOfDocs(docs)
    if isinstance(docs, DocSource):
        return docs
    raise InputError(
        f"{describe_type(docs)} has no documents to fetch; give docs=, a dict of texts by id, "
        "or something with fetch(doc_ids)"
    )
