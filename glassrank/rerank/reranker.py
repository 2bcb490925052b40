"""A `Reranker`: a trained model with its tokenizer, on one device. Texts in, scores out. ONNX
Runtime computes it (here), or PyTorch (`torch_backend.py`)."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline
from glassrank.models.doc_reader import ReadDoc
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.model_folder import PACKAGED, SavedModel
from glassrank.models.model import (
    Floats,
    Ints,
    TokenBatch,
    TokenEmbeddings,
    aggregate_passages,
    make_batch,
    to_array,
)
from glassrank.models.text_batches import TokenFilter, make_passage_reader, map_batches
from glassrank.rerank.scheduler import CostModel
from glassrank.text import Vocabulary
from glassrank.text.words import TextIds, WordEncoder
from glassrank.types import Doc, Ranking

if TYPE_CHECKING:
    from glassrank.rerank.torch_backend import TorchBackend

TOKENS_AT_ONCE = 4_096
"""Tokens of a padded batch of texts of like length: memory stays small, and so does padding."""


@dataclass(frozen=True)
class TextScores:
    """`cut` says of which texts the model did not read all."""

    values: Floats  # (n,)
    cut: NDArray[np.bool_]  # (n,)


def as_doc(text: str | Doc) -> Doc:
    """A text by itself has no title."""
    return Doc("", text) if isinstance(text, str) else text


class Reranker:
    """Encodes queries and documents with one model, and scores them."""

    def __init__(
        self, saved: SavedModel, device: str = "cpu", *, exact: bool = False, name: str = ""
    ) -> None:
        """`exact` computes in float32 with the trained layers, and on a CPU one document at a time
        in one thread, so that a score depends on nothing but the query and the document. Otherwise
        layers are quantized where that is faster. `name` is what hits are said to be ranked by; by
        default the name of the model's family."""
        self.exact = exact
        self.saved = saved
        self.usage = saved.usage
        self._backend = choose_backend(saved, device, exact=exact)
        self.model: Any = self._backend.model
        """As it was trained: what a store is tied to."""
        self.name: str = name or self.model.name
        self.fast_model: Any = self._backend.fast_model
        """As it encodes documents and scores them, and on a GPU a transformer's queries too."""
        self.device = self._backend.device
        """PyTorch's device; None where ONNX Runtime computes the model."""
        self.dtype = self._backend.dtype
        """In which stored embeddings are best read: what a transformer computes in."""
        self.passages = make_passage_reader(saved)
        """How it divides documents into passages."""
        self.encoder = self.passages.encoder
        self.cost = CostModel(base=2.0, rate=0.02)
        """Of encoding and scoring texts, by tokens; learned from the first use on."""
        self.query_cost = CostModel()
        """Of all that comes before scoring; how many documents there are hardly matters."""
        self.is_warm, self.warming = False, threading.Lock()  # see `warm_up`
        self.is_english = False
        """Whether it is known to read English only, as the models of the package."""

    @classmethod
    def load(
        cls,
        model: str | Path = "default",
        device: str = "cpu",
        *,
        exact: bool = False,
        name: str = "",
    ) -> "Reranker":
        """A model folder, or a name of the package; it has the folder's, unless one is given."""
        saved = load_for_inference(model, device, exact=exact)
        reranker = cls(saved, device, exact=exact, name=name or Path(model).name)
        reranker.is_english = str(model) in PACKAGED
        return reranker

    @property
    def is_deterministic(self) -> bool:
        """Whether documents are computed one at a time, in one thread each."""
        return self.exact and self.device is not None and self.device.type == "cpu"

    @property
    def is_interruptible(self) -> bool:
        """Whether encoding looks at its deadline between documents."""
        return self.device is None

    @property
    def vocabulary(self) -> Vocabulary:
        """Of a model on words."""
        if not isinstance(self.encoder, WordEncoder):
            raise TypeError(f"a {self.model.name} model reads subwords and has no word vocabulary")
        return self.encoder.vocabulary

    def encode_query(self, query: str) -> TokenEmbeddings:
        """One query: vectors (1, Q, …)."""
        device = None if self.device is None else "cpu"
        return self._backend.encode_query(make_batch([self.read_query(query).ids], device))

    def encode_query_ids(self, batch: TokenBatch) -> TokenEmbeddings:
        """A tokenized query: (1, Q) on the CPU."""
        return self._backend.encode_query(batch)

    def encode_doc(self, batch: TokenBatch, deadline: Deadline = NEVER) -> TokenEmbeddings:
        """Tokenized documents, as they are ranked on the fly; may raise a LateError."""
        return self._backend.encode_doc(batch, deadline)

    def read_query(self, query: str) -> TextIds:
        """Tokenizes a query, cut to what the model reads."""
        subwords = self.saved.model.subword_text
        most_words = None if subwords is None else subwords.query_words
        return self.encoder.encode([query], self.usage.query_length, most_words)[0]

    def read(self, docs: Sequence[Doc]) -> list[ReadDoc]:
        """Tokenizes documents, of which the first passages are read."""
        return self.passages.read(docs)

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
        `score`, its `probability` where the model is calibrated, and as `doc` all that was given.
        """
        import glassrank

        return glassrank.rank(query, docs, model=self, k=k, ids=ids, budget_ms=budget_ms)

    def scores(
        self, query: str, texts: Sequence[str | Doc], first_stage: Sequence[float] | None = None
    ) -> TextScores:
        """A score for each text. `first_stage` counts only if the model interpolates with it."""
        read = [doc.all() for doc in self.read([as_doc(text) for text in texts])]
        docs = np.repeat(np.arange(len(read)), [len(doc.passages) for doc in read])
        ids = [passage.ids for doc in read for passage in doc.passages]
        given = None if first_stage is None else np.asarray(first_stage, np.float32)
        by_passage = None if given is None else given[docs]
        scores = self.score_passages(self.encode_query(query), ids, by_passage)
        added = self.weigh_first_stage(len(read), given)
        settings = self.usage.passages
        best = aggregate_passages(scores, docs, added, settings.best, settings.first)
        return TextScores(best.scores, np.array([doc.cut for doc in read], np.bool_))

    def score_passages(
        self,
        query: TokenEmbeddings,
        ids: Sequence[NDArray[np.int32]],
        first_stage: Floats | None = None,
        left_out: TokenFilter | None = None,
        deadline: Deadline = NEVER,
    ) -> Floats:
        """A score for each tokenized passage; raises a LateError when it is late."""
        scores = np.zeros(len(ids), np.float32)
        lengths = np.array([len(passage) for passage in ids], np.int64)
        # Other threads need a deadline of their own: its clock may count this thread's time.
        deadline = Deadline.after(deadline.remaining())

        def score(part: Ints) -> None:
            deadline.check("these texts")
            batch = make_batch([ids[i] for i in part], self.device)
            docs = self.encode_doc(batch, deadline)
            if left_out is not None:
                docs = left_out.without(docs, to_array(batch.ids))
            given = None if first_stage is None else first_stage[part]
            scores[part] = self.score_embeddings(query, docs, given, deadline)

        alone = self.is_deterministic
        for _ in map_batches(score, lengths, TOKENS_AT_ONCE, self.fast_model, alone=alone):
            pass
        return scores

    def score_embeddings(
        self,
        query: TokenEmbeddings,
        docs: TokenEmbeddings,
        first_stage: Floats | None,
        deadline: Deadline = NEVER,
    ) -> Floats:
        """A score for each encoded document."""
        return self._backend.scores(query, docs, first_stage, deadline)

    def weigh_first_stage(self, count: int, first_stage: Floats | None) -> Floats:
        """What the first stage adds to each document's score."""
        weight = self.model.first_stage_weight
        if weight is None or first_stage is None:
            return np.zeros(count, np.float32)
        weighted: Floats = (weight.item() * first_stage).astype(np.float32)
        return weighted


class OnnxBackend:
    """ONNX Runtime on a CPU, as `TorchBackend`. It looks at the deadline between two documents."""

    device = None
    dtype = None

    def __init__(self, model: Any) -> None:
        self.model = self.fast_model = model
        self.encode_query, self.encode_doc = model.encode_query, model.encode_doc

    def scores(
        self,
        query: TokenEmbeddings,
        docs: TokenEmbeddings,
        first_stage: Floats | None,
        deadline: Deadline,
    ) -> Floats:
        """By the model itself."""
        if not self.model.info.is_cross_encoder:
            return np.asarray(self.model.rank(query, docs, first_stage).score, np.float32)
        scores = np.empty(len(docs.mask), np.float32)
        for row in range(len(scores)):  # a cross-encoder reads one pair after another
            deadline.check("these texts")
            scores[row] = self.model.rank(query, docs.rows(slice(row, row + 1))).score[0]
        return scores


def choose_backend(saved: SavedModel, device: str, *, exact: bool) -> "OnnxBackend | TorchBackend":
    """What computes a model on this device; with `exact`, in float32 as it was trained."""
    is_exact = saved.load_trained is None  # a published graph has no other form
    if saved.model.device is None and device == "cpu" and (is_exact or not exact):
        return OnnxBackend(saved.model)
    from glassrank.rerank.torch_backend import TorchBackend

    return TorchBackend(saved.trained().model, device, saved.usage.query_length, exact=exact)
