"""What the parts of a score are on the average, over candidates of the same query.

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

from glassrank.deadline import NEVER, Deadline, LateError, ending, late
from glassrank.explaining.against import FIRST_STAGE, Key, Values, against, values_of
from glassrank.explaining.explainers import EXPLAINERS, explain_text, ranked_by
from glassrank.explaining.explanation import Explanation
from glassrank.explaining.kernels import has_kernels, kernel_names, path_names
from glassrank.explaining.leave_one_out import each_left_out
from glassrank.explaining.reading import ReadPassage, read
from glassrank.explaining.whole_words import query_units, word_numbers
from glassrank.models.ranker import Words, as_array, no_gradients
from glassrank.models.text_batches import batch_of, like_length
from glassrank.nn.threads import one_thread
from glassrank.ranking.stages import IndexStage
from glassrank.ranking.text_candidates import index_sizes

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


@dataclass(frozen=True)
class Means:
    """Of each part, by query word."""

    values: Values
    docs: int


class Others:
    """One model on the candidates of one query."""

    def __init__(
        self, stage: IndexStage, query: str, candidates: RankedDocs, deadline: Deadline
    ) -> None:
        self._stage = stage
        self._query = query
        self._candidates = candidates
        self._deadline = deadline
        reranker = stage.reranker
        self._model = reranker.model
        self._asked = read(reranker, query, "query")
        self._encoded = reranker.encode_query(query)
        self._declares = self._model.exact and self._model.name not in EXPLAINERS
        # A stored batch of a small model is over before a second thread has woken up.
        encodes = stage.store is None or stage.lacks > 0
        with nullcontext() if encodes or self._model.large else one_thread():
            self._means = self._mean()

    def told(self, explanation: Explanation) -> Explanation:
        """The explanation of one document, with what puts it above these or below."""
        if self._means is None:
            return explanation
        words = [word.text for word in explanation.query.words]
        found = against(
            self._own(explanation),
            self._means.values,
            words,
            docs=self._means.docs,
            of=len(self._candidates.numbers),
            exact=self._model.exact,
        )
        return replace(explanation, against=found)

    def _own(self, explanation: Explanation) -> Values:
        """Its leaves; of a model without exact parts, what is lost without each query word."""
        if self._model.exact:
            return values_of(explanation.parts)
        number = self._stage.snapshot.find(explanation.doc_id)
        (lost,) = self._each(np.array([number]), self._left_out)
        terms = self._by_words({key: value for key, value in lost.items() if key.term is not None})
        first = {
            Key(None, "", None, FIRST_STAGE): part.value
            for part in explanation.parts.children
            if part.kind == "first stage"
        }
        rest = explanation.parts.value - math.fsum([*terms.values(), *first.values()])
        return {**terms, **first, Key(None, "", None, "together"): rest}

    def _mean(self) -> Means | None:
        """As many as there is time for, the first stage's best first."""
        if self._model.exact and not self._declares:
            docs, sums = self._explained()
        else:
            docs, sums = self._batches()
        if docs < _FEWEST:
            return None
        means = {key: math.fsum(values) / docs for key, values in sums.items()}
        return Means(self._by_words(means), docs)

    def _batches(self) -> tuple[int, dict[Key, list[float]]]:
        way = self._declared if self._declares else self._left_out
        most = _MOST["declared" if self._declares else "left out"]
        weight = self._model.first_stage_weight
        sums: dict[Key, list[float]] = {}
        docs = 0
        for some in _in_steps(self._stage, self._candidates.numbers[:most]):
            try:
                with ending(self._deadline):
                    found = list(self._each(some, way))
            except LateError:
                break
            for parts in found:
                for key, value in parts.items():
                    sums.setdefault(key, []).append(value)
            docs += len(some)
            if docs >= _FEWEST and self._deadline.passed():
                break
        if weight is not None:
            first = self._candidates.first_scores[:docs].astype(np.float64)
            sums[Key(None, "", None, FIRST_STAGE)] = (weight.item() * first).tolist()
        return docs, sums

    def _each(
        self, numbers: NDArray[np.int64], way: Callable[[Words], dict[Key, float]]
    ) -> Iterator[dict[Key, float]]:
        for docs in _words(self._stage, self._encoded, numbers):
            with no_gradients(self._model):
                parts = way(docs)
            yield parts

    def _declared(self, docs: Words) -> dict[Key, float]:
        """The model's own parts of each query word, path and kernel, summed over documents."""
        count = len(docs.mask)
        model = self._model
        parts = model.interact(model.for_many(self._encoded, count), docs).parts
        padded = self._encoded.mask.shape[1]
        words = min(len(self._asked.words), int(self._encoded.mask.sum()))
        found: dict[Key, float] = {}
        for name in model.summands:
            part = as_array(parts[name])
            if part.ndim == 1 or part.shape[1] != padded:
                found[Key(None, name, None, name)] = float(part.sum(dtype=np.float64))
                continue
            total = part.sum(0, dtype=np.float64)  # (Q, ...)
            for q in range(words):
                found.update(self._leaves(name, q, total[q]))
        return found

    def _leaves(self, name: str, q: int, part: NDArray[np.float64]) -> Iterator[tuple[Key, float]]:
        """Of one query word: (K,) or (matrices, K) by kernel, else in one."""
        if not has_kernels(self._model):
            yield Key(q, name, None, ""), float(part.sum())
            return
        kernels = kernel_names(self._model.config.kernels)
        matrices = part.reshape(-1, len(kernels)).tolist()
        for path, values in zip(path_names(self._model, name), matrices, strict=True):
            for k, value in enumerate(values):
                yield Key(q, path, k, kernels[k]), value

    def _left_out(self, docs: Words) -> dict[Key, float]:
        """What scores lose without each query word, and what is left, summed over documents."""
        model, count = self._model, len(docs.mask)

        def scores(query: Words) -> float:
            found = model.interact(model.for_many(query, count), docs).score
            return float(as_array(found).sum(dtype=np.float64))

        whole = scores(self._encoded)
        units = query_units(self._asked.text)
        rows = (
            model.encode_query(type(batch)(batch.ids[row : row + 1], batch.mask[row : row + 1]))
            for batch in each_left_out(self._asked.batch, units, docs.mask.shape[1])
            for row in range(len(batch.ids))
        )
        lost = {
            Key(unit[0], "", None, ""): whole - scores(query)
            for unit, query in zip(units, rows, strict=True)
        }
        rest = whole - math.fsum(lost.values())
        return {**lost, Key(None, "", None, "together"): rest}

    def _explained(self) -> tuple[int, dict[Key, list[float]]]:
        sums: dict[Key, list[float]] = {}
        docs = 0
        stage, most = self._stage, _MOST["explained"]
        pairs = zip(self._candidates.numbers, self._candidates.first_scores, strict=True)
        for number, first_score in list(pairs)[:most]:
            if docs >= _FEWEST and self._deadline.passed():
                break
            doc = stage.snapshot.doc(int(number))
            try:
                passage = ranked_passage(
                    stage, self._query, doc.doc_id, float(first_score), self._deadline
                )
            except LateError:
                break
            explanation = explain_text(
                stage.reranker,
                self._query,
                doc,
                first_stage=float(first_score),
                words=stage.words(doc.doc_id, passage.number if passage else 0),
                passage=passage,
                left_out=stage.left_out,
                pieces=True,
            )
            for key, value in values_of(explanation.parts).items():
                sums.setdefault(key, []).append(value)
            docs += 1
        return docs, sums

    def _by_words(self, values: Values) -> Values:
        """Those of pieces of one query word together."""
        number = word_numbers(self._asked.text)
        found: dict[Key, list[float]] = {}
        for key, value in values.items():
            word = None if key.term is None else number.get(key.term, key.term)
            found.setdefault(key._replace(term=word), []).append(value)
        return {key: math.fsum(own) for key, own in found.items()}


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
    placed = stage.read_all(encoded, number, first, due)
    if not len(placed.which):
        raise late("this explanation")
    return ranked_by(placed)


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


def _words(stage: IndexStage, query: Words, numbers: NDArray[np.int64]) -> Iterator[Words]:
    """Documents as they are ranked: of long ones the best passage."""
    reranker = stage.reranker
    if stage.store is not None:
        lacking = np.ones(len(numbers), bool)
        for located in stage.store.locate(stage.snapshot, numbers, partial=True):
            lacking[located.which] = False
            best = np.zeros(len(located.which), np.int64)
            if (located.counts > 1).any():
                own = numbers[located.which]
                best = stage.read_all(query, own, np.zeros(len(own), np.float32)).numbers
            starts, lengths = located.part.passage_rows(located.first + best)
            for some in like_length(lengths, _PLACES_AT_ONCE):
                yield stage.store.words(located.part, starts[some], lengths[some])
        numbers = numbers[lacking]  # they are encoded live, as in a search
    if not len(numbers):
        return
    read = reranker.read([stage.snapshot.doc(number) for number in numbers.tolist()])
    found = [doc.passages[reranker.best_passage(query, doc, stage.left_out)].ids for doc in read]
    for some in like_length(np.array([len(ids) for ids in found]), _PLACES_AT_ONCE):
        batch = batch_of([found[place] for place in some], reranker.device)
        words = reranker.encode_doc(batch)
        out = stage.left_out
        yield words if out is None else out.without(words, as_array(batch.ids))
