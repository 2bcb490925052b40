"""Texts and candidates of a training run, as plain files."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.sealed import SealedFiles, about, read_sealed, sealed_folder
from glassrank.train.array_files import read_array, write_array
from glassrank.train.prepared import Ragged


@dataclass(frozen=True)
class Candidates:
    """Queries, split into words, and what may answer them: the first stage's documents, then
    judged ones that it missed."""

    queries: list[list[str]]
    collection: NDArray[np.int32]  # (Q,)
    docs: Ragged
    grades: NDArray[np.int32]  # beside docs.values; -1 where nobody judged
    ranks: NDArray[np.int32]  # beside docs.values; 0 where the first stage missed it
    scores: NDArray[np.float32]  # beside docs.values
    triples: NDArray[np.int32] | None = None  # (T, 3) query, places of positive and negative
    folds: NDArray[np.int32] | None = None  # (Q,)


@dataclass(frozen=True)
class Gathered:
    docs: list[list[str]]
    """Documents, split into words."""
    train: Candidates
    dev: Candidates
    test: Candidates | None = None

    def splits(self) -> dict[str, Candidates]:
        found = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: split for name, split in found.items() if split is not None}


_KIND = "collection of candidates"
_HOLDS = ("*.txt.gz", "*.npy")
_MOST_TEXT = 1 << 32
_COLUMNS = ("collection", "grades", "ranks", "scores", "triples", "folds")


def save_gathered(folder: Path, gathered: Gathered) -> None:
    with sealed_folder(folder, _KIND, _HOLDS) as part:
        _save_texts(part / "docs.txt.gz", gathered.docs)
        for name, split in gathered.splits().items():
            _save_texts(part / f"{name}.txt.gz", split.queries)
            write_array(part, f"{name}.docs.offsets", split.docs.offsets, np.int64)
            write_array(part, f"{name}.docs.values", split.docs.values, np.int32)
            for column in _COLUMNS:
                if getattr(split, column) is not None:
                    write_array(part, f"{name}.{column}", getattr(split, column), _dtype(column))


def load_gathered(folder: Path) -> Gathered:
    return read_sealed(folder, _KIND, _load, "gather it again")


def _load(files: SealedFiles) -> Gathered:
    def split(name: str) -> Candidates:
        docs = Ragged(
            read_array(files, f"{name}.docs.offsets", np.int64),
            read_array(files, f"{name}.docs.values", np.int32),
        )
        columns = {
            column: read_array(
                files, f"{name}.{column}", _dtype(column), axes=2 if column == "triples" else 1
            )
            for column in _COLUMNS
            if f"{name}.{column}.npy" in files
        }
        return Candidates(_load_texts(files, f"{name}.txt.gz"), docs=docs, **columns)

    with about(files.path, "it does not hold candidates that can be used"):
        names = [name for name in ("train", "dev", "test") if f"{name}.txt.gz" in files]
        docs = _load_texts(files, "docs.txt.gz")
        return Gathered(docs, **{name: split(name) for name in names})


def _dtype(column: str) -> type[np.generic]:
    return np.float32 if column == "scores" else np.int32


def _save_texts(path: Path, texts: Sequence[Sequence[str]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(" ".join(words) + "\n" for words in texts)


def _load_texts(files: SealedFiles, name: str) -> list[list[str]]:
    lines = gzip.decompress(files.read(name, _MOST_TEXT)).decode("utf-8").split("\n")[:-1]
    return [line.split(" ") if line else [] for line in lines]
