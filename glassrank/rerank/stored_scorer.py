"""Scores candidates from a store: in one pass of compiled code over stored rows, where the model
has scoring heads for it, else by the model's own `interact`. Both give the same scores."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.quantization import GROUP
from glassrank.deadline import Deadline
from glassrank.embeddings import Part, Store
from glassrank.embeddings.part import PartRows
from glassrank.index.snapshot import Snapshot
from glassrank.models.model import Floats, Ints, Model, TokenEmbeddings, to_array
from glassrank.models.text_batches import batch_by_length, map_batches
from glassrank.rerank.candidates import PassageList
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.scheduler import CostModel

MAX_CHUNK = 1_048_576.0
"""Stored tokens that are scored as one chunk without a budget."""
_BATCH_TOKENS = {"cpu": 4_096, "cuda": 131_072}
"""Tokens of a padded batch that `interact` scores at once: they are floats, which take room."""
_FUSED_DTYPES = ("bf16", "int8", "float32", "int3")


FusedScorer: TypeAlias = Callable[[TokenEmbeddings, PartRows, Floats], Floats]
"""Scores passages, by their stored rows, without making floats of these first. The last argument
is what the first stage gave them."""


def choose_fused_scorer(model: Model, store: Store) -> FusedScorer | None:
    """None where `interact` must score: no scoring head, ids, or no GPU memory."""
    if _is_on_gpu(model):
        from glassrank.rerank.gpu_scoring import choose_gpu_scorer

        return choose_gpu_scorer(model, store)
    heads = model.scoring_heads() if store.dtype in _FUSED_DTYPES else []
    if store.dtype == "int3" and any((head.doc_columns.start or 0) % GROUP for head in heads):
        return None  # a head's columns begin within a quantization group
    return FusedPooling(model) if heads else None


def _is_on_gpu(model: Model) -> bool:
    return model.device is not None and model.device.type == "cuda"


class FusedPooling:
    """Kernel pooling on a CPU, with a model's kernels and weights as plain arrays."""

    def __init__(self, model: Model) -> None:
        self._weighs_terms = model.info.has_term_weights
        self._kernels = model.config.kernels
        self._heads = [
            (to_array(head.log), to_array(head.length), head.query_columns, head.doc_columns)
            for head in model.scoring_heads()
        ]
        weight = model.first_stage_weight
        self._first_stage_weight = 0.0 if weight is None else weight.item()

    def __call__(self, query: TokenEmbeddings, rows: PartRows, first_stage: Floats) -> Floats:
        """As a `FusedScorer`."""
        from glassrank.backends.cpu.kernels import (  # numba: only where it is used
            StoredRows,
            pool_cpu,
        )

        vectors = to_array(query.vectors[0]).reshape(query.mask.shape[1], -1)  # (Q, E)
        weights = to_array((query.idf if self._weighs_terms else query.mask)[0])  # (Q,)
        stored = StoredRows(rows.part.vectors, rows.part.scales)
        total = self._first_stage_weight * first_stage
        for log, length, query_columns, doc_columns in self._heads:
            pooled: Any = pool_cpu(
                np.ascontiguousarray(vectors[:, query_columns]), weights, stored, rows.starts,
                rows.lengths, self._kernels, log, length, first_column=doc_columns.start or 0,
            )  # fmt: skip
            total = total + pooled
        return total.astype(np.float32)


class StoredScorer:
    """One query on documents of a store."""

    is_interruptible = False
    encodes = False
    max_chunk = MAX_CHUNK

    def __init__(
        self,
        reranker: Reranker,
        fused: FusedScorer | None,
        store: Store,
        cost: CostModel,
        query: TokenEmbeddings,
        snapshot: Snapshot,
        docs: Ints,
        first_stage: Floats,
    ) -> None:
        """The store has all of these documents."""
        self.cost = cost
        self.first_stage = reranker.weigh_first_stage(len(docs), first_stage)
        self._first_stage_scores = first_stage
        self._reranker, self._fused, self._store, self._query = reranker, fused, store, query
        self._parts: list[Part] = []
        # Of each document: its part, its first passage there, how many it has, whether it is cut.
        self._part, self._first, self._counts = np.zeros((3, len(docs)), np.int64)
        self._cut = np.zeros(len(docs), np.bool_)
        for located in store.locate(snapshot, docs):
            places = located.which
            self._part[places] = len(self._parts)
            self._first[places], self._counts[places] = located.first, located.counts
            self._cut[places] = located.cut
            self._parts.append(located.part)
        self._has_further = bool((self._counts > 1).any())

    def first_passages(self) -> PassageList:
        """The first passages of all documents."""
        docs = np.arange(len(self._first))
        return self._passages(docs, np.zeros_like(docs))

    def further_passages(self, docs: int) -> PassageList | None:
        """All of them at once: second passages, then third ones, and so on."""
        if not self._has_further:
            return None
        self._has_further = False
        counts = self._counts[:docs] - 1
        owners = np.repeat(np.arange(docs), counts)
        numbers = 1 + np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        order = np.lexsort((owners, numbers))
        return self._passages(owners[order], numbers[order]) if len(order) else None

    def _passages(self, docs: Ints, numbers: Ints) -> PassageList:
        sizes = np.ones(len(docs))
        for places, rows in self._rows(docs, numbers):
            sizes[places] += rows.lengths
        return PassageList(docs, numbers, sizes)

    def _rows(self, docs: Ints, numbers: Ints) -> Iterator[tuple[Ints, PartRows]]:
        """For each part: the places of its passages among these, and their rows."""
        part_of, passages = self._part[docs], self._first[docs] + numbers
        for number, part in enumerate(self._parts):
            places = np.flatnonzero(part_of == number)
            if len(places):
                yield places, PartRows(part, *part.passage_rows(passages[places]))

    def score(self, passages: PassageList, deadline: Deadline) -> Floats:
        """A score for each passage."""
        scores = np.zeros(len(passages.docs), np.float32)
        first_stage = self._first_stage_scores[passages.docs]
        score = self._fused or self._interact
        for places, rows in self._rows(passages.docs, passages.numbers):
            scores[places] = score(self._query, rows, first_stage[places])
        return scores

    def _interact(self, query: TokenEmbeddings, rows: PartRows, first_stage: Floats) -> Floats:
        """As a `FusedScorer`, by the model's own `interact`, in batches of like length."""
        part, starts, lengths = rows
        scores = np.zeros(len(starts), np.float32)
        reranker = self._reranker

        def score(batch: Ints) -> None:
            docs = self._store.read_embeddings(part, starts[batch], lengths[batch], reranker.dtype)
            scores[batch] = reranker.score_embeddings(query, docs, first_stage[batch])

        if reranker.is_deterministic:
            for _ in map_batches(score, lengths, 1, reranker.fast_model, alone=True):
                pass
            return scores
        for batch in batch_by_length(
            lengths, _BATCH_TOKENS["cuda" if _is_on_gpu(reranker.model) else "cpu"]
        ):
            score(batch)
        return scores

    def spans(self, docs: Ints, numbers: Ints) -> Ints:
        """(n, 2) characters of one passage of each document; -1 where it is the whole text."""
        spans = np.full((len(docs), 2), -1)
        several = self._counts[docs] > 1
        for number, part in enumerate(self._parts):
            rows = np.flatnonzero(several & (self._part[docs] == number))
            spans[rows] = part.spans[self._first[docs[rows]] + numbers[rows]]
        return spans

    def is_cut(self, docs: int) -> NDArray[np.bool_]:
        """(docs,) whose text goes on after the stored passages."""
        return self._cut[:docs].copy()
