"""A trained model with its vocabulary: texts in, scores out, nothing stored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models import PieceRanker, TokenBatch, Words
from glassrank.models.checkpoint import SavedModel, load_model, model_folder
from glassrank.models.fast import fast_form
from glassrank.models.pieces import PieceText
from glassrank.rank.cost import CostModel
from glassrank.text import Vocabulary, pad
from glassrank.text.encoder import TextEncoder, WordEncoder
from glassrank.text.wordpieces import PieceEncoder

TOKENS_AT_ONCE = 4_096
"""Texts of like length go together, up to this many words with padding: memory stays small, and
little of it is padding."""


@dataclass(frozen=True)
class Scores:
    """`cut` says how many words of each text the model did not read."""

    values: NDArray[np.float32]  # (n,)
    cut: NDArray[np.int64]  # (n,)


class Reranker:
    """What ranks: the three calls of the contract, for texts."""

    def __init__(self, saved: SavedModel, device: str = "cpu", *, exact: bool = False) -> None:
        """`exact` encodes documents with the trained layers as they are, in float32; otherwise they
        are rounded where that is faster."""
        self.saved = saved
        self.usage = saved.usage
        self.model = saved.model.to(device).eval()
        self.texts = text_encoder(saved)
        self._documents = self.model if exact else fast_form(self.model)
        self.cost = CostModel(base=2.0, rate=0.02)  # of live scoring; learned from the first use on
        self._device = torch.device(device)
        self._threads = torch.get_num_threads()

    @classmethod
    def load(cls, model: str | Path = "default", device: str = "cpu") -> "Reranker":
        """A model folder, or `default` for the model that comes with the package."""
        return cls(load_model(model_folder(model)), device)

    @property
    def vocabulary(self) -> Vocabulary:
        """Of a model on words."""
        if not isinstance(self.texts, WordEncoder):
            raise TypeError(f"a {self.model.name} reads pieces of words, and has no vocabulary")
        return self.texts.vocabulary

    @torch.no_grad()
    def encode_query(self, query: str) -> Words:
        """One query: vectors (1, Q, …)."""
        most = self._pieces.query_words if self._pieces is not None else None
        found = self.texts.encode([query], self.usage.query_length, most)
        # A few words are no work for two threads, and on a busy machine one waits long for another.
        torch.set_num_threads(1)
        try:
            return self.model.encode_query(self._pad([found[0].ids]))
        finally:
            torch.set_num_threads(self._threads)

    @torch.no_grad()
    def encode_doc(self, batch: TokenBatch) -> Words:
        """Documents as they are ranked live."""
        return self._documents.encode_doc(batch)

    def scores(
        self, query: str, texts: Sequence[str], first_stage: Sequence[float] | None = None
    ) -> Scores:
        """A score for each text. `first_stage` counts only if the model mixes it in."""
        given = None if first_stage is None else np.asarray(first_stage, np.float32)
        return self.text_scores(self.encode_query(query), texts, given)

    @torch.no_grad()
    def text_scores(
        self,
        query: Words,
        texts: Sequence[str],
        first_stage: NDArray[np.float32] | None = None,
    ) -> Scores:
        """The same for a query that is encoded already."""
        most = self._pieces.doc_words if self._pieces is not None else None
        found = self.texts.encode(texts, self.usage.doc_length, most)
        values = np.zeros(len(texts), np.float32)
        for part in _parts(np.array([len(text.ids) for text in found], np.int64)):
            doc = self.encode_doc(self._pad([found[i].ids for i in part]))
            own = None if first_stage is None else torch.from_numpy(first_stage[part])
            values[part] = self.word_scores(query, doc, own)
        return Scores(values, np.array([text.cut for text in found], np.int64))

    @torch.no_grad()
    def word_scores(
        self, query: Words, docs: Words, first_stage: torch.Tensor | None
    ) -> NDArray[np.float32]:
        """One encoded query, many encoded documents."""
        same = self.model.for_many(query, len(docs.mask))
        given = None if first_stage is None else first_stage.to(self._device)
        found: NDArray[np.float32] = self.model.rank(same, docs, given).score.float().cpu().numpy()
        return found

    @property
    def _pieces(self) -> PieceText | None:
        return self.model.config.text if isinstance(self.model, PieceRanker) else None

    def _pad(self, ids: Sequence[NDArray[np.int32]]) -> TokenBatch:
        padded = pad(ids, min_length=1)
        return TokenBatch(
            torch.from_numpy(padded.ids).to(self._device),
            torch.from_numpy(padded.mask).float().to(self._device),
        )


def text_encoder(saved: SavedModel) -> TextEncoder:
    """What turns texts into the ids that a model reads: words, or pieces of words."""
    if isinstance(saved.model, PieceRanker):
        return PieceEncoder(saved.vocabulary, saved.model.config.text.lowercase)
    return WordEncoder(Vocabulary(saved.vocabulary[2:], saved.unknown_buckets))


def _parts(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Numbers of texts, shortest first, in parts of about as many words."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        # A text is as long as its part's longest, which stands last.
        cost = lengths[order[start:]].clip(min=1) * np.arange(1, len(order) - start + 1)
        size = max(1, int(np.searchsorted(cost, TOKENS_AT_ONCE, side="right")))
        yield order[start : start + size]
        start += size


def best_first(
    scores: NDArray[np.float32], total: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Places and scores of all `total` candidates, of which the first have these scores: those by
    score, the rest below them as they stood, with scores that fall by one."""
    order = np.argsort(-scores, kind="stable")
    places = np.concatenate([order, np.arange(len(scores), total)])
    lowest = float(scores[order[-1]]) if len(order) else 0.0
    below = lowest - 1 - np.arange(total - len(scores))
    return places, np.concatenate([scores[order].astype(np.float64), below])
