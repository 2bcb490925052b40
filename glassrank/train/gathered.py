"""Texts and candidates of a training run, as plain files."""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.train.prepared import Ragged, load_optional, load_ragged, save_optional, save_ragged


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


def save_gathered(folder: Path, gathered: Gathered) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _save_texts(folder / "docs.txt.gz", gathered.docs)
    for name, split in gathered.splits().items():
        _save_texts(folder / f"{name}.txt.gz", split.queries)
        save_ragged(folder, f"{name}.docs", split.docs)
        for part in ("collection", "grades", "ranks", "scores", "triples", "folds"):
            save_optional(folder / f"{name}.{part}.npy", getattr(split, part))


def load_gathered(folder: Path) -> Gathered:
    def split(name: str) -> Candidates:
        return Candidates(
            list(_load_texts(folder / f"{name}.txt.gz")),
            np.load(folder / f"{name}.collection.npy"),
            load_ragged(folder, f"{name}.docs"),
            np.load(folder / f"{name}.grades.npy"),
            np.load(folder / f"{name}.ranks.npy"),
            np.load(folder / f"{name}.scores.npy"),
            load_optional(folder / f"{name}.triples.npy"),
            load_optional(folder / f"{name}.folds.npy"),
        )

    names = [name for name in ("train", "dev", "test") if (folder / f"{name}.txt.gz").exists()]
    docs = list(_load_texts(folder / "docs.txt.gz"))
    return Gathered(docs, **{name: split(name) for name in names})


def _save_texts(path: Path, texts: Sequence[Sequence[str]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(" ".join(words) + "\n" for words in texts)


def _load_texts(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            text = line.removesuffix("\n")
            yield text.split(" ") if text else []
