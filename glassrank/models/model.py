"""What every model offers, whatever computes it: PyTorch (`torch_models.py`) or ONNX Runtime
(`onnx_models.py`).

    q = model.encode_query(batch)
    d = model.encode_doc(batch)      # what a store keeps
    out = model.interact(q, d)       # out.score, out.parts

Re-ranking of texts, stored token embeddings and explanations all go through these calls. What they
ask of a model beyond that is in its `ModelInfo`, never its class.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import ScoringHead
from glassrank.errors import InputError
from glassrank.text import pad

Array: TypeAlias = Any
"""A numpy array, or a PyTorch tensor, by what computes the model: the two share no type."""
Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]


class TokenBatch(NamedTuple):
    """Token ids, padded at the end, and a mask that is 1 where a token stands."""

    ids: Array  # (B, L) integers
    mask: Array  # (B, L) floats


def make_batch(ids: Sequence[NDArray[np.int32]], device: Any) -> TokenBatch:
    """A batch padded to its longest text, of arrays or, for a device, of tensors."""
    padded, mask = pad(ids)
    if device is None:
        return TokenBatch(padded, mask.astype(np.float32))
    import torch

    return TokenBatch(
        torch.from_numpy(padded).to(device), torch.from_numpy(mask).float().to(device)
    )


class TokenEmbeddings(NamedTuple):
    """Vectors of the tokens of queries or documents, from a table or from an encoder."""

    vectors: Array  # (B, L, E); a model may put further axes in between
    mask: Array  # (B, L) floats
    idf: Array  # (B, L); ones where a model has no use for it; an ensemble has one per member

    def rows(self, which: Any) -> "TokenEmbeddings":
        """Those of some texts of the batch, by their numbers or as a slice."""
        return TokenEmbeddings(self.vectors[which], self.mask[which], self.idf[which])

    def with_vectors(self, vectors: Array) -> "TokenEmbeddings":
        """The same tokens with other vectors. Not every compiler knows `_replace`."""
        return TokenEmbeddings(vectors, self.mask, self.idf)


@dataclass(frozen=True)
class Output:
    """`parts` are named values. The `summands` of an additive model add up to the score."""

    score: Array  # (B,)
    parts: dict[str, Array]


@dataclass(frozen=True)
class SubwordText:
    """How texts become subwords."""

    lowercase: bool = True
    query_words: int | None = None
    """Words of a query that are read, before they become subwords: 30 in the TK paper, all here."""
    doc_words: int | None = None
    """The same of a document: 200 in the TK paper."""


@dataclass(frozen=True)
class ModelInfo:
    """What the other packages need to know of a family of models."""

    name: str
    """As model folders and training configs have it."""
    config_type: type[Any]
    """The dataclass that configures it."""
    uses_subwords: bool = False
    """Whether texts become subwords, as `config.text` says, or else words."""
    is_additive: bool = False
    """Whether the summands add up to the score."""
    summands: tuple[str, ...] = ()
    """The parts that add up, one for each path to the score: (B, Q, ...) by query token, or (B,)
    where it is not by query token. Explanations show them by these names."""
    has_term_weights: bool = False
    """Whether an encoded query's `idf` is the weight of each token in the score."""
    stores_embeddings: bool = False
    """Whether a document's token embeddings are worth storing: they depend on the tokens around
    them, and `interact` has no use for their idf. Otherwise token ids are stored, which are far
    smaller, and `encode_doc`, then little more than a look-up, is repeated for each query."""
    single_vector: bool = False
    """Whether a text has one vector, whatever its length; otherwise each token has its own."""
    is_cross_encoder: bool = False
    """Whether query and document are read as one text, so that neither can be encoded before."""
    interacts_in_bfloat16: bool = False
    """Whether `interact` may be computed in bfloat16 where that is faster: soft counts may not."""
    uses_intra_op_threads: bool = False
    """Whether one batch keeps all cores busy; of other models, each core takes a batch."""
    encoders: tuple[str, ...] = ("contextual",)
    """The modules that read a text by itself: they learn at a rate of their own."""
    is_modular: bool = False
    """Whether the encoders and what lets texts interact can be trained apart."""


class Model(Protocol):
    """A model, whatever computes it."""

    info: ModelInfo
    config: Any
    words: Any
    """The table of its word vectors, or None. Saved weights have this name."""
    first_stage_weight: Array
    """What the first stage's score counts, or None."""

    @property
    def name(self) -> str:
        """Of its family."""
        return self.info.name

    @property
    def subword_text(self) -> SubwordText | None:
        """How texts become subwords; None for a model on words."""
        text: SubwordText | None = self.config.text if self.info.uses_subwords else None
        return text

    @property
    @abstractmethod
    def device(self) -> Any:
        """The device of PyTorch; None where ONNX Runtime computes the model."""

    @abstractmethod
    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """All weights by name, each as arrays whose concatenation it is."""

    def rankers(self) -> "Sequence[Any]":
        """The members of an ensemble; of another model, itself."""
        return [self]

    @abstractmethod
    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        """Encodes queries for `interact`."""

    @abstractmethod
    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        """Encodes documents for `interact`, without the query: they can be stored."""

    @abstractmethod
    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        """Scores (B,) of B queries and B documents."""

    @abstractmethod
    def rank(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, first_stage: Array | None = None
    ) -> Output:
        """`interact`, plus the weighted first-stage score as one more part if there is a weight."""

    def expand(self, query: TokenEmbeddings, count: int) -> TokenEmbeddings:
        """One encoded query, as `interact` takes it together with `count` documents."""
        return query

    def scoring_heads(self) -> list[ScoringHead]:
        """How `interact` turns soft counts into a score, where that is all it does: one head for
        each match matrix, counted by `config.kernels`. Compiled code then scores stored embeddings
        without calling `interact`. Embeddings must be unit vectors, and a query token's weight
        stands in the place of its idf where the model `has_term_weights`."""
        return []


def to_array(values: Array) -> NDArray[Any]:
    """An array, or a tensor from any device, as numpy has it; floats in at least 32 bits."""
    if hasattr(values, "detach"):
        values = (values.detach().float() if values.element_size() < 4 else values.detach()).cpu()
    return np.asarray(values)


def no_gradients(model: Model) -> AbstractContextManager[Any]:
    """Switches PyTorch's gradients off, where it computes the model."""
    if model.device is None:
        return nullcontext()
    import torch

    return torch.no_grad()


def check_score(model: Model, query: NDArray[np.int32], doc: NDArray[np.int32]) -> None:
    """Scores one short pair of ids (L,): settings that fit the weights may still make no sense."""
    batches = [make_batch([ids], model.device) for ids in (query, doc)]
    with no_gradients(model):
        encoded = model.encode_query(batches[0]), model.encode_doc(batches[1])
        score = to_array(model.interact(*encoded).score)
    if score.shape != (1,) or not np.isfinite(score).all():
        raise InputError("the model gives no finite score")


class BestPassages(NamedTuple):
    """Of each document."""

    scores: NDArray[np.float32]  # (n,)
    passages: NDArray[np.int64]  # (n,) the best passage, as a row of all that were scored


def aggregate_passages(
    scores: NDArray[np.float32],
    docs: NDArray[np.int64],
    first_stage: NDArray[np.float32],
    best: int = 1,
    first: float = 0.0,
) -> BestPassages:
    """`docs` has the document of each passage; each document has at least one, the first one first.

    A document's score is the sum of its `best` passages, with what the `first_stage` adds to each
    counted once; the share `first` of it is the first passage's score instead.

    >>> scores, docs = np.array([1, 5, 2, 4], np.float32), np.array([0, 1, 0, 0])
    >>> aggregate_passages(scores, docs, np.zeros(2, np.float32)).scores.tolist()
    [4.0, 5.0]
    >>> aggregate_passages(scores, docs, np.ones(2, np.float32), best=2).scores.tolist()
    [5.0, 5.0]
    >>> aggregate_passages(scores, docs, np.zeros(2, np.float32), first=0.5).scores.tolist()
    [2.5, 5.0]
    """
    order = np.lexsort((-scores, docs))  # of equal ones the first
    owner = docs[order]
    starts = np.searchsorted(owner, np.arange(len(first_stage)))
    totals = scores[order[starts]]
    for rank in range(1, best):
        exists = starts + rank < len(order)
        exists[exists] = owner[starts[exists] + rank] == np.flatnonzero(exists)
        totals[exists] += scores[order[starts[exists] + rank]] - first_stage[exists]
    if first:
        first_passage = np.empty_like(totals)
        first_passage[docs[::-1]] = scores[::-1]  # of several, the first one stays
        totals += np.float32(first) * (first_passage - totals)
    return BestPassages(totals, order[starts])
