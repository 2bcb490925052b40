"""Candidates of one query as words that were encoded beforehand, ready to be scored in pieces: in
one pass of compiled code, as a model's readouts say, where there is one for it.

`interact` is the plain form; both give the same scores.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.quantization import GROUP
from glassrank.embeddings import Part, Store
from glassrank.index.snapshot import Snapshot
from glassrank.models.model import Model, TokenEmbeddings, to_array
from glassrank.models.text_batches import batch_by_length, map_batches
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.text_candidates import TextCandidates

_ON_CPU = ("bf16", "int8", "float32", "int3")


class Fused(Protocol):
    """Scores stored words without making floats of them first."""

    def scores(
        self,
        query: TokenEmbeddings,
        part: Part,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Of documents that are runs of a part's rows."""


def fused_pooling(model: Model, store: Store) -> Fused | None:
    """None where the plain form has to serve: another kind of model, ids are stored, or a GPU's
    memory does not hold the store."""
    if is_on_gpu(model):
        from glassrank.rerank.torch_backend import fused_on_gpu

        return fused_on_gpu(model, store)
    scoring_heads = model.scoring_heads() if store.dtype in _ON_CPU else []
    if store.dtype == "int3" and any((r.doc_columns.start or 0) % GROUP for r in scoring_heads):
        return None  # their values begin within a group
    return FusedPooling(model) if scoring_heads else None


def is_on_gpu(model: Model) -> bool:
    """Whether PyTorch computes it there."""
    return model.device is not None and model.device.type == "cuda"


class FusedPooling:
    """A model's kernels and weights as plain arrays."""

    def __init__(self, model: Model) -> None:
        self._weighs_terms = model.info.has_term_weights
        self._kernels = model.config.kernels
        self._readouts = [
            (to_array(r.log), to_array(r.length), r.query_columns, r.doc_columns)
            for r in model.scoring_heads()
        ]
        weight = model.first_stage_weight
        self._first_stage_weight = 0.0 if weight is None else weight.item()

    def scores(
        self,
        query: TokenEmbeddings,
        part: Part,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Of documents that are runs of a part's rows."""
        from glassrank.backends.cpu.kernels import (  # numba: only where it is used
            StoredRows,
            pool_cpu,
        )

        vectors = to_array(query.vectors[0]).reshape(query.mask.shape[1], -1)  # (Q, E)
        weights = to_array((query.idf if self._weighs_terms else query.mask)[0])  # (Q,)
        rows = StoredRows(part.vectors, part.scales)
        total = self._first_stage_weight * first_stage
        for log, length, query_columns, doc_columns in self._readouts:
            own = np.ascontiguousarray(vectors[:, query_columns])
            found: Any = pool_cpu(
                own, weights, rows, starts, lengths, self._kernels, log, length,
                first_column=doc_columns.start or 0,
            )  # fmt: skip
            total = total + found
        return total.astype(np.float32)


_PADDED_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""Where nothing is fused, stored documents of like length are scored together, up to this many
words with padding: they are made floats first, which take room."""


class StoredCandidates:
    """Words that were encoded beforehand: scored by the fused path where the model has one."""

    def __init__(
        self,
        reranker: Reranker,
        fused: Fused | None,
        store: Store,
        query: TokenEmbeddings,
        snapshot: Snapshot,
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> None:
        """The store has all of these documents."""
        self.shares = reranker.first_stage_shares(len(numbers), first_stage)
        self._scorer = _StoredScorer(reranker, fused, store, query)
        self._first_stage = first_stage
        self._located = store.locate(snapshot, numbers)
        zeros = np.zeros(len(numbers), np.int64)
        groups = [_Group(one.which, one.part, one.first) for one in self._located]
        self.first = _StoredPassages(
            self._scorer, groups, np.arange(len(numbers)), zeros, first_stage
        )
        self._further_given = False

    def further(self, docs: int) -> "_StoredPassages | None":
        """All of them: second passages, then third ones, and so on."""
        if self._further_given:
            return None
        self._further_given = True
        columns = []
        for group, one in enumerate(self._located):
            counts = np.where(one.which < docs, one.counts - 1, 0)
            if not counts.any():
                continue
            which = np.repeat(one.which, counts)
            ends = np.cumsum(counts)
            number = 1 + np.arange(len(which)) - np.repeat(ends - counts, counts)
            passages = np.repeat(one.first, counts) + number
            columns.append((which, number, np.full(len(which), group), passages))
        if not columns:
            return None
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        order = np.lexsort(joined[:2])
        owners, number, groups_of, passages = (column[order] for column in joined)
        groups = []
        for number_of, located in enumerate(self._located):
            places = np.flatnonzero(groups_of == number_of)
            groups.append(_Group(places, located.part, passages[places]))
        first = self._first_stage[owners]
        return _StoredPassages(self._scorer, groups, owners, number, first)

    def spans(self, docs: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Characters of passages, by document and number; -1 where that is the whole text."""
        spans = np.full((len(docs), 2), -1)
        for one in self._located:
            several = np.flatnonzero(one.counts > 1)
            rows = np.searchsorted(docs, one.which[several])
            there = rows < len(docs)
            rows, several = rows[there], several[there]
            spans[rows] = one.part.spans[one.first[several] + numbers[rows]]
        return spans

    def cut(self, docs: int) -> NDArray[np.bool_]:
        """Whose text goes on behind the passages that are stored."""
        cut = np.zeros(len(self.shares), np.bool_)
        for one in self._located:
            cut[one.which] = one.cut
        return cut[:docs]


class _Group(NamedTuple):
    """Passages of one part."""

    places: NDArray[np.int64]  # (n,) among the candidates, ascending
    part: Part
    passages: NDArray[np.int64]  # (n,) their numbers in the part


class _StoredPassages:
    """Some stored passages, in the order in which they are scored."""

    stops = False

    def __init__(
        self,
        scorer: "_StoredScorer",
        groups: Sequence[_Group],
        docs: NDArray[np.int64],
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> None:
        self.docs, self.numbers = docs, numbers
        self._scorer = scorer
        self._first_stage = first_stage
        self._rows = []
        self.sizes: NDArray[np.floating] = np.ones(len(docs))
        for places, part, passages in groups:
            starts, lengths = part.passage_rows(passages)
            self.sizes[places] += lengths
            self._rows.append(_Rows(places, part, starts, lengths))

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        """Of those from `start` on, up to `stop`."""
        values = np.zeros(stop - start, np.float32)
        first = self._first_stage[start:stop]
        for places, part, starts, lengths in self._rows:
            # Places come in order, so those of this piece lie side by side.
            own = slice(*np.searchsorted(places, (start, stop)).tolist())
            rows = _Rows(places[own] - start, part, starts[own], lengths[own])
            if len(rows.places):
                values[rows.places] = self._scorer.scores(rows, first[rows.places])
        return values


class _Rows(NamedTuple):
    """Passages as runs of a part's rows."""

    places: NDArray[np.int64]
    part: Part
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


class _StoredScorer:
    """One query on stored passages."""

    def __init__(
        self, reranker: Reranker, fused: Fused | None, store: Store, query: TokenEmbeddings
    ) -> None:
        self._reranker = reranker
        self._fused = fused
        self._store = store
        self._query = query

    def scores(self, rows: _Rows, first: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of passages of one part."""
        if self._fused is not None:
            return self._fused.scores(self._query, rows.part, rows.starts, rows.lengths, first)
        values = np.zeros(len(rows.starts), np.float32)
        reranker = self._reranker

        def score(batch: NDArray[np.int64]) -> None:
            words = self._store.words(
                rows.part, rows.starts[batch], rows.lengths[batch], reranker.dtype
            )
            values[batch] = reranker.score_embeddings(self._query, words, first[batch])

        if reranker.alone:
            for _ in map_batches(score, rows.lengths, 1, reranker.fast_model, alone=True):
                pass
            return values
        for batch in batch_by_length(rows.lengths, self._at_once):
            score(batch)
        return values

    @property
    def _at_once(self) -> int:
        return _PADDED_AT_ONCE["cuda" if is_on_gpu(self._reranker.model) else "cpu"]


class PartlyStored:
    """Words that were encoded beforehand, and texts of documents that the store lacks."""

    def __init__(
        self, stored: StoredCandidates, live: TextCandidates, is_stored: NDArray[np.bool_]
    ) -> None:
        self.stored, self.which_stored = stored, np.flatnonzero(is_stored)
        self.live, self.which_live = live, np.flatnonzero(~is_stored)
