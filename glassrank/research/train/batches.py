"""Samples training batches, one positive and n negatives for each query, and keeps their texts on
the training device. A batch depends only on the seed and the step, so a resumed run sees the same.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.backends.gpu import get_device
from glassrank.errors import InputError
from glassrank.models import TokenBatch
from glassrank.research.train.config import SamplerConfig
from glassrank.research.train.prepared import Split
from glassrank.storage.mapped_arrays import Ragged


@dataclass(frozen=True)
class BatchRows:
    """Rows of the split; column 0 of `candidates` is the positive."""

    queries: NDArray[np.int64]  # (B,)
    candidates: NDArray[np.int64]  # (B, 1 + n) positions in split.docs.values
    passages: NDArray[np.int64] | None = None  # (B, 1 + n) which of their texts, where divided


class Sampler:
    """Samples batches by step number."""

    def __init__(self, split: Split, config: SamplerConfig, seed: int) -> None:
        kind = _TripleSampler if config.kind == "triples" else _CandidateSampler
        self._source: _TripleSampler | _CandidateSampler = kind(split, config, seed)
        self._split, self._seed = split, seed

    def batch(self, step: int) -> BatchRows:
        """The batch of a step, the same in every call."""
        rows, passages = self._source.batch(step), self._split.passages
        if passages is None:
            return rows
        rng = np.random.default_rng([self._seed, step, 1])  # another stream than the candidates'
        docs = self._split.docs.values[rows.candidates]
        return replace(rows, passages=passages.sample(docs, rng))


class _TripleSampler:
    """Triples in the order of their file, repeated; `shuffle` reorders them in each epoch."""

    def __init__(self, split: Split, config: SamplerConfig, seed: int) -> None:
        if split.triples is None:
            raise InputError(
                "the prepared arrays have no triples; prepare them again with sampler.triples"
            )
        self._triples, self._config, self._seed = split.triples, config, seed
        # Only the last one is kept: steps come in order.
        self._shuffle = lru_cache(maxsize=1)(self._permute)

    def _permute(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self._seed, epoch]).permutation(len(self._triples))

    def batch(self, step: int) -> BatchRows:
        """The triples of this step."""
        size, total = self._config.batch, len(self._triples)
        epochs, rows = np.divmod(np.arange(step * size, (step + 1) * size), total)  # (B,)
        if self._config.shuffle:
            for epoch in np.unique(epochs).tolist():
                here = epochs == epoch
                rows[here] = self._shuffle(epoch)[rows[here]]
        chosen = self._triples[rows].astype(np.int64)  # (B, 3)
        return BatchRows(chosen[:, 0], chosen[:, 1:])


class _CandidateSampler:
    """Samples positives and negatives from a query's candidates, by grade."""

    def __init__(self, split: Split, config: SamplerConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        positives: list[NDArray[np.int64]] = []  # of each query that can be learnt from
        groups: list[NDArray[np.int64]] = []  # beside them: which negatives go with each
        negatives: list[NDArray[np.int64]] = []  # of each group
        usable = []
        for query in range(len(split.queries)):
            pairs = self._find_pairs(split, query)
            if pairs:
                usable.append(query)
                positives.append(np.concatenate([mine for mine, _ in pairs]))
                sizes = [len(mine) for mine, _ in pairs]
                groups.append(np.repeat(np.arange(len(pairs)) + len(negatives), sizes))
                negatives.extend(theirs for _, theirs in pairs)
        if not usable:
            raise InputError(
                "no query has both a positive and a negative document; check the qrels"
            )
        self._queries = np.array(usable, np.int64)
        self._positives = Ragged.from_rows(positives, np.int64)
        self._groups = np.concatenate(groups)
        self._negatives = Ragged.from_rows(negatives, np.int64)
        collection = split.collection[self._queries]
        share = np.bincount(collection)[collection].astype(float)  # queries of the same collection
        each = share**config.collection_power / share
        if config.kind == "grade_groups":  # a query as often as it has positives
            each = each * np.diff(self._positives.offsets)
        chances = np.cumsum(each)
        self._chances = chances / chances[-1]  # (queries,) running sum, up to 1

    def batch(self, step: int) -> BatchRows:
        """Queries by their collection's share, one positive of each, and its negatives."""
        rng = np.random.default_rng([self._seed, step])
        rows = self._chances.searchsorted(rng.random(self._config.batch), side="right")  # (B,)
        first = self._positives.offsets[rows]
        sizes = self._positives.offsets[rows + 1] - first
        chosen = first + (rng.random(len(rows)) * sizes).astype(np.int64)  # (B,)
        group = self._groups[chosen]
        begin = self._negatives.offsets[group]
        count = self._negatives.offsets[group + 1] - begin
        # Distinct negatives: the smallest of random keys; repeated if there are too few.
        wanted = self._config.negatives
        keys = rng.random((len(rows), max(wanted, int(count.max()))))
        keys[np.arange(keys.shape[1]) >= count[:, None]] = 2.0
        order = np.argsort(keys, axis=1)[:, :wanted] % count[:, None]  # (B, n)
        drawn = self._negatives.values[begin[:, None] + order]
        candidates = np.column_stack([self._positives.values[chosen], drawn])
        return BatchRows(self._queries[rows], candidates)

    def _find_pairs(
        self, split: Split, query: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """(positives, negatives) for each grade that has both."""
        first, last = split.docs.offsets[query : query + 2]
        grades = split.grades[first:last]
        places = np.arange(first, last)
        if self._config.positives == "found":
            kept = (split.ranks[first:last] > 0) | (grades <= 0)
            grades, places = grades[kept], places[kept]
        if self._config.kind == "first_stage":
            # Negatives are all retrieved documents that are not judged relevant.
            pairs = [(places[grades > 0], places[grades <= 0])]
        else:
            if self._config.unjudged == "irrelevant":
                grades = np.maximum(grades, 0)
            known = np.unique(grades[grades >= 0])[::-1].tolist()
            pairs = []
            for grade, nearest in pairwise(known):
                lower = {
                    "nearest_grade": grades == nearest,
                    "grade_groups": grades == grade - 1,
                    "lower_grades": (grades >= 0) & (grades < grade),
                }[self._config.kind]
                pairs.append((places[grades == grade], places[lower]))
        return [pair for pair in pairs if len(pair[0]) and len(pair[1])]


def copy_to_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    """Copy without synchronization, which needs pinned memory."""
    here = torch.from_numpy(array)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here


@dataclass(frozen=True)
class Tokens:
    """All queries or documents, padded to the model's longest."""

    ids: Tensor  # (n, L) on the device
    lengths: NDArray[np.int64]  # (n,) on the CPU: no synchronization for a batch

    @classmethod
    def of(cls, rows: Ragged, longest: int, device: torch.device) -> "Tokens":
        """Cut and pad rows to `longest`."""
        lengths = np.minimum(np.diff(rows.offsets), longest)
        return cls(torch.from_numpy(rows.pad(longest)).to(device), lengths)

    def batch(self, numbers: NDArray[np.int64], *, pad_to_max: bool = False) -> TokenBatch:
        """(B, L) with the longest of these texts, or of all with `pad_to_max`."""
        counted = self.lengths if pad_to_max else self.lengths[numbers]
        longest = max(1, int(counted.max(initial=1)))
        ids = self.ids[copy_to_device(numbers, self.ids.device), :longest]
        return TokenBatch(ids, (ids > 0).float())


@dataclass(frozen=True)
class SplitTensors:
    """A split on the training device."""

    queries: Tokens
    docs: Tokens
    split: Split
    grades: Tensor  # beside split.docs.values
    first_stage: Tensor
    teacher: Tensor | None

    @classmethod
    def of(
        cls, split: Split, docs: Tokens, query_length: int, device: torch.device
    ) -> "SplitTensors":
        """Copy a split to a device."""
        queries = Tokens.of(split.queries, query_length, device)
        grades = torch.from_numpy(split.grades).to(device)
        first_stage = torch.from_numpy(split.first_stage).to(device)
        teacher = None if split.teacher is None else torch.from_numpy(split.teacher).to(device)
        return cls(queries, docs, split, grades, first_stage, teacher)

    @classmethod
    def read(
        cls, split: Split, docs: Ragged, lengths: tuple[int, int], device: str
    ) -> "SplitTensors":
        """Cut queries and documents to these lengths, and copy both to a device."""
        target = get_device(device)
        query_length, doc_length = lengths
        return cls.of(split, Tokens.of(docs, doc_length, target), query_length, target)

    def examples(self, batch: BatchRows, *, pad_to_max: bool = False) -> "Examples":
        """The texts of a batch; with `pad_to_max`, all batches have one shape."""
        places = copy_to_device(batch.candidates, self.grades.device)
        docs = self.split.docs.values[batch.candidates]
        texts = docs if batch.passages is None else batch.passages
        query = self.queries.batch(batch.queries, pad_to_max=pad_to_max)
        doc = self.docs.batch(texts.ravel(), pad_to_max=pad_to_max)
        grades, first_stage = self.grades[places].clamp(min=0), self.first_stage[places]
        teacher = None if self.teacher is None else self.teacher[places]
        return Examples(query, doc, grades, first_stage, teacher)


@dataclass(frozen=True)
class Examples:
    """A training batch: B queries with N documents each, the positive first."""

    query: TokenBatch  # (B, Q)
    doc: TokenBatch  # (B * N, D), query by query
    grades: Tensor  # (B, N)
    first_stage: Tensor  # (B, N)
    teacher: Tensor | None  # (B, N)
