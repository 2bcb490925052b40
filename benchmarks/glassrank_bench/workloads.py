"""What is measured on: texts of this machine's Python documentation or a collection's own file,
and a model and stored words made at random."""

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from glassrank.corpus import python_docs, read_docs
from glassrank.models import EmbeddingTable, TokenEmbeddings
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.research.papers.tk import TK
from glassrank.types import Doc

DOCS, WORDS, SIZE, TERMS = 1000, 200, 300, 30
_SETS = 4
"""Different documents in turn, so that caches do not help: each set is larger than they are."""
OUR_FORM = ContextualConfig(heads=10, attention_size=32, per_head=True, feed_forward=300)
"""Of TK: as `configs/default/tk.toml` has its layers."""


@lru_cache(maxsize=1)
def texts(path: Path | None = None, most: int = 20_000) -> tuple[str, ...]:
    """As they come: short and long ones."""
    docs = python_docs() if path is None else iter(read_docs(str(path)))
    return tuple(doc.text for doc in islice(docs, most))


def passages(count: int, words: int = 64, seed: int = 0) -> Iterator[Doc]:
    """Windows of real text, as many as asked for; each begins somewhere else, and every seventh
    word comes from elsewhere, so that no two are the same."""
    rng = random.Random(seed)
    running = [word for text in texts() for word in text.split()]
    for number in range(count):
        start = rng.randrange(len(running) - 2 * words)
        window = running[start : start + rng.randrange(words // 2, words * 3 // 2)]
        for place in range(0, len(window), 7):
            window[place] = running[rng.randrange(len(running))]
        yield Doc(f"p{number}", " ".join(window))


def questions(count: int, seed: int = 1) -> list[str]:
    """A few words that stand together somewhere."""
    rng = random.Random(seed)
    running = [word for text in texts() for word in text.split()]
    starts = [rng.randrange(len(running) - 10) for _ in range(count)]
    return [" ".join(running[start : start + rng.randrange(3, 9)]) for start in starts]


def random_tk(words: int = 20_000) -> TK:
    """A TK in our own form, with random weights: speed does not depend on their values."""
    torch.manual_seed(0)
    config = TKConfig(size=SIZE, contextual=OUR_FORM)
    model = TK(config, EmbeddingTable(torch.randn(words, SIZE), trained=False))
    return model.eval().requires_grad_(False)


class RandomStore:
    """Unit vectors as a store has them, in sets of documents that are taken in turn, and one
    query."""

    def __init__(self, dtype: str, words: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.words = words
        rows = torch.zeros(_SETS * DOCS * words, -(-SIZE // 64) * 64, dtype=torch.bfloat16)
        self.scales: NDArray[np.float32] | None = None
        for start in range(0, len(rows), DOCS * words):
            vectors = torch.randn(DOCS * words, SIZE, generator=generator)
            rows[start : start + DOCS * words, :SIZE] = functional.normalize(vectors)
        self.query = functional.normalize(torch.randn(TERMS, SIZE, generator=generator))  # (Q, E)
        self.weights = torch.rand(TERMS, generator=generator)  # (Q,)
        if dtype == "bf16":
            self.rows: NDArray[Any] = rows.view(torch.uint16).numpy()
        elif dtype == "int8":
            largest = rows.float().abs().amax(1)
            self.scales = (largest / 127).numpy()
            self.rows = (rows.float() / (largest / 127)[:, None]).round().to(torch.int8).numpy()
        else:
            self.rows = rows.float().numpy()
        order = torch.randperm(_SETS * DOCS, generator=generator).numpy()
        self.starts = order.astype(np.int64).reshape(_SETS, DOCS) * words
        self.lengths = np.full(DOCS, words, np.int64)

    def plain(self, model: TK, turn: int, at_once: int) -> NDArray[np.float32]:
        """Rows to float32, then what the model itself does, with so many documents at a time."""
        query = TokenEmbeddings(
            self.query[None], torch.ones(1, len(self.query)), self.weights[None]
        )
        scores = []
        starts = self.starts[turn % _SETS]
        for begin in range(0, DOCS, at_once):
            part = starts[begin : begin + at_once]
            places = (part[:, None] + np.arange(self.words)).ravel()
            raw = torch.from_numpy(self.rows[places])
            vectors = raw.view(torch.bfloat16).float() if raw.dtype == torch.uint16 else raw.float()
            if self.scales is not None:
                vectors *= torch.from_numpy(self.scales[places])[:, None]
            docs = torch.unflatten(vectors[:, :SIZE], 0, (len(part), self.words))
            ones = torch.ones(len(part), self.words)
            same = query.rows(torch.zeros(len(part), dtype=torch.long))
            scores.append(model.interact(same, TokenEmbeddings(docs, ones, ones)).score)
        return torch.cat(scores).numpy()

    def fused(self, model: TK, turn: int) -> NDArray[np.float32]:
        """The same scores in one pass of compiled code."""
        from glassrank.backends.cpu.kernels import StoredRows, pool_cpu

        readout = model.scoring_heads()[0]
        return pool_cpu(
            self.query.numpy(), self.weights.numpy(), StoredRows(self.rows, self.scales),
            self.starts[turn % _SETS], self.lengths, model.config.kernels,
            readout.log.numpy(), readout.length.numpy(),
        )  # fmt: skip
