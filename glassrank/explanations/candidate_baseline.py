"""What the parts of a score are on the average, and what the best of them are, over candidates of
the same query.

Where a model declares its summands, candidates are read in batches, from the store if there is one:
`interact` gives the parts of all at once. Of other exact models each is explained by itself, and of
models without exact parts each query word is left out, so that means are over fewer documents.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.threads import single_thread
from glassrank.deadline import NEVER, Deadline, LateError, ending, late_error
from glassrank.explanations.against import Key, Rival, Values, against, values_of
from glassrank.explanations.explainers import (
    EXPLAINERS,
    OTHER_PASSAGES,
    explain_text,
    get_passage,
)
from glassrank.explanations.explanation import Explanation
from glassrank.explanations.first_stage_terms import OTHER_WORDS, FirstStageTerms
from glassrank.explanations.kernels import has_kernels, name_kernels, name_paths
from glassrank.explanations.leave_one_out import iter_ablated
from glassrank.explanations.reading import ReadPassage, read
from glassrank.explanations.structure import FIRST_STAGE, ScorePart
from glassrank.explanations.subword_merging import group_query_words, number_words
from glassrank.models.model import TokenEmbeddings, no_gradients, to_array
from glassrank.models.text_batches import batch_by_length, make_batch
from glassrank.rerank.stages import IndexStage
from glassrank.rerank.text_candidates import index_sizes

_MOST = {"declared": 1000, "explained": 16, "left out": 16}
"""Documents that means are over: the more, the cheaper each is. Always the same, so that an
explanation is the same tomorrow, unless a deadline cuts it short."""
_MOST_LIVE = 64
"""Passages of documents that no store has: what is not stored is encoded."""
_AT_ONCE, _LIVE_AT_ONCE = 256, 8
"""Documents, and passages that are encoded, between two looks at the clock."""
_PLACES_AT_ONCE = 4096
"""Words with padding, of documents of like length."""
_FEWEST = 2
"""With fewer there are no others."""


@dataclass(frozen=True)
class RankedDocs:
    """What was re-ranked, in the first stage's order."""

    numbers: NDArray[np.int64]
    first_scores: NDArray[np.float32]


_IN_ONE_PIECE = Key(None, "", None, FIRST_STAGE)
Table = dict[Key, NDArray[np.float64]]
"""Of each part, the values of all documents."""


class CandidateBaseline:
    """One model on the candidates of one query: what is usual, and what the best of them has."""

    def __init__(
        self,
        stage: IndexStage,
        query: str,
        candidates: RankedDocs,
        deadline: Deadline,
        first_stage: FirstStageTerms | None = None,
    ) -> None:
        self._stage = stage
        self._query = query
        self._candidates = candidates
        self._deadline = deadline
        reranker = stage.reranker
        self._model = reranker.model
        self._asked = read(reranker, query, "query")
        self._encoded = reranker.encode_query(query)
        self._declares = self._model.info.is_additive and self._model.name not in EXPLAINERS
        # A stored batch of a small model is over before a second thread has woken up.
        encodes = stage.store is None or stage.num_missing > 0
        with (
            nullcontext() if encodes or self._model.info.uses_intra_op_threads else single_thread()
        ):
            self._docs, own = self._values()
        self._table = {**self._by_words(own), **self._first_stage(first_stage)}

    def annotate(self, explanation: Explanation) -> Explanation:
        """The explanation of one document, with what puts it above these or below."""
        if self._docs < _FEWEST:
            return explanation
        words = [word.text for word in explanation.query.words]
        own = self._own(explanation)
        table = self._divided_alike(own)
        if _IN_ONE_PIECE not in table:  # one that the first stage does not find has nothing of it
            own = {key: value for key, value in own.items() if key != _IN_ONE_PIECE}
        found = against(
            own,
            {key: float(values.mean()) for key, values in table.items()},
            words,
            docs=self._docs,
            of=len(self._candidates.numbers),
            is_additive=self._model.info.is_additive,
            rival=self._rival(explanation.doc_id, table),
        )
        return replace(explanation, against=found)

    def _rival(self, doc_id: str, table: Table) -> Rival | None:
        """The best of the documents but this one."""
        snapshot = self._stage.snapshot
        totals = np.sum(list(table.values()), axis=0)  # (docs,)
        own = self._candidates.numbers[: self._docs] == snapshot.find(doc_id)
        if own.all():
            return None
        best = int(np.where(own, -np.inf, totals).argmax())
        number = int(self._candidates.numbers[best])
        return Rival(
            snapshot.doc_id(number), {key: float(values[best]) for key, values in table.items()}
        )

    def _divided_alike(self, own: Values) -> Table:
        """With the first stage's share in one piece, where the document has it so."""
        divided = [key for key in self._table if key.path == FIRST_STAGE]
        if not divided or not own.get(_IN_ONE_PIECE):
            return self._table
        whole = np.sum([self._table[key] for key in divided], axis=0)
        kept = {key: values for key, values in self._table.items() if key.path != FIRST_STAGE}
        return {**kept, _IN_ONE_PIECE: whole}

    def _own(self, explanation: Explanation) -> Values:
        """Its leaves; of a model without exact parts, what is lost without each query word."""
        if self._model.info.is_additive:
            return values_of(explanation.parts)
        number = self._stage.snapshot.find(explanation.doc_id)
        ((_, lost),) = self._each(np.array([number]), self._left_out)
        terms = {
            key: float(v[0]) for key, v in self._by_words(lost).items() if key.term is not None
        }
        shares = [part for part in explanation.parts.children if part.kind == FIRST_STAGE]
        first = values_of(ScorePart.total("", "score", shares)) if shares else {}
        rest = explanation.parts.value - math.fsum([*terms.values(), *first.values()])
        return {**terms, **first, Key(None, "", None, "together"): rest}

    def _values(self) -> tuple[int, Table]:
        """Of as many documents as there is time for, the first stage's best first."""
        steps = (
            self._explained()
            if self._model.info.is_additive and not self._declares
            else self._in_batches()
        )
        tables: list[tuple[int, Table]] = []
        docs = 0
        for count, table in steps:
            tables.append((count, table))
            docs += count
            if docs >= _FEWEST and self._deadline.has_passed():
                break
        keys = dict.fromkeys(key for _, table in tables for key in table)
        return docs, {
            key: np.concatenate([table.get(key, np.zeros(count)) for count, table in tables])
            for key in keys
        }

    def _in_batches(self) -> Iterator[tuple[int, Table]]:
        way = self._declared if self._declares else self._left_out
        most = _MOST["declared" if self._declares else "left out"]
        for some in _in_steps(self._stage, self._candidates.numbers[:most]):
            table: Table = {}
            try:
                with ending(self._deadline):
                    for places, parts in self._each(some, way):
                        for key, values in parts.items():
                            table.setdefault(key, np.zeros(len(some)))[places] = values
            except LateError:
                return
            yield len(some), table

    def _first_stage(self, terms: FirstStageTerms | None) -> Table:
        """What the first stage adds, by query word where it can be told."""
        weight = self._model.first_stage_weight
        if weight is None or not self._docs:
            return {}
        scores = self._candidates.first_scores[: self._docs]
        values = (
            None if terms is None else terms.by_word(self._candidates.numbers[: self._docs], scores)
        )
        counts = weight.item()
        if values is None:
            return {_IN_ONE_PIECE: counts * scores.astype(np.float64)}
        *own, rest = (counts * values).T
        table = {Key(q, FIRST_STAGE, None, ""): column for q, column in enumerate(own)}
        table[Key(None, FIRST_STAGE, None, OTHER_WORDS)] = rest
        return {key: column for key, column in table.items() if column.any()}

    def _each(
        self, numbers: NDArray[np.int64], way: Callable[[TokenEmbeddings], Table]
    ) -> Iterator[tuple[NDArray[np.int64], Table]]:
        """Some documents at a time: their places among these, and their values."""
        for places, docs, further in _words(self._stage, self._encoded, numbers):
            with no_gradients(self._model):
                parts = way(docs)
            if further.any():
                parts[Key(None, "", None, OTHER_PASSAGES)] = further
            yield places, parts

    def _declared(self, docs: TokenEmbeddings) -> Table:
        """The model's own parts of each query word, path and kernel."""
        count = len(docs.mask)
        model = self._model
        parts = model.interact(model.expand(self._encoded, count), docs).parts
        padded = self._encoded.mask.shape[1]
        words = min(len(self._asked.words), int(self._encoded.mask.sum()))
        found: Table = {}
        for name in model.info.summands:
            part = to_array(parts[name]).astype(np.float64)
            if part.ndim == 1 or part.shape[1] != padded:
                found[Key(None, name, None, name)] = part.reshape(count, -1).sum(1)
                continue
            for q in range(words):
                found.update(self._leaves(name, q, part[:, q]))
        return found

    def _leaves(
        self, name: str, q: int, part: NDArray[np.float64]
    ) -> Iterator[tuple[Key, NDArray[np.float64]]]:
        """Of one query word: (B, K) or (B, matrices, K) by kernel, else in one."""
        if not has_kernels(self._model):
            yield Key(q, name, None, ""), part.reshape(len(part), -1).sum(1)
            return
        kernels = name_kernels(self._model.config.kernels)
        matrices = part.reshape(len(part), -1, len(kernels))
        for number, path in enumerate(name_paths(self._model, name)):
            for k, kernel in enumerate(kernels):
                yield Key(q, path, k, kernel), matrices[:, number, k]

    def _left_out(self, docs: TokenEmbeddings) -> Table:
        """What scores lose without each query word, and what is left."""
        model, count = self._model, len(docs.mask)

        def scores(query: TokenEmbeddings) -> NDArray[np.float64]:
            found = model.interact(model.expand(query, count), docs).score
            return to_array(found).astype(np.float64)

        whole = scores(self._encoded)
        units = group_query_words(self._asked.text)
        rows = (
            model.encode_query(type(batch)(batch.ids[row : row + 1], batch.mask[row : row + 1]))
            for batch in iter_ablated(self._asked.batch, units, docs.mask.shape[1])
            for row in range(len(batch.ids))
        )
        lost = {
            Key(unit[0], "", None, ""): whole - scores(query)
            for unit, query in zip(units, rows, strict=True)
        }
        rest = whole - np.sum([np.zeros(count), *lost.values()], axis=0)
        return {**lost, Key(None, "", None, "together"): rest}

    def _explained(self) -> Iterator[tuple[int, Table]]:
        """Each by itself, without the first stage's share."""
        stage, most = self._stage, _MOST["explained"]
        pairs = zip(self._candidates.numbers, self._candidates.first_scores, strict=True)
        for number, first_score in list(pairs)[:most]:
            doc = stage.snapshot.doc(int(number))
            try:
                passage = ranked_passage(
                    stage, self._query, doc.doc_id, float(first_score), self._deadline
                )
            except LateError:
                return
            explanation = explain_text(
                stage.reranker,
                self._query,
                doc,
                words=stage.words(doc.doc_id, passage.number if passage else 0),
                passage=passage,
                left_out=stage.left_out,
                pieces=True,
            )
            values = values_of(explanation.parts)
            yield 1, {key: np.array([value]) for key, value in values.items()}

    def _by_words(self, table: Table) -> Table:
        """Those of pieces of one query word together."""
        number = number_words(self._asked.text)
        found: dict[Key, list[NDArray[np.float64]]] = {}
        for key, values in table.items():
            word = None if key.term is None else number.get(key.term, key.term)
            found.setdefault(key._replace(term=word), []).append(values)
        return {key: np.sum(own, axis=0) for key, own in found.items()}


def ranked_passage(
    stage: IndexStage,
    query: str,
    doc_id: str,
    first_score: float | None,
    due: Deadline = NEVER,
) -> ReadPassage | None:
    """The passage of a document that a search ranks it by, of those that can be read in time; None
    where that is all of it."""
    number = np.array([stage.snapshot.find(doc_id)])
    encoded = stage.reranker.encode_query(query)
    first = np.array([first_score or 0.0], np.float32)
    placed = stage.score_docs(encoded, number, first, due)
    if not len(placed.which):
        raise late_error("this explanation")
    return get_passage(placed)


def _in_steps(stage: IndexStage, numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The first of these documents, as many as may be encoded where they are not stored, and two at
    least; some at a time."""
    passages = live_passages(stage, numbers).cumsum()  # (n,) up to each
    end = max(_FEWEST, int(np.searchsorted(passages, _MOST_LIVE, "right")))
    numbers, passages = numbers[:end], passages[:end]
    start = 0
    while start < len(numbers):
        most = passages[start] + _LIVE_AT_ONCE - 1
        stop = min(start + _AT_ONCE, int(np.searchsorted(passages, most, "right")))
        stop = max(stop, start + 1)
        yield numbers[start:stop]
        start = stop


def live_passages(stage: IndexStage, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) about how many passages of each document must be encoded: none where it is stored."""
    usage = stage.reranker.usage
    sizes = index_sizes(stage.snapshot, numbers.tolist())
    passages = np.ceil(sizes / usage.doc_length).astype(np.int64).clip(1, usage.passages.most)
    if stage.store is not None:
        for located in stage.store.locate(stage.snapshot, numbers, partial=True):
            passages[located.which] = 0
    return passages


def _words(
    stage: IndexStage, query: TokenEmbeddings, numbers: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], TokenEmbeddings, NDArray[np.float64]]]:
    """Documents as they are ranked, of long ones the best passage: their places among these, their
    words, and what their other passages add."""
    reranker = stage.reranker
    lacking = np.arange(len(numbers))
    best, further = np.zeros(len(numbers), np.int64), np.zeros(len(numbers))

    def read(places: NDArray[np.int64]) -> None:
        if len(places):
            none = np.zeros(len(places), np.float32)
            placed = stage.score_docs(query, numbers[places], none)
            best[places], further[places] = placed.numbers, placed.further

    if stage.store is not None:
        for located in stage.store.locate(stage.snapshot, numbers, partial=True):
            lacking = np.setdiff1d(lacking, located.which)
            read(located.which[located.counts > 1])
            starts, lengths = located.part.passage_rows(located.first + best[located.which])
            for some in batch_by_length(lengths, _PLACES_AT_ONCE):
                places = located.which[some]
                yield (
                    places,
                    stage.store.words(located.part, starts[some], lengths[some]),
                    further[places],
                )
    if not len(lacking):
        return
    docs = reranker.read([stage.snapshot.doc(number) for number in numbers[lacking].tolist()])
    # They are encoded live, as in a search.
    read(lacking[[not doc.is_whole for doc in docs]])
    found = [doc.all().passages[best[place]].ids for doc, place in zip(docs, lacking, strict=True)]
    for some in batch_by_length(np.array([len(ids) for ids in found]), _PLACES_AT_ONCE):
        batch = make_batch([found[place] for place in some], reranker.device)
        words = reranker.encode_doc(batch)
        out = stage.left_out
        words = words if out is None else out.without(words, to_array(batch.ids))
        yield lacking[some], words, further[lacking[some]]
