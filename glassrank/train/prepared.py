"""What training reads: plain arrays in a sealed folder, one `.npy` file each, so that a machine
with nothing else can train."""

import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from glassrank.checked import parse_json
from glassrank.errors import InputError
from glassrank.models.saved import check_words
from glassrank.ragged import Ragged
from glassrank.sealed import SealedFiles, about, read_sealed, sealed_folder
from glassrank.train.config import TrainConfig
from glassrank.train.divided_docs import DividedDocs
from glassrank.train.run_ids import RunIds
from glassrank.train.same_settings import check_same, preparation


@dataclass(frozen=True)
class Split:
    """Queries with their candidates: the first stage's documents, then judged ones that it
    missed."""

    queries: Ragged  # word ids
    collection: NDArray[np.int32]  # (Q,) which collection a query belongs to
    docs: Ragged  # candidate documents of each query
    grades: NDArray[np.int32]  # beside docs.values; -1 where nobody judged
    ranks: NDArray[np.int32]  # beside docs.values; from 1, 0 where the first stage missed it
    first_stage: NDArray[np.float32]  # beside docs.values
    teacher: NDArray[np.float32] | None  # beside docs.values
    triples: NDArray[np.int32] | None = None  # (T, 3) query, places of positive and negative
    folds: NDArray[np.int32] | None = None  # (Q,)
    passages: DividedDocs | None = None  # of all documents, where training divides them

    def check(self, name: str, words: int, docs: int) -> None:
        """Whether queries, candidates and what stands beside them fit to each other."""
        _check_rows(self.queries, f"{name}.queries", words)
        _check_rows(self.docs, f"{name}.docs", docs)
        queries, places = len(self.queries), len(self.docs.values)
        beside = {"collection": queries, "grades": places, "ranks": places, "first_stage": places}
        beside |= {"teacher": places, "folds": queries}
        _check(len(self.docs) == queries, f"{name}.docs")
        for column, length in beside.items():
            values = getattr(self, column)
            _check(values is None or len(values) == length, f"{name}.{column}")
            _check(values is None or bool(np.isfinite(values).all()), f"{name}.{column}")
        for column in ("collection", "folds"):  # they are counted up to the largest
            values = getattr(self, column)
            few = values is None or not len(values) or (values.min() >= 0 and values.max() < 10_000)
            _check(few, f"{name}.{column}")
        if self.triples is not None:
            most = np.array([queries, places, places])
            _check(self.triples.shape[1:] == (3,), f"{name}.triples")
            inside = (self.triples >= 0).all() and (self.triples < most).all()
            _check(bool(inside), f"{name}.triples")

    def only(self, queries: NDArray[np.int64]) -> "Split":
        """These queries with their candidates."""
        places = [np.arange(*self.docs.offsets[q : q + 2]) for q in queries.tolist()]
        kept = np.concatenate([np.empty(0, np.int64), *places])
        return Split(
            Ragged.of([self.queries[q] for q in queries.tolist()], np.int32),
            self.collection[queries],
            Ragged.of([self.docs[q] for q in queries.tolist()], np.int32),
            self.grades[kept],
            self.ranks[kept],
            self.first_stage[kept],
            None if self.teacher is None else self.teacher[kept],
            passages=self.passages,
        )


@dataclass(frozen=True)
class Subwords:
    """How word vectors are made of the rows of a table: see `models.SubwordTable`."""

    rows: Ragged  # of each word
    ngrams: NDArray[np.int64]  # (3,) buckets, letters of the shortest and the longest n-gram


@dataclass(frozen=True)
class Prepared:
    """A run's documents, queries and vectors, as numbers."""

    words: list[str]
    vectors: NDArray[np.float32]  # (V, E); with subwords one row for each of those
    idf: NDArray[np.float32]  # (V,)
    docs: Ragged  # word ids; of their passages, where documents are divided
    train: Split
    dev: Split
    description: dict[str, Any]
    test: Split | None = None
    subwords: Subwords | None = None
    ids: RunIds | None = None
    fingerprint: str = ""
    """Of the files that this was read from."""

    def splits(self) -> dict[str, Split]:
        """Those that there are, by name."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    @property
    def passages(self) -> DividedDocs | None:
        """Which of `docs` are a document's passages; the same in all splits."""
        return self.train.passages

    @property
    def doc_count(self) -> int:
        """Documents, however many passages they have."""
        return len(self.docs if self.passages is None else self.passages)

    def check(self) -> None:
        """Whether all numbers lead somewhere: training takes that for granted."""
        rows = len(self.vectors)
        words = len(self.idf) if rows else len(self.words)  # pieces have vectors of the model's own
        if rows:
            check_words(self.words)
        _check(bool(np.isfinite(self.vectors).all()), "vectors")
        _check(bool(np.isfinite(self.idf).all()), "idf")
        if self.subwords is None:
            _check(not rows or len(self.words) <= words == rows, "idf")
        else:
            _check_rows(self.subwords.rows, "subwords", rows)
            _check(len(self.subwords.rows) == words == len(self.words), "subwords")
            buckets, shortest, longest = self.subwords.ngrams.tolist()
            _check(0 <= buckets <= rows and 1 <= shortest <= longest <= 100, "subwords.ngrams")
        _check_rows(self.docs, "docs", words)
        if self.passages is not None:
            offsets, best = self.passages.offsets, self.passages.best
            _check(len(offsets) >= 1 and offsets[0] == 0, "passages.offsets")
            _check(offsets[-1] == len(self.docs), "passages.offsets")
            _check(bool((np.diff(offsets) >= 1).all()), "passages.offsets")
            _check(best >= 1, "passages.best")
        if self.ids is not None:
            _check_rows(self.ids.queries, "query_ids", 256)
            _check_rows(self.ids.docs, "doc_ids", 256)
            _check(len(self.ids.queries) == len(self.train.queries), "query_ids")
            _check(len(self.ids.docs) == self.doc_count, "doc_ids")
        for name, split in self.splits().items():
            split.check(name, words, self.doc_count)
        _check(isinstance(self.description, dict), "prepared.json")


def _check(sound: bool, name: str) -> None:
    if not sound:
        raise InputError(f"{name} does not belong to the other arrays; prepare them again")


def _check_rows(rows: Ragged, name: str, below: int) -> None:
    """Whether all rows lie in their values, and those between 0 and `below`."""
    offsets, values = rows.offsets, rows.values
    _check(len(offsets) >= 1 and offsets[0] == 0 and offsets[-1] == len(values), name)
    _check(bool((np.diff(offsets) >= 0).all()), name)
    _check(not len(values) or (values.min() >= 0 and values.max() < below), name)


_KIND = "preparation"
_HOLDS = ("prepared.json", "words.txt", "*.npy")
_MOST_TEXT = 1 << 30
_MOST_BYTES = 1 << 40
# Beside each query, and beside each candidate; the last ones need not be there.
_PARTS: dict[str, DTypeLike] = {
    "collection": np.int32,
    "grades": np.int32,
    "ranks": np.int32,
    "first_stage": np.float32,
    "teacher": np.float32,
    "triples": np.int32,
    "folds": np.int32,
}
_OPTIONAL = ("teacher", "triples", "folds")


def save_prepared(folder: Path, prepared: Prepared) -> None:
    """In the place of what was prepared there before, all at once."""
    with sealed_folder(folder, _KIND, _HOLDS) as part:
        text = "".join(f"{word}\n" for word in prepared.words)
        (part / "words.txt").write_text(text, "utf-8")
        _write_array(part, "vectors", prepared.vectors, np.float16)
        _write_array(part, "idf", prepared.idf, np.float32)
        _save_ragged(part, "docs", prepared.docs, np.int32)
        if prepared.passages is not None:
            _write_array(part, "passages.offsets", prepared.passages.offsets, np.int64)
            _write_array(part, "passages.best", np.array([prepared.passages.best]), np.int64)
        if prepared.ids is not None:
            _save_ragged(part, "query_ids", prepared.ids.queries, np.uint8)
            _save_ragged(part, "doc_ids", prepared.ids.docs, np.uint8)
        if prepared.subwords is not None:
            _write_array(part, "subwords.ngrams", prepared.subwords.ngrams, np.int64)
            _save_ragged(part, "subwords", prepared.subwords.rows, np.int64)
        for name, split in prepared.splits().items():
            _save_ragged(part, f"{name}.queries", split.queries, np.int32)
            _save_ragged(part, f"{name}.docs", split.docs, np.int32)
            for column, dtype in _PARTS.items():
                if getattr(split, column) is not None:
                    _write_array(part, f"{name}.{column}", getattr(split, column), dtype)
        description = json.dumps(prepared.description, indent=1)
        (part / "prepared.json").write_text(description, "utf-8")


def load_prepared(folder: str | Path, config: TrainConfig | None = None) -> Prepared:
    """With `config`, only what was prepared with the same settings."""
    remedy = "prepare the arrays with: glassrank prepare CONFIG.toml"
    prepared = read_sealed(Path(folder), _KIND, _load, remedy)
    if config is not None:
        check_same(
            prepared.description.get("preparation"), preparation(config), str(folder), remedy
        )
    return prepared


def _load(files: SealedFiles) -> Prepared:
    with about(files.path, "it does not hold prepared arrays that can be used"):
        text = files.read("words.txt", _MOST_TEXT).decode("utf-8")
        ngrams = (
            _read_array(files, "subwords.ngrams", np.int64) if _has(files, "subwords") else None
        )
        passages = _load_passages(files)
        prepared = Prepared(
            text.split("\n")[:-1],
            _read_array(files, "vectors", np.float16, axes=2).astype(np.float32),
            _read_array(files, "idf", np.float32),
            _load_ragged(files, "docs", np.int32),
            _load_split(files, "train", passages),
            _load_split(files, "dev", passages),
            parse_json(files.read("prepared.json", _MOST_TEXT)),
            _load_split(files, "test", passages) if _has(files, "test.queries") else None,
            None if ngrams is None else Subwords(_load_ragged(files, "subwords", np.int64), ngrams),
            _load_ids(files),
            files.fingerprint,
        )
        prepared.check()
        return prepared


def _has(files: SealedFiles, ragged: str) -> bool:
    return f"{ragged}.offsets.npy" in files


def _load_passages(files: SealedFiles) -> DividedDocs | None:
    if not _has(files, "passages"):
        return None
    offsets, best = (
        _read_array(files, f"passages.{name}", np.int64) for name in ("offsets", "best")
    )
    _check(len(best) == 1, "passages.best")
    return DividedDocs(offsets, int(best[0]))


def _load_ids(files: SealedFiles) -> RunIds | None:
    if not _has(files, "query_ids"):
        return None
    return RunIds(*(_load_ragged(files, name, np.uint8) for name in ("query_ids", "doc_ids")))


def _load_split(files: SealedFiles, name: str, passages: DividedDocs | None) -> Split:
    columns = {
        column: _read_array(files, f"{name}.{column}", dtype, axes=2 if column == "triples" else 1)
        if column not in _OPTIONAL or f"{name}.{column}.npy" in files
        else None
        for column, dtype in _PARTS.items()
    }
    queries = _load_ragged(files, f"{name}.queries", np.int32)
    docs = _load_ragged(files, f"{name}.docs", np.int32)
    return Split(queries=queries, docs=docs, passages=passages, **columns)  # type: ignore[arg-type]


def _save_ragged(folder: Path, name: str, rows: Ragged, dtype: DTypeLike) -> None:
    _write_array(folder, f"{name}.offsets", rows.offsets, np.int64)
    _write_array(folder, f"{name}.values", rows.values, dtype)


def _load_ragged(files: SealedFiles, name: str, dtype: DTypeLike) -> Ragged:
    return Ragged(
        _read_array(files, f"{name}.offsets", np.int64), _read_array(files, f"{name}.values", dtype)
    )


def _write_array(folder: Path, name: str, array: NDArray[Any], dtype: DTypeLike) -> None:
    np.save(folder / f"{name}.npy", np.ascontiguousarray(array, dtype))


def _read_array(files: SealedFiles, name: str, dtype: DTypeLike, axes: int = 1) -> NDArray[Any]:
    """Read into memory, at most as large as the file is."""
    path = files.path / f"{name}.npy"
    with files.open(path.name, _MOST_BYTES) as file:
        try:
            version = npy.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            shape, by_columns, kind = npy.read_array_header_1_0(file)
        except (ValueError, SyntaxError, RecursionError, MemoryError, EOFError) as error:
            raise InputError(f"{path} is no array: {str(error)[:100]}") from None
        size = files.size(path.name) - file.tell()
        if (
            kind != np.dtype(dtype)
            or len(shape) != axes
            or by_columns
            or min(shape, default=0) < 0
            or math.prod(shape) * kind.itemsize != size
        ):
            raise InputError(
                f"{path} should have {axes} axes of {np.dtype(dtype)}, found {shape} of {kind}"
            )
        array = np.empty(shape, kind)
        content = array.reshape(-1).view(np.uint8).data
        start = file.tell()
        file.seek(0)
        header = file.read(start)
        file.readinto(content)  # type: ignore[attr-defined]
        files.check(path.name, zlib.crc32(content, zlib.crc32(header)))
    return array
