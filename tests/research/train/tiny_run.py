"""A training run small enough for tests: relevant documents share words with their query."""

import numpy as np

from glassrank.research.train.config import TrainConfig
from glassrank.research.train.prepared import Prepared, Split
from glassrank.settings import from_plain
from glassrank.storage.mapped_arrays import Ragged

WORDS, SIZE, DOCS = 60, 8, 200


def tiny_config(**changes: object) -> TrainConfig:
    plain = {
        "model": "knrm",
        "out": "out",
        "prepared": "prepared",
        "collections": [
            {"name": "tiny", "docs": "d", "train_queries": "q", "train_qrels": "r"},
        ],
        "query_length": 4,
        "doc_length": 12,
        "sampler": {"batch": 16, "negatives": 2},
        "optimizer": {"steps": 60, "rest": 0.05, "vectors": 0.01},
        "validation": {"every": 20},
        **changes,
    }
    return from_plain(TrainConfig, plain)


def tiny_prepared(seed: int = 0, *, teacher: bool = False) -> Prepared:
    rng = np.random.default_rng(seed)
    docs = [rng.integers(2, WORDS, rng.integers(3, 12)) for _ in range(DOCS)]
    split = {
        name: _split(rng, docs, count, teacher) for name, count in (("train", 60), ("dev", 30))
    }
    vectors = rng.normal(size=(WORDS, SIZE)).astype(np.float32)
    vectors[0] = 0
    idf = np.ones(WORDS, np.float32)
    words = ["<pad>", "<unk>", *(f"w{i}" for i in range(2, WORDS))]
    return Prepared(words, vectors, idf, Ragged.from_rows(docs, np.int32), **split, description={})


def _split(rng: np.random.Generator, docs: list[np.ndarray], queries: int, teacher: bool) -> Split:
    """Ten candidates in random order; the relevant one holds the query's words."""
    texts, candidates, grades = [], [], []
    for _ in range(queries):
        chosen = rng.choice(DOCS, 10, replace=False)
        relevant = rng.integers(10)
        texts.append(rng.choice(docs[chosen[relevant]], 3))
        candidates.append(chosen)
        grades.append(np.where(np.arange(10) == relevant, 1, -1))
    flat = np.concatenate(grades).astype(np.int32)
    return Split(
        queries=Ragged.from_rows(texts, np.int32),
        collection=np.zeros(queries, np.int32),
        docs=Ragged.from_rows(candidates, np.int32),
        grades=flat,
        ranks=np.tile(np.arange(1, 11), queries).astype(np.int32),
        first_stage=np.tile(np.arange(10, 0, -1), queries).astype(np.float32),
        teacher=(flat > 0).astype(np.float32) if teacher else None,
    )
