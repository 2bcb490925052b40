"""Read and search collections: split texts, candidates, grades."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import read_docs, read_folds, read_qrels, read_queries
from glassrank.corpus.irds import resolve_source
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.index.snapshot import MANIFEST_FILE
from glassrank.models.doc_reader import join_title
from glassrank.research.train.config import Collection, FoldsConfig, Say, TrainConfig
from glassrank.research.train.precomputed import (
    GroupedTriples,
    group_triples,
    look_up_scores,
    rank_grouped,
    read_runs,
    read_text_triples,
    read_triples,
    scores_by_query,
    select_candidates,
)
from glassrank.research.train.prepared import PassageOffsets, RunIds
from glassrank.research.train.texts import (
    PassageDivider,
    TextsOnDisk,
    make_splitters,
    word_splitter,
)
from glassrank.storage.mapped_arrays import Ragged
from glassrank.types import Qrels, Query, Run


@dataclass(frozen=True)
class TextSplit:
    """Split queries and candidates: the first stage's, then judged ones that it missed."""

    queries: list[list[str]]
    collection: NDArray[np.int32]  # (Q,)
    docs: Ragged
    grades: NDArray[np.int32]  # beside docs.values; -1 where nobody judged
    ranks: NDArray[np.int32]  # beside docs.values; 0 where the first stage missed it
    scores: NDArray[np.float32]  # beside docs.values
    triples: NDArray[np.int32] | None = None  # (T, 3) query, places of positive and negative
    folds: NDArray[np.int32] | None = None  # (Q,)
    teacher: NDArray[np.float32] | None = None  # beside docs.values, where a file has them


@dataclass(frozen=True)
class WordCounts:
    """Term and document frequencies of words in whole documents."""

    words: Counter[str] = field(default_factory=Counter)
    docs: Counter[str] = field(default_factory=Counter)

    def add(self, words: Sequence[str]) -> None:
        """Count a document."""
        self.words.update(words)
        self.docs.update(set(words))


@dataclass(frozen=True)
class TrainingTexts:
    """Split documents and queries of all collections; each passage is a text."""

    docs: Sequence[Sequence[str]]
    train: TextSplit
    dev: TextSplit
    test: TextSplit | None = None
    counts: WordCounts | None = None
    passages: PassageOffsets | None = None  # where `docs` are their texts
    ids: RunIds | None = None  # where folds are tested

    def splits(self) -> dict[str, TextSplit]:
        """The splits by name, without missing ones."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}


class _SplitBuilder:
    """Collects a split, collection by collection."""

    def __init__(self) -> None:
        self.queries: list[list[str]] = []
        self.query_ids: list[str] = []
        self.collection: list[int] = []
        self.docs: list[NDArray[np.int64]] = []
        self.grades: list[NDArray[np.int64]] = []
        self.ranks: list[NDArray[np.int64]] = []
        self.scores: list[NDArray[np.float64]] = []
        self.triples: NDArray[np.int32] | None = None
        self.folds: list[int] = []
        self.teacher: list[NDArray[np.float64]] = []

    def build(self) -> TextSplit:
        """The split as arrays."""
        return TextSplit(
            self.queries,
            np.array(self.collection, np.int32),
            Ragged.from_rows(self.docs, np.int32),
            Ragged.from_rows(self.grades, np.int32).values,
            Ragged.from_rows(self.ranks, np.int32).values,
            Ragged.from_rows(self.scores, np.float32).values,
            self.triples,
            np.array(self.folds, np.int32) if self.folds else None,
            Ragged.from_rows(self.teacher, np.float32).values if self.teacher else None,
        )


def read_collections(config: TrainConfig, base: Path, say: Say = lambda _: None) -> TrainingTexts:
    """Read and search all collections. Paths are relative to `base`."""
    files = {"sampler.triples": config.sampler.triples, "candidates.run": config.candidates.run}
    files["candidates.teacher_scores"] = config.candidates.teacher_scores
    for name, path in files.items():
        if path and len(config.collections) != 1:
            raise InputError(f"{name} needs a single collection, found {len(config.collections)}")
    reader = _CollectionReader(config, base, say)
    doc_ids: list[str] = []
    for number, collection in enumerate(config.collections):
        doc_ids = reader.read(number, collection)
    splits = reader.splits
    if config.folds is not None:
        splits["dev"] = splits["train"]  # each fold is dev once
    if not splits["dev"].queries:
        raise InputError("no collection has dev_queries and dev_qrels; give both for one of them")
    build = {name: split.build() for name, split in splits.items() if split.queries}
    passages = None if reader.divider is None else reader.divider.passages()
    ids = None
    if config.folds is not None and len(config.collections) == 1:
        ids = RunIds.of(splits["train"].query_ids, doc_ids)
    return TrainingTexts(reader.docs, **build, counts=reader.counts, passages=passages, ids=ids)


class _CollectionReader:
    """Adds collections, one after the other, to documents and splits."""

    def __init__(self, config: TrainConfig, base: Path, say: Say) -> None:
        self._config, self._base, self._say = config, base, say
        self._query_words, self._doc_words = make_splitters(config, base)
        self._run = read_runs(base, config.candidates.run)
        self._teacher = read_runs(base, config.candidates.teacher_scores)
        self.docs = TextsOnDisk()
        self.splits = {name: _SplitBuilder() for name in ("train", "dev", "test")}
        self.counts = WordCounts() if config.vectors.whole_documents else None
        divides = config.train_on == "passages"
        self.divider = PassageDivider(config, base) if divides else None

    def read(self, number: int, collection: Collection) -> list[str]:
        """Add a collection. Returns its document ids."""
        self._say(f"{collection.name}: reading and searching")
        with tempfile.TemporaryDirectory() as folder:
            index = self._open_index(collection, Path(folder, "index"))
            numbers = self._add_docs(index)
            for name in self.splits:
                self._add_split(name, number, collection, index, numbers)
        return list(numbers)

    def _open_index(self, collection: Collection, folder: Path) -> Index:
        source = resolve_source(self._base, collection.docs)
        if Path(source, MANIFEST_FILE).is_file():
            return Index(source)
        reader = read_docs(source, skip_bad=True)
        index = Index.build(reader, folder)
        if reader.skipped:
            bad = f"{reader.skipped:,} empty or bad documents; the first: {reader.first_skipped}"
            self._say(f"skipped {bad}")
        return index

    def _add_docs(self, index: Index) -> dict[str, int]:
        """The number of each document."""
        numbers: dict[str, int] = {}
        for doc in index.docs():
            numbers[doc.doc_id] = len(self.docs if self.divider is None else self.divider)
            for text in [join_title(doc)] if self.divider is None else self.divider.add(doc):
                self.docs.append(self._doc_words(text))
            if self.counts is not None:
                self.counts.add(word_splitter(self._config)(join_title(doc)))
        return numbers

    def _add_split(
        self,
        name: str,
        number: int,
        collection: Collection,
        index: Index,
        numbers: dict[str, int],
    ) -> None:
        config, base, split = self._config, self._base, self.splits[name]
        queries = getattr(collection, f"{name}_queries")
        qrels = getattr(collection, f"{name}_qrels")
        if queries is None or qrels is None:
            return
        asked = read_queries(resolve_source(base, queries), collection.topic_field)
        if name == "train" and config.sampler.triples is not None:
            self._add_triples(base / config.sampler.triples, index, asked, numbers)
            return
        judgments = read_qrels(resolve_source(base, qrels))
        asked = [query for query in asked if query.query_id in judgments]
        wanted = config.candidates
        most = {"train": wanted.train_queries, "dev": wanted.dev_queries}.get(name)
        rng = np.random.default_rng([config.seed, number])
        if most is not None and most < len(asked):
            asked = [asked[i] for i in np.sort(rng.permutation(len(asked))[:most])]
        split.queries.extend(self._query_words(query.text) for query in asked)
        split.query_ids.extend(query.query_id for query in asked)
        split.collection.extend([number] * len(asked))
        if name == "train" and config.folds is not None:
            split.folds.extend(_assign_folds(config.folds, asked, base, rng))
        depth = wanted.train_depth if name == "train" else wanted.dev_depth
        run = (
            index.retrieve(asked, depth, wanted.method)
            if self._run is None
            else select_candidates(self._run, asked, depth, numbers)
        )
        kept = wanted.train_kept if name == "train" else None
        _add_candidates(run, judgments, numbers, split, kept, rng, self._teacher)

    def _add_triples(
        self, path: Path, index: Index, queries: Sequence[Query], numbers: dict[str, int]
    ) -> None:
        split = self.splits["train"]
        if self._config.sampler.triples_of == "texts":
            texts = read_text_triples(path, self._query_words, self._doc_words, self.docs)
            grouped = group_triples(texts.triples)
            nothing = np.zeros(len(grouped.grades), np.int64)
            _add_grouped(split, grouped, texts.queries, nothing, nothing.astype(np.float64))
            return
        ids = {query.query_id: number for number, query in enumerate(queries)}
        grouped = group_triples(read_triples(path, ids, numbers))
        ranks, scores = rank_grouped(grouped, index, queries, numbers, self._config.candidates)
        words = [self._query_words(query.text) for query in queries]
        _add_grouped(split, grouped, words, ranks, scores)


def _assign_folds(
    wanted: FoldsConfig, queries: Sequence[Query], base: Path, rng: np.random.Generator
) -> list[int]:
    if wanted.file is None:
        order: list[int] = rng.permutation(len(queries)).tolist()
        return [place % wanted.count for place in order]
    known = read_folds(str(base / wanted.file))
    missing = [query.query_id for query in queries if query.query_id not in known]
    if missing:
        raise InputError(f"{wanted.file} has no fold for query {missing[0]!r}; add it to one")
    return [known[query.query_id] for query in queries]


def _add_candidates(
    run: Run,
    qrels: Qrels,
    numbers: dict[str, int],
    split: _SplitBuilder,
    kept: int | None,
    rng: np.random.Generator,
    teacher: Run | None,
) -> None:
    taught = {} if teacher is None else scores_by_query(teacher)
    for query_id, listed_first, scores in run.items():
        grades = qrels[query_id]
        known = set(listed_first)
        missed = [doc for doc in grades if doc not in known and doc in numbers]
        listed = [*listed_first, *missed]
        mine = np.array([grades.get(doc, -1) for doc in listed], np.int64)
        ranks = np.array([*range(1, len(listed_first) + 1), *[0] * len(missed)], np.int64)
        # A document that the first stage missed gets its lowest score.
        floor = float(scores[-1]) if len(scores) else 0.0
        values = np.array([*scores.tolist(), *[floor] * len(missed)], np.float64)
        places = np.arange(len(listed))
        if kept is not None:
            unjudged = rng.permutation(places[mine < 0])[:kept]
            places = np.sort(np.concatenate([places[mine >= 0], unjudged]))
        split.docs.append(np.array([numbers[listed[i]] for i in places], np.int64))
        split.grades.append(mine[places])
        split.ranks.append(ranks[places])
        split.scores.append(values[places])
        if teacher is not None:
            split.teacher.append(look_up_scores(taught, query_id, [listed[i] for i in places]))


def _add_grouped(
    split: _SplitBuilder,
    grouped: GroupedTriples,
    queries: Sequence[list[str]],
    ranks: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> None:
    split.queries.extend(queries[number] for number in grouped.queries.tolist())
    split.collection.extend([0] * len(grouped.queries))
    split.docs.extend(np.split(grouped.docs.values, grouped.docs.offsets[1:-1]))
    split.grades.append(grouped.grades)
    split.ranks.append(ranks)
    split.scores.append(scores)
    split.triples = grouped.triples
