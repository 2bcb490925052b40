"""A trained model with its vocabulary: texts in, scores out, nothing stored. What computes it,
ONNX Runtime or PyTorch, parts here.

A `Reranker` asks for embeddings and scores, and does not ask what computes them:
`load_for_inference` has decided that.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import must_end
from glassrank.models.doc_reader import PassageReader, ReadDoc
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.model_folder import PACKAGED, SavedModel, best_passages
from glassrank.models.model import Model, TokenBatch, TokenEmbeddings, to_array
from glassrank.models.text_batches import TextReader, TokenFilter, make_batch, map_batches
from glassrank.rerank.cost_model import CostModel
from glassrank.text import Vocabulary
from glassrank.text.encoder import WordEncoder
from glassrank.types import Doc, Ranking

Ids = Sequence[NDArray[np.int32]]


class Backend(Protocol):
    """One model, ready to encode and to score."""

    model: Any
    """As it was trained: what a store is tied to."""
    fast_model: Any
    """As it encodes documents and scores them, and on a GPU a transformer's queries too."""
    device: Any
    """Of PyTorch's; None without it."""
    dtype: Any
    """What stored words are best read as: what a transformer computes in."""

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        """One query, (1, Q) on the CPU."""

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        """Documents, as they are ranked live."""

    def scores(
        self, query: TokenEmbeddings, docs: TokenEmbeddings, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Of one encoded query and many encoded documents."""


class OnnxBackend:
    """A model of `models/served.py`: on a CPU, without PyTorch."""

    device = None
    dtype = None

    def __init__(self, model: Model) -> None:
        self.model: Any = model
        self.fast_model: Any = model
        self.encode_query, self.encode_doc = model.encode_query, model.encode_doc

    def scores(
        self, query: TokenEmbeddings, docs: TokenEmbeddings, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """By the compiled pass that scores stored words."""
        return np.asarray(self.model.rank(query, docs, first_stage).score, np.float32)


def choose_backend(saved: SavedModel, device: str, *, exact: bool) -> Backend:
    """What computes a model on this device. `exact` leaves layers as they are."""
    is_exact = saved.load_trained is None  # a published graph has no other form
    if saved.model.device is None and device == "cpu" and (is_exact or not exact):
        return OnnxBackend(saved.model)
    from glassrank.rerank.torch_backend import TorchBackend

    return TorchBackend(saved.trained().model, device, saved.usage.query_length, exact=exact)


def query_batch(ids: NDArray[np.int32], backend: Backend) -> TokenBatch:
    """One query, on the CPU."""
    return make_batch([ids], None if backend.device is None else "cpu")


WORDS_AT_ONCE = 16_384.0
"""That are encoded as one piece when there is no budget to cut it shorter."""
TOKENS_AT_ONCE = 4_096
"""Texts of like length go together, up to this many words with padding: memory stays small, and
little of it is padding."""


@dataclass(frozen=True)
class Scores:
    """`cut` says of which texts the model did not read all."""

    values: NDArray[np.float32]  # (n,)
    cut: NDArray[np.bool_]  # (n,)


def as_doc(text: str | Doc) -> Doc:
    """A text by itself has no title."""
    return Doc("", text) if isinstance(text, str) else text


class Reranker:
    """What ranks: the three calls of the contract, for texts."""

    def __init__(
        self, saved: SavedModel, device: str = "cpu", *, exact: bool = False, name: str = ""
    ) -> None:
        """`exact` ranks with the trained layers as they are, in float32, and on a CPU computes each
        document by itself in one thread, so that its score depends on nothing but the query and
        itself. Otherwise layers that encode queries and documents, and all of a transformer's, are
        rounded where that is faster. Hits are said to be placed by this `name`, which is that of
        the model's family unless it is given."""
        self.exact = exact
        self.saved = saved
        self.usage = saved.usage
        self._backend = choose_backend(saved, device, exact=exact)
        self.model: Any = self._backend.model
        self.name: str = name or self.model.name
        self.fast_model: Any = self._backend.fast_model
        """The model as it encodes documents and scores them, and on a GPU a transformer's queries
        too. Other queries have a form of their own, of `model`, which is what a store is tied to.
        """
        self.device = self._backend.device
        """Of PyTorch's; None where the model is served without it."""
        self._reader = TextReader(saved)
        self.encoder = self._reader.encoder
        self.cost = CostModel(base=2.0, rate=0.02)  # of live scoring; learned from the first use on
        self.is_warm, self.warming = False, threading.Lock()  # see `warm_up`
        self.query_cost = CostModel()  # of all that comes before scoring, by the documents
        self.is_english = False
        """Whether it is known to read English only, as those that come with the package."""

    @classmethod
    def load(
        cls,
        model: str | Path = "default",
        device: str = "cpu",
        *,
        exact: bool = False,
        name: str = "",
    ) -> "Reranker":
        """A model folder, or `default` or `fast` for those that come with the package; by the
        folder's name, unless another is given."""
        saved = load_for_inference(model, device, exact=exact)
        reranker = cls(saved, device, exact=exact, name=name or Path(model).name)
        reranker.is_english = str(model) in PACKAGED
        return reranker

    @property
    def alone(self) -> bool:
        """Whether documents are computed one by one."""
        return self.exact and self.device is not None and self.device.type == "cpu"

    @property
    def stops(self) -> bool:
        """Whether it ends between two documents of a batch that must not take longer: ONNX Runtime
        does, which encodes them one by one."""
        return self.device is None

    @property
    def vocabulary(self) -> Vocabulary:
        """Of a model on words."""
        if not isinstance(self.encoder, WordEncoder):
            raise TypeError(f"a {self.model.name} reads pieces of words, and has no vocabulary")
        return self.encoder.vocabulary

    def encode_query(self, query: str) -> TokenEmbeddings:
        """One query: vectors (1, Q, …)."""
        found = self._reader.query(query)
        return self.encode_query_ids(query_batch(found.ids, self._backend))

    def encode_query_ids(self, batch: TokenBatch) -> TokenEmbeddings:
        """The same for a query that is read already: (1, Q) on the CPU."""
        return self._backend.encode_query(batch)

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        """Documents as they are ranked live."""
        return self._backend.encode_doc(batch)

    @property
    def dtype(self) -> Any:
        """What stored words are best read as: what a transformer computes in."""
        return self._backend.dtype

    def rank(
        self,
        query: str,
        docs: Iterable[str | Mapping[str, Any] | Doc],
        *,
        k: int | None = None,
        ids: Iterable[Any] | None = None,
        budget_ms: float | None = None,
    ) -> Ranking:
        """The best k documents by this model: `glassrank.rank` with it. A hit has the `text`, the
        `score`, its `probability` where the model knows it, and as `doc` all that was given."""
        import glassrank

        return glassrank.rank(query, docs, model=self, k=k, ids=ids, budget_ms=budget_ms)

    def scores(
        self, query: str, texts: Sequence[str | Doc], first_stage: Sequence[float] | None = None
    ) -> Scores:
        """A score for each text. `first_stage` counts only if the model mixes it in."""
        given = None if first_stage is None else np.asarray(first_stage, np.float32)
        return self.score_texts(self.encode_query(query), texts, given)

    def score_texts(
        self,
        query: TokenEmbeddings,
        texts: Sequence[str | Doc],
        first_stage: NDArray[np.float32] | None = None,
    ) -> Scores:
        """The same for a query that is encoded already."""
        found = [doc.all() for doc in self.read([as_doc(text) for text in texts])]
        docs = np.repeat(np.arange(len(found)), [len(doc.passages) for doc in found])
        ids = [passage.ids for doc in found for passage in doc.passages]
        given = None if first_stage is None else first_stage[docs]
        values = self.score_passages(query, ids, given)
        shares = self.first_stage_shares(len(found), first_stage)
        how = self.usage.passages
        best = best_passages(values, docs, shares, how.best, how.first)
        return Scores(best.values, np.array([doc.cut for doc in found], np.bool_))

    def read(self, docs: Sequence[Doc]) -> list[ReadDoc]:
        """Documents as the model reads them."""
        return self._reader.docs(docs)

    @property
    def passages(self) -> PassageReader:
        """How it divides documents."""
        return self._reader.passages

    def score_passages(
        self,
        query: TokenEmbeddings,
        ids: Sequence[NDArray[np.int32]],
        first_stage: NDArray[np.float32] | None = None,
        left_out: TokenFilter | None = None,
    ) -> NDArray[np.float32]:
        """A score for each passage, by its ids, with some words left out."""
        values = np.zeros(len(ids), np.float32)
        lengths = np.array([len(passage) for passage in ids], np.int64)

        def score(part: NDArray[np.int64]) -> None:
            must_end().check("these texts")
            batch = make_batch([ids[i] for i in part], self.device)
            doc = self.encode_doc(batch)
            if left_out is not None:
                doc = left_out.without(doc, to_array(batch.ids))
            own = None if first_stage is None else first_stage[part]
            values[part] = self.score_embeddings(query, doc, own)

        for _ in map_batches(score, lengths, TOKENS_AT_ONCE, self.fast_model, alone=self.alone):
            pass
        return values

    def best_passage(
        self, query: TokenEmbeddings, doc: ReadDoc, left_out: TokenFilter | None = None
    ) -> int:
        """The number of the passage that a document is ranked by."""
        if doc.is_whole:
            return 0
        ids = [passage.ids for passage in doc.all().passages]
        return int(self.score_passages(query, ids, None, left_out).argmax())

    def first_stage_shares(
        self, count: int, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """What the first stage adds to each document's score."""
        weight = self.model.first_stage_weight
        if weight is None or first_stage is None:
            return np.zeros(count, np.float32)
        shares: NDArray[np.float32] = (weight.item() * first_stage).astype(np.float32)
        return shares

    def score_embeddings(
        self, query: TokenEmbeddings, docs: TokenEmbeddings, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """One encoded query, many encoded documents."""
        return self._backend.scores(query, docs, first_stage)


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
