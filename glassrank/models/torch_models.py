"""The base classes of models that PyTorch computes. A new family is a subclass of `WordRanker`,
over word vectors, or of `SubwordRanker`, over subwords, and a line in `families.py`.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassrank.backends.gpu import get_device
from glassrank.backends.threads import apply_threads_to_torch
from glassrank.errors import InputError
from glassrank.models.model import Model, Output, TokenBatch, TokenEmbeddings

if TYPE_CHECKING:
    from glassrank.models.pretrained import Pretrained

apply_threads_to_torch()  # a process that needs no PyTorch has not told it how many threads to use


class EmbeddingTable(nn.Module):
    """A vector and an inverse document frequency for each word id; id 0 is padding."""

    idf: Tensor
    has_buckets: bool = True
    """Whether unknown words share the vectors behind those of the vocabulary."""
    has_ngrams: bool = False
    """Whether words are means of character n-grams, so that unseen words have vectors too."""

    def __init__(self, vectors: Tensor, idf: Tensor | None = None, *, trained: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(vectors), vectors.shape[1], padding_idx=0, sparse=trained)
        self.embedding.weight = nn.Parameter(vectors, requires_grad=trained)
        self.register_buffer("idf", torch.ones(len(vectors)) if idf is None else idf)

    @property
    def vector_count(self) -> int:
        """How many vectors there are."""
        return len(self.embedding.weight)

    def check(self) -> None:
        """Raises an InputError where a loaded table is inconsistent."""

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        """Vectors and idf of words."""
        return TokenEmbeddings(
            self.embedding(batch.ids), batch.mask, self.idf[batch.ids] * batch.mask
        )


class Ranker(nn.Module, Model):
    """A model for PyTorch, made of its config and, where it has one, its table of word vectors."""

    def __init__(self, config: Any, words: EmbeddingTable | None = None) -> None:
        super().__init__()
        self.config = config
        self.words = words
        self.first_stage_weight: nn.Parameter | None = None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        for name, tensor in self.state_dict().items():
            yield name, iter([tensor.detach().cpu().contiguous().numpy()])

    def mix_first_stage(self, weight: float = 0.1) -> None:
        """Adds the first stage's score, by a learned weight."""
        self.first_stage_weight = nn.Parameter(torch.tensor(weight))

    def fit_statistics(self, docs: Iterable[TokenBatch]) -> None:
        """Initialises weights from some documents before training; most models have none."""

    def rank(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, first_stage: Tensor | None = None
    ) -> Output:
        out = self.interact(query, doc)
        if self.first_stage_weight is None or first_stage is None:
            return out
        part = self.first_stage_weight * first_stage  # (B,)
        return Output(out.score + part, {**out.parts, "first_stage": part})

    def expand(self, query: TokenEmbeddings, count: int) -> TokenEmbeddings:
        return query.rows(torch.zeros(count, dtype=torch.long, device=query.mask.device))

    def for_gpu(self) -> Self:
        """The form that ranks fastest on a GPU: the same weights, some of them in bfloat16."""
        return self

    def gpu_query_encoder(self) -> Callable[[TokenBatch], TokenEmbeddings] | None:
        """A faster `encode_query` for one query (1, Q) on a GPU with Triton, where there is one."""
        return None

    def gpu_interaction(self) -> Any:
        """A faster `interact` with stored embeddings on a GPU with Triton, as `StoredMORES`; None
        where there is none."""
        return None

    def with_modules(self, **modules: nn.Module) -> Self:
        """The same model but for these modules. The trained model keeps its own."""
        changed = copy.copy(self)
        changed._modules = {**self._modules, **modules}
        return changed.eval()

    def forward(self, query: TokenBatch, doc: TokenBatch) -> Tensor:
        score: Tensor = self.interact(self.encode_query(query), self.encode_doc(doc)).score
        return score


class WordRanker(Ranker):
    """Over word vectors from a table; define `query_words`, `doc_words` and `interact`."""

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        return self.query_words(self.look_up(batch))

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        return self.doc_words(self.look_up(batch))

    def look_up(self, batch: TokenBatch) -> TokenEmbeddings:
        """Vectors and idf from the table."""
        if self.words is None:
            raise ValueError(f"this {self.name} has no word vectors; give it an EmbeddingTable")
        looked_up: TokenEmbeddings = self.words(batch)
        return looked_up

    @abstractmethod
    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """The query as `interact` needs it."""

    @abstractmethod
    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """The document as `interact` needs it."""


class SubwordRanker(Ranker):
    """A transformer over subwords; `config.text` is a `SubwordText`. `interact` takes as many
    encoded queries as documents, or one for all documents."""

    @classmethod
    @abstractmethod
    def start(cls, bert: "Pretrained", **settings: Any) -> Self:
        """A model with the weights of a pretrained encoder."""

    def for_gpu(self) -> Self:
        fast = copy.deepcopy(self).to(torch.bfloat16)
        # It multiplies large numbers, and only once for each document.
        fast.first_stage_weight = self.first_stage_weight
        return fast.eval()

    @abstractmethod
    def interact(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        """Scores (B,) of B documents and B queries or one; `explain` adds attention."""

    def explain(self, query: TokenBatch, doc: TokenBatch) -> Output:
        """The score with all parts that the model can show."""
        return self.interact(self.encode_query(query), self.encode_doc(doc), explain=True)

    def expand(self, query: TokenEmbeddings, count: int) -> TokenEmbeddings:
        return query  # one serves any number of documents


def to_device(model: Ranker, device: str, *, exact: bool) -> tuple[Ranker, Ranker]:
    """A model on a device, and the form in which it encodes documents there, and scores them."""
    there = model.to(get_device(device)).eval()
    return there, there if exact else fast_form(there)


def fast_form(model: Ranker) -> Ranker:
    """For encoding documents without gradients; the model itself on a CPU."""
    return model.for_gpu() if next(model.parameters()).is_cuda else model


def start_with(bert: "Pretrained", family: type[Ranker], **settings: Any) -> Ranker:
    """A model of this family with the weights of a pretrained encoder."""
    if not issubclass(family, SubwordRanker):
        raise InputError(f"a {family.info.name} cannot begin with a BERT; leave start.bert out")
    return family.start(bert, **settings)
