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
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.deadline import Deadline
from glassrank.explaining.against import FIRST_STAGE, Key, Values, against, values_of
from glassrank.explaining.explainers import EXPLAINERS, explain_text
from glassrank.explaining.explanation import Explanation
from glassrank.explaining.kernels import has_kernels, kernel_names, path_names
from glassrank.explaining.leave_one_out import each_left_out
from glassrank.explaining.reading import read
from glassrank.explaining.whole_words import query_units, word_numbers
from glassrank.models import Words
from glassrank.models.text_batches import batch_of, like_length
from glassrank.nn.threads import one_thread
from glassrank.ranking.candidates import characters_read
from glassrank.ranking.stages import IndexStage
from glassrank.store import text_of

_MOST = {"stored": 1000, "live": 64, "explained": 16, "left out": 16}
"""Documents that means are over: the more, the cheaper each is. Always the same, so that an
explanation is the same tomorrow, unless a deadline cuts it short."""
_AT_ONCE = 256
"""Between two looks at the clock."""
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
        # A batch of a small model is over before a second thread has woken up.
        with nullcontext() if self._model.large else one_thread():
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
        stored = "live" if self._stage.store is None else "stored"
        most = _MOST[stored if self._declares else "left out"]
        weight = self._model.first_stage_weight
        sums: dict[Key, list[float]] = {}
        docs = 0
        numbers = self._candidates.numbers[:most]
        for start in range(0, len(numbers), _AT_ONCE):
            if docs >= _FEWEST and self._deadline.passed():
                break
            some = numbers[start : start + _AT_ONCE]
            for parts in self._each(some, way):
                for key, value in parts.items():
                    sums.setdefault(key, []).append(value)
            docs += len(some)
        if weight is not None:
            first = self._candidates.first_scores[:docs].astype(np.float64)
            sums[Key(None, "", None, FIRST_STAGE)] = (weight.item() * first).tolist()
        return docs, sums

    def _each(
        self, numbers: NDArray[np.int64], way: Callable[[Words], dict[Key, float]]
    ) -> Iterator[dict[Key, float]]:
        for docs in _words(self._stage, numbers):
            with torch.no_grad():
                yield way(docs)

    def _declared(self, docs: Words) -> dict[Key, float]:
        """The model's own parts of each query word, path and kernel, summed over documents."""
        count = len(docs.mask)
        model = self._model
        parts = model.interact(model.for_many(self._encoded, count), docs).parts
        padded = self._encoded.mask.shape[1]
        words = min(len(self._asked.words), int(self._encoded.mask.sum()))
        found: dict[Key, float] = {}
        for name in model.summands:
            part = parts[name].detach().cpu()
            if part.dim() == 1 or part.shape[1] != padded:
                found[Key(None, name, None, name)] = float(part.double().sum())
                continue
            total = part.sum(0, dtype=torch.double)  # (Q, ...)
            for q in range(words):
                found.update(self._leaves(name, q, total[q]))
        return found

    def _leaves(self, name: str, q: int, part: Tensor) -> Iterator[tuple[Key, float]]:
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
            return float(found.cpu().double().sum())

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
            doc_id = stage.snapshot.doc_id(int(number))
            text = text_of(stage.snapshot.doc(int(number), characters_read(stage.reranker)))
            explanation = explain_text(
                stage.reranker,
                self._query,
                text,
                first_stage=float(first_score),
                words=stage.words(doc_id),
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


def _words(stage: IndexStage, numbers: NDArray[np.int64]) -> Iterator[Words]:
    """Documents as they are ranked."""
    reranker = stage.reranker
    if stage.store is not None:
        lacking = np.ones(len(numbers), bool)
        for located in stage.store.locate(stage.snapshot, numbers, partial=True):
            lacking[located.which] = False
            for some in like_length(located.lengths, _PLACES_AT_ONCE):
                yield stage.store.words(located.part, located.starts[some], located.lengths[some])
        numbers = numbers[lacking]  # they are encoded live, as in a search
    if not len(numbers):
        return
    most = characters_read(reranker)
    texts = [text_of(stage.snapshot.doc(number, most)) for number in numbers.tolist()]
    pieces = reranker.model.piece_text
    words = None if pieces is None else pieces.doc_words
    found = reranker.encoder.encode(texts, reranker.usage.doc_length, words)
    device = next(reranker.model.parameters()).device
    for some in like_length(np.array([len(text.ids) for text in found]), _PLACES_AT_ONCE):
        yield reranker.encode_doc(batch_of([found[place].ids for place in some], device))
