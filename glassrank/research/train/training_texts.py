"""Read and search collections: split texts, candidates, grades."""

import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    group_triples,
    look_up_scores,
    rank_grouped,
    read_runs,
    read_scores,
    read_text_triples,
    read_triples,
    select_candidates,
)
from glassrank.research.train.prepared import (
    COLUMN_DTYPES,
    CandidateLists,
    PassageOffsets,
    RunIds,
    Split,
)
from glassrank.research.train.texts import (
    TextsOnDisk,
    load_tokenizer,
    make_divider,
    make_splitters,
    word_splitter,
)
from glassrank.storage.mapped_arrays import Ragged
from glassrank.types import Qrels, Query, Run


@dataclass(frozen=True, kw_only=True)
class TextSplit(CandidateLists):
    """Split queries with their candidates."""

    queries: list[list[str]]

    def with_ids(self, queries: Ragged) -> Split:
        """The same with the token ids of queries."""
        return Split(**vars(self) | {"queries": queries})


@dataclass(frozen=True)
class WordCounts:
    """Term and document frequencies of words in whole documents."""

    words: Counter[str] = field(default_factory=Counter)
    docs: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class TrainingTexts:
    """Split documents and queries of all collections; each passage is a text."""

    docs: Iterable[Sequence[str]]  # which can be repeated
    train: TextSplit
    dev: TextSplit
    test: TextSplit | None = None
    counts: WordCounts | None = None
    passages: PassageOffsets | None = None  # where `docs` are their texts
    ids: RunIds | None = None  # where folds are tested


class _SplitBuilder:
    """Collects a split, collection by collection."""

    def __init__(self) -> None:
        self.queries: list[list[str]] = []
        self.query_ids: list[str] = []
        self.docs: list[NDArray[np.int64]] = []
        self._columns: dict[str, list[NDArray[Any]]] = defaultdict(list)

    def add(self, **columns: Sequence[int] | NDArray[Any]) -> None:
        """Add values to columns of the split."""
        for name, values in columns.items():
            self._columns[name].append(np.asarray(values, COLUMN_DTYPES[name]))

    def build(self) -> TextSplit:
        """The split as arrays."""
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        docs = Ragged.from_rows(self.docs, np.int32)
        return TextSplit(queries=self.queries, docs=docs, **columns)


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
    passages = None
    if config.train_on == "passages":
        how = config.passages
        passages = PassageOffsets(np.array(reader.offsets, np.int64), how.best, how.first)
    ids = None
    if config.folds is not None and len(config.collections) == 1:
        ids = RunIds.of(splits["train"].query_ids, doc_ids)
    return TrainingTexts(reader.docs, **build, counts=reader.counts, passages=passages, ids=ids)


class _CollectionReader:
    """Adds collections, one after the other, to documents and splits."""

    def __init__(self, config: TrainConfig, base: Path, say: Say) -> None:
        self._config, self._base, self._say = config, base, say
        known = load_tokenizer(config, base)
        self._query_words, self._doc_words = make_splitters(config, known)
        self._divide = make_divider(config, known)
        self._run = read_runs(base, config.candidates.run)
        self._teacher = read_scores(base, config.candidates.teacher_scores)
        self.docs = TextsOnDisk()
        self.offsets = array("q", [0])  # of each document in `docs`
        self.splits = {name: _SplitBuilder() for name in ("train", "dev", "test")}
        self.counts = WordCounts() if config.vectors.whole_documents else None

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
            numbers[doc.doc_id] = len(self.offsets) - 1
            for text in self._divide(doc):
                self.docs.append(self._doc_words(text))
            self.offsets.append(len(self.docs))
            if self.counts is not None:
                words = word_splitter(self._config)(join_title(doc))
                self.counts.words.update(words)
                self.counts.docs.update(set(words))
        return numbers

    def _add_split(
        self, name: str, number: int, collection: Collection, index: Index, numbers: dict[str, int]
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
        split.add(collection=[number] * len(asked))
        if name == "train" and config.folds is not None:
            split.add(folds=_assign_folds(config.folds, asked, base, rng))
        depth = wanted.train_depth if name == "train" else wanted.dev_depth
        run = (
            index.retrieve(asked, depth, wanted.method)
            if self._run is None
            else select_candidates(self._run, asked, depth, numbers)
        )
        kept = wanted.train_kept if name == "train" else None
        self._add_candidates(split, run, judgments, numbers, kept, rng)

    def _add_candidates(
        self,
        split: _SplitBuilder,
        run: Run,
        qrels: Qrels,
        numbers: dict[str, int],
        kept: int | None,
        rng: np.random.Generator,
    ) -> None:
        for query_id, retrieved, scores in run.items():
            judged, known = qrels[query_id], set(retrieved)
            missed = [doc for doc in judged if doc not in known and doc in numbers]
            listed = [*retrieved, *missed]
            grades = np.array([judged.get(doc, -1) for doc in listed], np.int64)
            places = np.arange(len(listed))
            if kept is not None:
                unjudged = rng.permutation(places[grades < 0])[:kept]
                places = np.sort(np.concatenate([places[grades >= 0], unjudged]))
            docs = [listed[place] for place in places.tolist()]
            # A document that the first stage missed gets its lowest score.
            lowest = scores[-1:] if len(scores) else np.zeros(1)
            split.docs.append(np.array([numbers[doc] for doc in docs], np.int64))
            split.add(
                grades=grades[places],
                ranks=np.where(places < len(retrieved), places + 1, 0),
                first_stage=np.append(scores, lowest.repeat(len(missed)))[places],
            )
            if self._teacher is not None:
                split.add(teacher=look_up_scores(self._teacher, query_id, docs))

    def _add_triples(
        self, path: Path, index: Index, queries: Sequence[Query], numbers: dict[str, int]
    ) -> None:
        if self._config.sampler.triples_of == "texts":
            words, triples = read_text_triples(path, self._query_words, self._doc_words, self.docs)
            grouped = group_triples(triples)
            ranks = np.zeros(len(grouped.grades), np.int64)
            scores = np.zeros(len(ranks))
        else:
            ids = {query.query_id: number for number, query in enumerate(queries)}
            grouped = group_triples(read_triples(path, ids, numbers))
            ranks, scores = rank_grouped(grouped, index, queries, numbers, self._config.candidates)
            words = [self._query_words(query.text) for query in queries]
        split = self.splits["train"]
        split.queries.extend(words[number] for number in grouped.queries.tolist())
        split.add(collection=[0] * len(grouped.queries), triples=grouped.triples)
        split.docs.extend(grouped.docs[row] for row in range(len(grouped.docs)))
        split.add(grades=grouped.grades, ranks=ranks, first_stage=scores)


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
