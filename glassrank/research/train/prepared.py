"""Arrays for training: vocabulary and vectors, documents or passages, and splits of queries with
their candidates. Training samples one passage of a document, with the document's grade; else the
best passage counts: Z. Dai, J. Callan, "Deeper Text Understanding for IR", SIGIR 2019, BERT-MaxP.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.errors import InputError
from glassrank.models.io.model_folder import check_vocabulary
from glassrank.storage.mapped_arrays import (
    Ragged,
    Strings,
    concat_ranges,
    is_partition,
    pack_strings,
)
from glassrank.types import Run


@dataclass(frozen=True)
class RunIds:
    """Ids of training queries, which folds test, and of all documents, by number.

    >>> ids = RunIds.of(["q7"], ["a", "b"])
    >>> list(ids.add_to(Run.from_rows([("0", ["1", "0"], [2.0, 1.0])])).items())[0][:2]
    ('q7', ['b', 'a'])
    """

    queries: Ragged  # UTF-8
    docs: Ragged  # UTF-8

    @classmethod
    def of(cls, queries: Sequence[str], docs: Sequence[str]) -> "RunIds":
        """Pack ids."""
        return cls(*(pack_strings([name.encode() for name in names]) for names in (queries, docs)))

    def add_to(self, run: Run) -> Run:
        """Replace the numbers in a run of `make_runs` by ids."""
        queries, docs = (Strings(ids.offsets, ids.values) for ids in (self.queries, self.docs))
        return Run.from_rows(
            (queries[int(query)], [docs[int(doc)] for doc in listed], scores)
            for query, listed, scores in run.items()
        )


@dataclass(frozen=True)
class PassageOffsets:
    """The passages of documents: `offsets[doc]` to before `offsets[doc + 1]`.

    >>> passages = PassageOffsets(np.array([0, 2, 3]))
    >>> passages.expand(np.array([1, 0, 1]))
    (array([2, 0, 1, 2]), array([0, 1, 1, 2]))
    """

    offsets: NDArray[np.int64]  # (docs + 1,)
    best: int = 1
    """A document's score is the sum of this many best passages."""
    first: float = 0.0
    """The weight of the first passage."""

    def sample(self, docs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Sample a passage of each document."""
        first = self.offsets[docs]
        count = self.offsets[docs + 1] - first
        return first + (rng.random(docs.shape) * count).astype(np.int64)

    def expand(self, docs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All passages of these documents, and the position in `docs` of each."""
        first = self.offsets[docs]
        count = self.offsets[docs + 1] - first
        return concat_ranges(first, count), np.repeat(np.arange(len(docs)), count)


COLUMN_DTYPES: dict[str, DTypeLike] = {
    "collection": np.int32,
    "grades": np.int32,
    "ranks": np.int32,
    "first_stage": np.float32,
    "teacher": np.float32,
    "triples": np.int32,
    "folds": np.int32,
}
"""Of the columns of a split."""


@dataclass(frozen=True)
class CandidateLists:
    """Candidates of queries: the first stage's documents, then judged ones that it missed."""

    collection: NDArray[np.int32]  # (Q,) which collection a query belongs to
    docs: Ragged  # candidate documents of each query
    grades: NDArray[np.int32]  # beside docs.values; -1 where nobody judged
    ranks: NDArray[np.int32]  # beside docs.values; from 1, 0 where the first stage missed it
    first_stage: NDArray[np.float32]  # beside docs.values
    teacher: NDArray[np.float32] | None = None  # beside docs.values
    triples: NDArray[np.int32] | None = None  # (T, 3) query, places of positive and negative
    folds: NDArray[np.int32] | None = None  # (Q,)


@dataclass(frozen=True, kw_only=True)
class Split(CandidateLists):
    """Queries with their candidates."""

    queries: Ragged  # word ids
    passages: PassageOffsets | None = None  # of all documents, where training divides them

    @property
    def depths(self) -> range:
        """Every depth at which candidates can be re-ranked: 1 to the longest list."""
        return range(1, max(int(self.ranks.max(initial=1)), 1) + 1)

    def check(self, name: str, words: int, docs: int) -> None:
        """Raise an error unless the arrays are consistent."""
        _check_rows(self.queries, f"{name}.queries", words)
        _check_rows(self.docs, f"{name}.docs", docs)
        queries, places = len(self.queries), len(self.docs.values)
        beside = {"collection": queries, "grades": places, "ranks": places, "first_stage": places}
        beside |= {"teacher": places, "folds": queries}
        check_consistent(len(self.docs) == queries, f"{name}.docs")
        for column, length in beside.items():
            values = getattr(self, column)
            if values is None:
                continue
            sound = len(values) == length and np.isfinite(values).all()
            if column in ("collection", "folds"):  # bincount allocates up to the largest
                sound = sound and ((values >= 0) & (values < 10_000)).all()
            check_consistent(bool(sound), f"{name}.{column}")
        if self.triples is not None:
            most = np.array([queries, places, places])
            check_consistent(self.triples.shape[1:] == (3,), f"{name}.triples")
            inside = (self.triples >= 0).all() and (self.triples < most).all()
            check_consistent(bool(inside), f"{name}.triples")

    def select(self, queries: NDArray[np.int64]) -> "Split":
        """These queries with their candidates."""
        first = self.docs.offsets[queries]
        kept = concat_ranges(first, self.docs.offsets[queries + 1] - first)
        return Split(
            queries=Ragged.from_rows([self.queries[q] for q in queries], np.int32),
            collection=self.collection[queries],
            docs=Ragged.from_rows([self.docs[q] for q in queries], np.int32),
            grades=self.grades[kept],
            ranks=self.ranks[kept],
            first_stage=self.first_stage[kept],
            teacher=None if self.teacher is None else self.teacher[kept],
            passages=self.passages,
        )


@dataclass(frozen=True)
class SubwordRows:
    """The rows of a table that make up each word: see `SubwordTable`."""

    rows: Ragged  # of each word
    ngrams: NDArray[np.int64]  # (3,) buckets, letters of the shortest and the longest n-gram


@dataclass(frozen=True)
class Prepared:
    """All arrays of a run."""

    words: list[str]
    vectors: NDArray[np.float32]  # (V, E); with subwords one row for each of those
    idf: NDArray[np.float32]  # (V,)
    docs: Ragged  # word ids; of their passages, where documents are divided
    train: Split
    dev: Split
    description: dict[str, Any]
    test: Split | None = None
    subwords: SubwordRows | None = None
    ids: RunIds | None = None
    fingerprint: str = ""
    """Of the files that it was loaded from."""

    def splits(self) -> dict[str, Split]:
        """Those that there are, by name."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    @property
    def passages(self) -> PassageOffsets | None:
        """The passages of documents, the same in all splits."""
        return self.train.passages

    @property
    def doc_count(self) -> int:
        """The number of documents."""
        return len(self.docs if self.passages is None else self.passages.offsets[1:])

    def check(self) -> None:
        """Raise an error unless all arrays are consistent; training relies on it."""
        rows = len(self.vectors)
        words = len(self.idf) if rows else len(self.words)  # subwords' vectors are the model's
        if rows:
            check_vocabulary(self.words, len(self.words), subwords=False)
        check_consistent(bool(np.isfinite(self.vectors).all()), "vectors")
        check_consistent(bool(np.isfinite(self.idf).all()), "idf")
        if self.subwords is None:
            check_consistent(not rows or len(self.words) <= words == rows, "idf")
        else:
            _check_rows(self.subwords.rows, "subwords", rows)
            check_consistent(len(self.subwords.rows) == words == len(self.words), "subwords")
            buckets, shortest, longest = self.subwords.ngrams.tolist()
            check_consistent(
                0 <= buckets <= rows and 1 <= shortest <= longest <= 100, "subwords.ngrams"
            )
        _check_rows(self.docs, "docs", words)
        if self.passages is not None:
            offsets, best = self.passages.offsets, self.passages.best
            each = is_partition(offsets, len(self.docs)) and bool((np.diff(offsets) >= 1).all())
            check_consistent(each, "passages.offsets")  # at least one of each document
            check_consistent(best >= 1, "passages.best")
            check_consistent(0 <= self.passages.first <= 1, "passages.first")
        if self.ids is not None:
            _check_rows(self.ids.queries, "query_ids", 256)
            _check_rows(self.ids.docs, "doc_ids", 256)
            check_consistent(len(self.ids.queries) == len(self.train.queries), "query_ids")
            check_consistent(len(self.ids.docs) == self.doc_count, "doc_ids")
        for name, split in self.splits().items():
            split.check(name, words, self.doc_count)
        check_consistent(isinstance(self.description, dict), "prepared.json")


def check_consistent(sound: bool, name: str) -> None:
    """Raise an error that names an inconsistent array."""
    if not sound:
        raise InputError(f"{name} does not fit the other arrays; prepare them again")


def _check_rows(rows: Ragged, name: str, below: int) -> None:
    """Check offsets, and that values are between 0 and `below`."""
    values = rows.values
    check_consistent(is_partition(rows.offsets, len(values)), name)
    check_consistent(not len(values) or (values.min() >= 0 and values.max() < below), name)


def queries_by_fold(prepared: Prepared) -> list[NDArray[np.int64]]:
    """The training queries that each fold tests; empty without folds."""
    folds = prepared.train.folds
    if folds is None:
        return []
    return [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]


def make_fold(prepared: Prepared, fold: int) -> Prepared:
    """Test on this fold, validate on the next, train on the others."""
    tested = queries_by_fold(prepared)
    following = (fold + 1) % len(tested)
    others = [queries for n, queries in enumerate(tested) if n not in (fold, following)]
    return replace(
        prepared,
        train=prepared.train.select(np.sort(np.concatenate(others))),
        dev=prepared.train.select(tested[following]),
        test=prepared.train.select(tested[fold]),
    )
