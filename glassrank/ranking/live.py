"""A trained model with its vocabulary: texts in, scores out, nothing stored."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models import TokenBatch, Words
from glassrank.models.checkpoint import SavedModel, load_named
from glassrank.models.fast import fast_form
from glassrank.models.text_batches import TextReader, batch_of, in_batches
from glassrank.nn.devices import device_named
from glassrank.ranking.planner import CostModel
from glassrank.ranking.query_encoding import QueryEncoder
from glassrank.text import Vocabulary
from glassrank.text.encoder import WordEncoder

WORDS_AT_ONCE = 16_384.0
"""That are encoded as one piece when there is no budget to cut it shorter."""
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
        """`exact` ranks with the trained layers as they are, in float32, and on a CPU computes each
        document by itself in one thread, so that its score depends on nothing but the query and
        itself. Otherwise layers that encode queries and documents, and all of a transformer's, are
        rounded where that is faster."""
        self.exact = exact
        self.saved = saved
        self.usage = saved.usage
        self._device = device_named(device)
        self.model = saved.model.to(self._device).eval()
        self._reader = TextReader(saved)
        self.encoder = self._reader.encoder
        self.fast_model = self.model if exact else fast_form(self.model)
        """The model as it encodes documents and scores them, and on a GPU a transformer's queries
        too. Other queries have a form of their own, of `model`, which is what a store is tied to.
        """
        self.cost = CostModel(base=2.0, rate=0.02)  # of live scoring; learned from the first use on
        self.is_warm, self.warming = False, threading.Lock()  # see `warm_up`
        self.query_cost = CostModel()  # of all that comes before scoring, by the documents
        rounded = self._device.type == "cuda" and self.fast_model.reads_pieces
        encodes = self.fast_model if rounded else self.model
        self._encode_query = QueryEncoder(encodes, self.usage.query_length, exact=exact)

    @classmethod
    def load(
        cls, model: str | Path = "default", device: str = "cpu", *, exact: bool = False
    ) -> "Reranker":
        """A model folder, or `default` for the model that comes with the package."""
        return cls(load_named(model), device, exact=exact)

    @property
    def alone(self) -> bool:
        """Whether documents are computed one by one."""
        return self.exact and self._device.type == "cpu"

    @property
    def vocabulary(self) -> Vocabulary:
        """Of a model on words."""
        if not isinstance(self.encoder, WordEncoder):
            raise TypeError(f"a {self.model.name} reads pieces of words, and has no vocabulary")
        return self.encoder.vocabulary

    def encode_query(self, query: str) -> Words:
        """One query: vectors (1, Q, …)."""
        found = self._reader.query(query)
        return self.encode_query_ids(batch_of([found.ids], torch.device("cpu")))

    def encode_query_ids(self, batch: TokenBatch) -> Words:
        """The same for a query that is read already: (1, Q) on the CPU."""
        return self._encode_query(batch)

    @torch.no_grad()
    def encode_doc(self, batch: TokenBatch) -> Words:
        """Documents as they are ranked live."""
        return self.fast_model.encode_doc(batch)

    @property
    def dtype(self) -> torch.dtype:
        """What stored words are best read as: what a transformer computes in."""
        if self.fast_model.reads_pieces:
            return next(self.fast_model.parameters()).dtype
        return torch.float32

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
        found = self._reader.docs(texts)
        values = np.zeros(len(texts), np.float32)
        lengths = np.array([len(text.ids) for text in found], np.int64)

        def score(part: NDArray[np.int64]) -> None:
            doc = self.encode_doc(batch_of([found[i].ids for i in part], self._device))
            own = None if first_stage is None else torch.from_numpy(first_stage[part])
            values[part] = self.word_scores(query, doc, own)

        for _ in in_batches(score, lengths, TOKENS_AT_ONCE, self.fast_model, alone=self.alone):
            pass
        return Scores(values, np.array([text.cut for text in found], np.int64))

    @torch.no_grad()
    def word_scores(
        self, query: Words, docs: Words, first_stage: torch.Tensor | None
    ) -> NDArray[np.float32]:
        """One encoded query, many encoded documents."""
        same = self.model.for_many(query, len(docs.mask))
        docs = Words(*(tensor.to(self._device) for tensor in docs))
        given = None if first_stage is None else first_stage.to(self._device)
        found: NDArray[np.float32] = (
            self.fast_model.rank(same, docs, given).score.float().cpu().numpy()
        )
        return found


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
