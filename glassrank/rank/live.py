"""Re-ranking live: texts are encoded when they are ranked, nothing is stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models import TokenBatch
from glassrank.models.checkpoint import SavedModel, load_model
from glassrank.text import Vocabulary, pad, split_words
from glassrank.types import Run

_TOKENS_AT_ONCE = 16_384
"""Texts of like length go together, up to this many words with padding: memory stays small, and
little of it is padding."""


@dataclass(frozen=True)
class Scores:
    """`cut` says how many words of each text the model did not read."""

    values: NDArray[np.float32]  # (n,)
    cut: NDArray[np.int64]  # (n,)


class Reranker:
    """A trained model with its vocabulary: texts in, scores out."""

    def __init__(self, saved: SavedModel, device: str = "cpu") -> None:
        self.usage = saved.usage
        self.model = saved.model.to(device).eval()
        self._vocabulary = Vocabulary(saved.vocabulary[2:])
        self._device = torch.device(device)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> "Reranker":
        return cls(load_model(Path(folder)), device)

    @torch.no_grad()
    def scores(
        self, query: str, texts: Sequence[str], first_stage: Sequence[float] | None = None
    ) -> Scores:
        """A score for each text. `first_stage` counts only if the model mixes it in."""
        ids = [self._vocabulary.ids(split_words(text)) for text in texts]
        lengths = np.array([len(row) for row in ids], np.int64)
        values = np.zeros(len(texts), np.float32)
        encoded = self.model.encode_query(self._batch([query], self.usage.query_length))
        given = None if first_stage is None else torch.tensor(first_stage, dtype=torch.float32)
        for part in self._parts(np.minimum(lengths, self.usage.doc_length)):
            doc = self.model.encode_doc(self._pad([ids[i] for i in part], self.usage.doc_length))
            same = encoded.rows(torch.zeros(len(part), dtype=torch.long, device=self._device))
            own = None if given is None else given[part].to(self._device)
            values[part] = self.model.rank(same, doc, own).score.float().cpu().numpy()
        return Scores(values, np.maximum(lengths - self.usage.doc_length, 0))

    def _parts(self, lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Numbers of texts, shortest first, in parts of about as many words."""
        order = np.argsort(lengths, kind="stable")
        start = 0
        while start < len(order):
            # A text is as long as its part's longest, which stands last.
            cost = lengths[order[start:]].clip(min=1) * np.arange(1, len(order) - start + 1)
            size = max(1, int(np.searchsorted(cost, _TOKENS_AT_ONCE, side="right")))
            yield order[start : start + size]
            start += size

    def _batch(self, texts: Sequence[str], longest: int) -> TokenBatch:
        return self._pad([self._vocabulary.ids(split_words(text)) for text in texts], longest)

    def _pad(self, ids: Sequence[NDArray[np.int32]], longest: int) -> TokenBatch:
        padded = pad(ids, max_length=longest, min_length=1)
        return TokenBatch(
            torch.from_numpy(padded.ids).to(self._device),
            torch.from_numpy(padded.mask).float().to(self._device),
        )


def rerank_rows(
    reranker: Reranker,
    run: Run,
    queries: Mapping[str, str],
    text: Callable[[str], str],
    depth: int | None = None,
) -> Iterator[tuple[str, list[str], NDArray[np.float64]]]:
    """Each query's row of a run, its first `depth` documents in the model's order.

    The rest keep the first stage's order below them, with scores that say so.
    """
    for query_id, docs, first in run.items():
        order = np.argsort(-first, kind="stable")
        top = order[:depth]
        rest = order[len(top) :]
        found = reranker.scores(
            queries[query_id], [text(docs[i]) for i in top], first[top].tolist()
        )
        best = top[np.argsort(-found.values, kind="stable")]
        values = np.sort(found.values)[::-1].astype(np.float64)
        below = (values[-1] if len(values) else 0.0) - 1 - np.arange(len(rest))
        yield query_id, [docs[i] for i in [*best, *rest]], np.concatenate([values, below])
