"""The baseline of an explanation: the mean of each part over the query's candidates, and the best
one.

Models that declare their summands are read in batches, from the store if there is one. Other
additive models are explained one document at a time. Of all others each query word is left out, so
means are over fewer documents.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.threads import single_thread
from glassrank.deadline import NEVER, Deadline, LateError, late_error
from glassrank.explanations.against import Key, Rival, Values, against, values_of
from glassrank.explanations.explainers import (
    EXPLAINERS,
    OTHER_PASSAGES,
    explain_text,
    get_passage,
)
from glassrank.explanations.explanation import Explanation
from glassrank.explanations.first_stage_terms import OTHER_WORDS
from glassrank.explanations.kernels import has_kernels, name_kernels, name_paths
from glassrank.explanations.leave_one_out import TOGETHER, iter_ablated
from glassrank.explanations.reading import ReadPassage, TokenizedText, read
from glassrank.explanations.structure import FIRST_STAGE, SIMILAR_DOCS, ScorePart
from glassrank.explanations.subword_merging import group_query_words, number_words
from glassrank.index.search import TopK
from glassrank.models.model import TokenBatch, TokenEmbeddings, make_batch, no_gradients, to_array
from glassrank.models.text_batches import batch_by_length
from glassrank.rerank.stages import IndexStage
from glassrank.rerank.text_scorer import index_sizes

_MAX_DOCS = {"summands": 1000, "explained": 16, "ablated": 16}
"""Documents that means are over: the more, the cheaper each is. Fixed, so that an explanation stays
the same, unless a deadline cuts it short."""
_MAX_ENCODED = 64  # passages that are encoded because no store has them
_DOCS_AT_ONCE, _PASSAGES_AT_ONCE = 256, 8
"""Stored documents, and encoded passages, between two looks at the clock."""
_TOKENS_AT_ONCE = 4096  # with padding, of documents of like length
_MIN_DOCS = 2  # with fewer there is nothing to compare with


_WHOLE_FIRST_STAGE = Key(None, "", None, FIRST_STAGE)
_TOGETHER = Key(None, "", None, TOGETHER)
_SIMILAR_DOCS = Key(None, "", None, SIMILAR_DOCS)
Table = dict[Key, NDArray[np.float64]]
"""The values of each part, for all documents."""


@dataclass(frozen=True)
class _Query:
    """A query as one stage of a pipeline reads it."""

    stage: IndexStage
    text: str
    tokens: TokenizedText
    embeddings: TokenEmbeddings

    @property
    def model(self) -> Any:
        return self.stage.reranker.model


@dataclass(frozen=True)
class CandidateBaseline:
    """The parts of one model's scores for the candidates of one query."""

    _query: _Query
    _candidates: TopK
    _docs: int
    """How many of the candidates have values."""
    _table: Table

    @classmethod
    def compute(
        cls,
        stage: IndexStage,
        text: str,
        candidates: TopK,
        deadline: Deadline,
        split_first_scores: Callable[[TopK], NDArray[np.float64] | None],
        regularization: Mapping[int, float],
    ) -> "CandidateBaseline":
        """Reads as many candidates as there is time for, the first stage's best first.
        `regularization` is what similar documents add to candidates, by their numbers."""
        reranker = stage.reranker
        query = _Query(stage, text, read(reranker, text, "query"), reranker.encode_query(text))
        # A stored batch of a small model is over before a second thread wakes up.
        encodes = stage.store is None or stage.num_missing > 0
        uses_threads = encodes or query.model.info.uses_intra_op_threads
        with nullcontext() if uses_threads else single_thread():
            docs, table = _collect(_iter_tables(query, candidates, deadline), deadline)
        table = _merge_words(query, table)
        weight = query.model.first_stage_weight
        if weight is not None and docs:
            ranked = candidates.head(docs)
            table |= _split_first_stage(weight.item(), ranked.scores, split_first_scores(ranked))
        if regularization:
            numbers = candidates.docs[:docs].tolist()
            table[_SIMILAR_DOCS] = np.array([regularization.get(n, 0.0) for n in numbers])
        return cls(query, candidates, docs, table)

    def annotate(self, explanation: Explanation) -> Explanation:
        """Adds to the explanation of one document what puts it above the candidates or below."""
        if self._docs < _MIN_DOCS:
            return explanation
        own = self._get_values(explanation)
        table = self._table
        divided = [values for key, values in table.items() if key.path == FIRST_STAGE]
        if divided and own.get(_WHOLE_FIRST_STAGE):
            table = {key: values for key, values in table.items() if key.path != FIRST_STAGE}
            table[_WHOLE_FIRST_STAGE] = np.sum(divided, axis=0)
        if _WHOLE_FIRST_STAGE not in table:  # the first stage does not find this document
            own = {key: value for key, value in own.items() if key != _WHOLE_FIRST_STAGE}
        return replace(
            explanation,
            against=against(
                own,
                {key: float(values.mean()) for key, values in table.items()},
                [word.text for word in explanation.query.words],
                docs=self._docs,
                of=len(self._candidates.docs),
                is_additive=self._query.model.info.is_additive,
                rival=self._find_rival(explanation.doc_id, table),
            ),
        )

    def _find_rival(self, doc_id: str, table: Table) -> Rival | None:
        snapshot = self._query.stage.snapshot
        totals = np.sum(list(table.values()), axis=0)  # (docs,)
        own = self._candidates.docs[: self._docs] == snapshot.find(doc_id)
        if own.all():
            return None
        best = int(np.where(own, -np.inf, totals).argmax())
        values = {key: float(column[best]) for key, column in table.items()}
        return Rival(snapshot.doc_id(int(self._candidates.docs[best])), values)

    def _get_values(self, explanation: Explanation) -> Values:
        """The leaves of an additive explanation; otherwise what each query word adds."""
        if self._query.model.info.is_additive:
            return values_of(explanation.parts)
        number = self._query.stage.snapshot.find(explanation.doc_id)
        ((_, lost),) = _iter_batches(self._query, np.array([number]), _ablate_terms, NEVER)
        by_word = _merge_words(self._query, lost)
        terms = {key: float(value[0]) for key, value in by_word.items() if key.term is not None}
        shares = [
            part
            for part in explanation.parts.children
            if part.kind == FIRST_STAGE or part.name == SIMILAR_DOCS
        ]
        first = values_of(ScorePart.total("", "score", shares)) if shares else {}
        rest = explanation.parts.value - math.fsum([*terms.values(), *first.values()])
        return {**terms, **first, _TOGETHER: rest}


def _collect(tables: Iterator[tuple[int, Table]], deadline: Deadline) -> tuple[int, Table]:
    kept: list[tuple[int, Table]] = []
    docs = 0
    for count, table in tables:
        kept.append((count, table))
        docs += count
        if docs >= _MIN_DOCS and deadline.has_passed():
            break
    keys = dict.fromkeys(key for _, table in kept for key in table)
    return docs, {
        key: np.concatenate([table.get(key, np.zeros(count)) for count, table in kept])
        for key in keys
    }


def _iter_tables(
    query: _Query, candidates: TopK, deadline: Deadline
) -> Iterator[tuple[int, Table]]:
    """(count, values) of chunks of candidates, in the way that the model allows."""
    if not query.model.info.is_additive:
        most, split = _MAX_DOCS["ablated"], _ablate_terms
    elif query.model.name not in EXPLAINERS:
        most, split = _MAX_DOCS["summands"], _split_summands
    else:
        yield from _explain_each(query, candidates, deadline)
        return
    for some in _chunk(query.stage, candidates.docs[:most]):
        table: Table = {}
        try:
            for places, parts in _iter_batches(query, some, split, deadline):
                for key, values in parts.items():
                    table.setdefault(key, np.zeros(len(some)))[places] = values
        except LateError:
            return
        yield len(some), table


def _explain_each(
    query: _Query, candidates: TopK, deadline: Deadline
) -> Iterator[tuple[int, Table]]:
    """Explains one document after the other, without the first stage's share."""
    stage = query.stage
    pairs = zip(candidates.docs, candidates.scores, strict=True)
    for number, first_score in list(pairs)[: _MAX_DOCS["explained"]]:
        doc = stage.snapshot.doc(int(number))
        try:
            passage = find_ranked_passage(
                stage, query.text, doc.doc_id, float(first_score), deadline
            )
        except LateError:
            return
        explanation = explain_text(
            stage.reranker,
            query.text,
            doc,
            passage=passage,
            embeddings=stage.read_embeddings(doc.doc_id, passage.number if passage else 0),
            left_out=stage.left_out,
            subwords=True,
        )
        values = values_of(explanation.parts)
        yield 1, {key: np.array([value]) for key, value in values.items()}


def _iter_batches(
    query: _Query,
    numbers: NDArray[np.int64],
    split: Callable[[_Query, TokenEmbeddings], Table],
    deadline: Deadline,
) -> Iterator[tuple[NDArray[np.int64], Table]]:
    """Batches of documents: their places among these, and their values."""
    for places, docs, further in _iter_embeddings(query, numbers, deadline):
        if query.model.info.is_cross_encoder:  # it reads each pair again for each query word
            deadline.check("these documents")
        with no_gradients(query.model):
            parts = split(query, docs)
        if further.any():
            parts[Key(None, "", None, OTHER_PASSAGES)] = further
        yield places, parts


def _split_summands(query: _Query, docs: TokenEmbeddings) -> Table:
    """The model's own parts of each query word, path and kernel."""
    count, model = len(docs.mask), query.model
    parts = model.interact(model.expand(query.embeddings, count), docs).parts
    padded = query.embeddings.mask.shape[1]
    words = min(len(query.tokens.words), int(query.embeddings.mask.sum()))
    kernels = name_kernels(model.config.kernels) if has_kernels(model) else []
    table: Table = {}
    for name in model.info.summands:
        part = to_array(parts[name]).astype(np.float64)
        if part.ndim == 1 or part.shape[1] != padded:
            table[Key(None, name, None, name)] = part.reshape(count, -1).sum(1)
            continue
        for q in range(words):
            if not kernels:
                table[Key(q, name, None, "")] = part[:, q].reshape(count, -1).sum(1)
                continue
            matrices = part[:, q].reshape(count, -1, len(kernels))
            for number, path in enumerate(name_paths(model, name)):
                for k, kernel in enumerate(kernels):
                    table[Key(q, path, k, kernel)] = matrices[:, number, k]
    return table


def _ablate_terms(query: _Query, docs: TokenEmbeddings) -> Table:
    """What scores lose without each query word, and what is left."""
    model, count = query.model, len(docs.mask)

    def score(embeddings: TokenEmbeddings) -> NDArray[np.float64]:
        scores = model.interact(model.expand(embeddings, count), docs).score
        return to_array(scores).astype(np.float64)

    whole = score(query.embeddings)
    units = group_query_words(query.tokens.text)
    lost: Table = {}
    numbers = iter(units)
    for batch in iter_ablated(query.tokens.batch, units, docs.mask.shape[1]):
        for row in range(len(batch.ids)):
            one = TokenBatch(batch.ids[row : row + 1], batch.mask[row : row + 1])
            lost[Key(next(numbers)[0], "", None, "")] = whole - score(model.encode_query(one))
    rest = whole - np.sum([np.zeros(count), *lost.values()], axis=0)
    return {**lost, _TOGETHER: rest}


def _split_first_stage(
    weight: float, scores: NDArray[np.float32], values: NDArray[np.float64] | None
) -> Table:
    """What the first stage adds, by query word if its score is a sum over them."""
    if values is None:
        return {_WHOLE_FIRST_STAGE: weight * scores.astype(np.float64)}
    *own, rest = (weight * values).T
    table = {Key(q, FIRST_STAGE, None, ""): column for q, column in enumerate(own)}
    table[Key(None, FIRST_STAGE, None, OTHER_WORDS)] = rest
    return {key: column for key, column in table.items() if column.any()}


def _merge_words(query: _Query, table: Table) -> Table:
    number = number_words(query.tokens.text)
    merged: dict[Key, list[NDArray[np.float64]]] = {}
    for key, values in table.items():
        word = None if key.term is None else number.get(key.term, key.term)
        merged.setdefault(key._replace(term=word), []).append(values)
    return {key: np.sum(own, axis=0) for key, own in merged.items()}


def find_ranked_passage(
    stage: IndexStage,
    query: str,
    doc_id: str,
    first_score: float | None,
    deadline: Deadline = NEVER,
) -> ReadPassage | None:
    """The passage that a search ranks a document by; None for a whole document."""
    number = np.array([stage.snapshot.find(doc_id)])
    first = np.array([first_score or 0.0], np.float32)
    scored = stage.score_docs(stage.reranker.encode_query(query), number, first, deadline)
    if not len(scored.places):
        raise late_error("this explanation")
    return get_passage(scored)


def _chunk(stage: IndexStage, numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Chunks of documents: as many as may be encoded if they are not stored, and at least two."""
    passages = count_encoded_passages(stage, numbers).cumsum()  # (n,) up to each
    end = max(_MIN_DOCS, int(np.searchsorted(passages, _MAX_ENCODED, "right")))
    numbers, passages = numbers[:end], passages[:end]
    start = 0
    while start < len(numbers):
        most = passages[start] + _PASSAGES_AT_ONCE - 1
        stop = min(start + _DOCS_AT_ONCE, int(np.searchsorted(passages, most, "right")))
        stop = max(stop, start + 1)
        yield numbers[start:stop]
        start = stop


def count_encoded_passages(stage: IndexStage, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) about how many passages of each document must be encoded: 0 if it is stored."""
    usage = stage.reranker.usage
    sizes = index_sizes(stage.snapshot, numbers.tolist())
    passages = np.ceil(sizes / usage.doc_length).astype(np.int64).clip(1, usage.passages.most)
    if stage.store is not None:
        for located in stage.store.locate(stage.snapshot, numbers, partial=True):
            passages[located.which] = 0
    return passages


def _iter_embeddings(
    query: _Query, numbers: NDArray[np.int64], deadline: Deadline
) -> Iterator[tuple[NDArray[np.int64], TokenEmbeddings, NDArray[np.float64]]]:
    """Documents as ranked: places, embeddings of the best passage, and what others add."""
    stage = query.stage
    reranker = stage.reranker
    missing = np.arange(len(numbers))
    best, further = np.zeros(len(numbers), np.int64), np.zeros(len(numbers))

    def choose_passages(places: NDArray[np.int64]) -> None:
        if len(places):
            no_scores = np.zeros(len(places), np.float32)
            scored = stage.score_docs(
                query.embeddings, numbers[places], no_scores, abort_at=deadline
            )
            best[places], further[places] = scored.passages, scored.further

    if stage.store is not None:
        for located in stage.store.locate(stage.snapshot, numbers, partial=True):
            missing = np.setdiff1d(missing, located.which)
            choose_passages(located.which[located.counts > 1])
            starts, lengths = located.part.passage_rows(located.first + best[located.which])
            for some in batch_by_length(lengths, _TOKENS_AT_ONCE):
                places = located.which[some]
                stored = stage.store.read_embeddings(located.part, starts[some], lengths[some])
                yield places, stored, further[places]
    if not len(missing):
        return
    docs = reranker.read([stage.snapshot.doc(number) for number in numbers[missing].tolist()])
    # Encoded on the fly, as in a search.
    choose_passages(missing[[not doc.is_whole for doc in docs]])
    ids = [doc.all().passages[best[place]].ids for doc, place in zip(docs, missing, strict=True)]
    for some in batch_by_length(np.array(list(map(len, ids))), _TOKENS_AT_ONCE):
        batch = make_batch([ids[place] for place in some], reranker.device)
        encoded = reranker.encode_doc(batch, deadline)
        if stage.left_out is not None:
            encoded = stage.left_out.without(encoded, to_array(batch.ids))
        yield missing[some], encoded, further[missing[some]]
