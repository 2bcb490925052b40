"""What training reads: plain arrays in a folder, so that a machine with nothing else can train."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError


@dataclass(frozen=True)
class Ragged:
    """Row i is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]  # (n + 1,)
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def padded(self, length: int) -> NDArray[np.int32]:
        """(n, length), cut and filled with zeros."""
        sizes = np.minimum(np.diff(self.offsets), length)
        out = np.zeros((len(self), length), np.int32)
        mask = np.arange(length) < sizes[:, None]
        starts = np.repeat(self.offsets[:-1], sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[mask] = self.values[starts + within]
        return out

    @classmethod
    def of(cls, rows: list[NDArray[Any]], dtype: Any) -> "Ragged":
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        values = np.concatenate(rows).astype(dtype) if rows else np.empty(0, dtype)
        return cls(offsets, values)


@dataclass(frozen=True)
class Split:
    """Queries with their candidates: judged documents first, then the first stage's."""

    queries: Ragged  # word ids
    collection: NDArray[np.int32]  # (Q,) which collection a query belongs to
    docs: Ragged  # candidate documents of each query
    grades: NDArray[np.int32]  # beside docs.values; -1 where nobody judged
    ranks: NDArray[np.int32]  # beside docs.values; from 1, 0 where the first stage missed it
    first_stage: NDArray[np.float32]  # beside docs.values
    teacher: NDArray[np.float32] | None  # beside docs.values
    triples: NDArray[np.int32] | None = None  # (T, 3) query, places of positive and negative
    folds: NDArray[np.int32] | None = None  # (Q,)

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
        )


@dataclass(frozen=True)
class Subwords:
    """How word vectors are made of the rows of a table: see `models.SubwordTable`."""

    rows: Ragged  # of each word
    ngrams: NDArray[np.int64]  # (3,) buckets, letters of the shortest and the longest n-gram


@dataclass(frozen=True)
class Prepared:
    words: list[str]
    vectors: NDArray[np.float32]  # (V, E); with subwords one row for each of those
    idf: NDArray[np.float32]  # (V,)
    docs: Ragged  # word ids
    train: Split
    dev: Split
    description: dict[str, Any]
    test: Split | None = None
    subwords: Subwords | None = None


def save_prepared(folder: Path, prepared: Prepared) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in prepared.words), "utf-8")
    np.save(folder / "vectors.npy", prepared.vectors.astype(np.float16))
    np.save(folder / "idf.npy", prepared.idf)
    save_ragged(folder, "docs", prepared.docs)
    subwords = prepared.subwords
    save_optional(folder / "subwords.ngrams.npy", None if subwords is None else subwords.ngrams)
    if subwords is not None:
        save_ragged(folder, "subwords", subwords.rows)
    splits = {"train": prepared.train, "dev": prepared.dev, "test": prepared.test}
    for name, split in splits.items():
        if split is None:
            continue
        save_ragged(folder, f"{name}.queries", split.queries)
        save_ragged(folder, f"{name}.docs", split.docs)
        for part in ("collection", "grades", "ranks", "first_stage", "teacher", "triples", "folds"):
            save_optional(folder / f"{name}.{part}.npy", getattr(split, part))
    # Written last: its presence says that the rest is whole.
    (folder / "prepared.json").write_text(json.dumps(prepared.description, indent=1), "utf-8")


def load_prepared(folder: str | Path) -> Prepared:
    folder = Path(folder)
    if not (folder / "prepared.json").exists():
        raise InputError(
            f"{folder} has no prepared arrays; make them with: glassrank prepare CONFIG.toml"
        )

    def load(name: str) -> NDArray[Any]:
        array: NDArray[Any] = np.load(folder / f"{name}.npy")
        return array

    def split(name: str) -> Split:
        return Split(
            load_ragged(folder, f"{name}.queries"),
            load(f"{name}.collection"),
            load_ragged(folder, f"{name}.docs"),
            load(f"{name}.grades"),
            load(f"{name}.ranks"),
            load(f"{name}.first_stage"),
            load_optional(folder / f"{name}.teacher.npy"),
            load_optional(folder / f"{name}.triples.npy"),
            load_optional(folder / f"{name}.folds.npy"),
        )

    ngrams = load_optional(folder / "subwords.ngrams.npy")
    return Prepared(
        (folder / "words.txt").read_text("utf-8").split("\n")[:-1],
        load("vectors").astype(np.float32),
        load("idf"),
        load_ragged(folder, "docs"),
        split("train"),
        split("dev"),
        json.loads((folder / "prepared.json").read_text("utf-8")),
        split("test") if (folder / "test.grades.npy").exists() else None,
        None if ngrams is None else Subwords(load_ragged(folder, "subwords"), ngrams),
    )


def save_optional(path: Path, array: NDArray[Any] | None) -> None:
    """What an earlier preparation left there is not this one's."""
    if array is None:
        path.unlink(missing_ok=True)
    else:
        np.save(path, array)


def load_optional(path: Path) -> NDArray[Any] | None:
    return np.load(path) if path.exists() else None


def save_ragged(folder: Path, name: str, rows: Ragged) -> None:
    np.save(folder / f"{name}.offsets.npy", rows.offsets)
    np.save(folder / f"{name}.values.npy", rows.values)


def load_ragged(folder: Path, name: str) -> Ragged:
    return Ragged(np.load(folder / f"{name}.offsets.npy"), np.load(folder / f"{name}.values.npy"))
