"""PACRR and CO-PACRR: the strongest word and phrase matches of each query word, in dense layers.

K. Hui, A. Yates, K. Berberich, G. de Melo, "PACRR: A Position-Aware Neural IR Model for Relevance
Matching", EMNLP 2017. Convolutions over the match matrix find n-grams that match in order; each
query word keeps its k best values per n-gram size, beside its share of the query's idf; dense
layers turn all words' values into the score. They have a place for each query word, so queries
have a fixed longest length.

The same, "Co-PACRR: A Context-Aware Neural IR Model for Ad-hoc Retrieval", WSDM 2018, looks at
where a match stands and at what surrounds it. Three additions: beside each chosen match, how much
the words around it are about the query (the same word may mean something else there); the best
matches of the document's first quarter, half and three quarters, too; and query words in a random
order while training, so that the dense layers do not learn what stands where in the training
queries.
"""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.backends.match import match_matrix, ngram_name, pair_mask, unit
from glassrank.models.model import ModelInfo, Output, TokenBatch, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker
from glassrank.research.papers.ngrams import NGrams, RowsToScore, k_max, masked_softmax

Tokens = TypeVar("Tokens", TokenBatch, TokenEmbeddings)


@dataclass(frozen=True)
class PACRRConfig:
    """The defaults are those of the paper's authors."""

    size: int = 300
    query_length: int = 16
    doc_length: int = 800
    """Words beyond these lengths are cut off."""
    ngrams: int = 3
    filters: int = 32
    k: int = 3
    hidden: tuple[int, ...] = (32, 32)
    last_bias: bool = True
    centred: bool = True
    """Whether trigrams have their place at the middle word, or at the first."""
    relu: bool = True
    idf: bool = True
    """Whether each query word's share of the idf is the first of its values."""
    use_masking: bool = True
    """False: padding, up to the fixed lengths, takes part like words of similarity 0."""

    @property
    def values(self) -> int:
        """What a query word keeps of an n-gram size."""
        return self.k


class PACRR(WordRanker):
    """The k best n-gram matches of each query word, and dense layers over them."""

    info = ModelInfo("pacrr", PACRRConfig)
    config: PACRRConfig

    def __init__(self, config: PACRRConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.ngrams = NGrams(
            config.ngrams, config.filters, centred=config.centred, relu=config.relu
        )
        features = config.idf + config.ngrams * config.values
        self.combine = RowsToScore(
            config.query_length, features, config.hidden, last_bias=config.last_bias
        )

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit vectors; shares of the query's idf in the place of idf."""
        words = share_idf(cut(words, self.config.query_length))
        return words.with_vectors(unit(words.vectors))

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        words = cut(words, self.config.doc_length)
        return words.with_vectors(unit(words.vectors))

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        """Parts: for each n-gram size the matrix (B, Q, D) from which the best are chosen, the
        chosen values (B, Q, k) and their places in the document, -1 for none."""
        config = self.config
        if not config.use_masking:
            query, doc = fill(query, config.query_length), fill(doc, config.doc_length)
        mask = pair_mask(query.mask, doc.mask)  # (B, Q, D)
        similarity = match_matrix(query.vectors, doc.vectors, query.mask, doc.mask)  # (B, Q, D)
        parts = {ngram_name(1): similarity, **self.ngrams(similarity[:, None])}
        rows = [query.idf[..., None]] if config.idf else []  # each (B, Q, features)
        for name, matrix in list(parts.items()):
            values, places = k_max(matrix, config.k, mask)  # (B, Q, k)
            parts |= {f"{name}_values": values, f"{name}_places": places}
            rows.append(values)
        parts["idf"] = query.idf
        return Output(self.combine(torch.cat(rows, -1)), parts)


def cut(words: Tokens, length: int) -> Tokens:
    """The first words: layer sizes or positions depend on a longest length."""
    return type(words)(*(tensor[:, :length] for tensor in words))


def lengthen(words: TokenEmbeddings, length: int) -> TokenEmbeddings:
    """Padded with zeros up to a fixed length."""
    missing = length - words.mask.shape[1]
    ends = [(0, 0) * (tensor.dim() - 2) + (0, missing) for tensor in words]
    return TokenEmbeddings(*map(functional.pad, words, ends))


def fill(words: TokenEmbeddings, length: int) -> TokenEmbeddings:
    """Padded up to a fixed length, and all of it, padding too, taken for words."""
    vectors, mask, idf = lengthen(words, length)
    return TokenEmbeddings(vectors, torch.ones_like(mask), idf)


def share_idf(words: TokenEmbeddings) -> TokenEmbeddings:
    """A softmax over the query's real words, which needs the query alone."""
    return TokenEmbeddings(words.vectors, words.mask, masked_softmax(words.idf, words.mask))


@dataclass(frozen=True)
class CoPACRRConfig(PACRRConfig):
    """PACRR's settings, and those of its three additions."""

    cascade: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    """Parts of `doc_length`, not of each document. So it is with the authors, whose matrices have
    as many columns; "early" then means the same number of words in each document, and a score
    depends on neither padding nor the batch. A document within the first part fills all four."""
    words_before: int = 4
    words_after: int = 4
    """The surroundings of a match."""
    shuffle: bool = True
    """Whether query words change places while training."""

    @property
    def values(self) -> int:
        """The best of each part of the cascade, each with its context."""
        return 2 * len(self.cascade) * self.k

    @property
    def ends(self) -> list[int]:
        """How many of the document's first words each part of the cascade sees."""
        return [max(1, int(self.doc_length * part)) for part in self.cascade]


class CoPACRR(PACRR):
    """PACRR with context, a cascade, and query words in random order."""

    info = ModelInfo("co_pacrr", CoPACRRConfig)
    config: CoPACRRConfig

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """(B, Q, 2, E): each word's unit vector, and the whole query's; idf shares as in PACRR."""
        words = share_idf(cut(words, self.config.query_length))
        # The sum has the direction of the mean, and only directions count.
        whole = self._visible(words).sum(1, keepdim=True).expand_as(words.vectors)  # (B, Q, E)
        return words.with_vectors(unit(torch.stack([words.vectors, whole], 2)))

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """(B, D, 2, E): each word's unit vector, and that of its surroundings."""
        words = cut(words, self.config.doc_length)
        before, after = self.config.words_before, self.config.words_after
        channels = functional.pad(self._visible(words).transpose(1, 2), (before, after))
        around = functional.avg_pool1d(channels, before + 1 + after, stride=1)  # (B, E, D)
        return words.with_vectors(unit(torch.stack([words.vectors, around.transpose(1, 2)], 2)))

    def _visible(self, words: TokenEmbeddings) -> Tensor:
        vectors: Tensor = words.vectors
        return vectors * words.mask[..., None] if self.config.use_masking else vectors

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        """Parts as PACRR's, with values and places (B, Q, 4 k) one part of the cascade after the
        other, the context (B, D) and its values at the chosen places."""
        config = self.config
        if not config.use_masking:
            query, doc = fill(query, config.query_length), fill(doc, config.doc_length)
        mask = pair_mask(query.mask, doc.mask)  # (B, Q, D)
        words, around = doc.vectors.unbind(2)  # each (B, D, E)
        similarity = match_matrix(query.vectors[:, :, 0], words, query.mask, doc.mask)  # (B, Q, D)
        context = torch.einsum("bde,be->bd", around, query.vectors[:, 0, 1]) * doc.mask  # (B, D)
        parts = {ngram_name(1): similarity, **self.ngrams(similarity[:, None])}
        rows = [query.idf[..., None]] if config.idf else []  # each (B, Q, features)
        for name, matrix in list(parts.items()):
            # The authors of TK take whichever of equal values comes; context would vary with it.
            values, places = k_max(
                matrix, config.k, mask, config.ends, earliest=config.use_masking
            )  # (B, Q, 4 k)
            nearby = context[:, None].expand_as(matrix).gather(-1, places.clamp(min=0))
            nearby = nearby * (places >= 0)  # (B, Q, 4 k)
            parts |= {
                f"{name}_values": values,
                f"{name}_places": places,
                f"{name}_context": nearby,
            }
            rows += [values, nearby]
        parts |= {"idf": query.idf, "context": context}
        features = torch.cat(rows, -1)  # (B, Q, features)
        if config.shuffle and self.training:
            features = shuffle_rows(features, query.mask)
        return Output(self.combine(features), parts)


def shuffle_rows(rows: Tensor, mask: Tensor) -> Tensor:
    """The rows (B, Q, F) of real words in random order, another for each query; padding stays
    behind them."""
    keys = torch.rand_like(mask).masked_fill(mask == 0, 2.0)  # (B, Q)
    order = keys.argsort(dim=1, stable=True)[..., None]  # (B, Q, 1)
    return rows.gather(1, order.expand_as(rows))
