"""PACRR: the strongest word and phrase matches of each query word, in one dense network.

K. Hui, A. Yates, K. Berberich, G. de Melo, "PACRR: A Position-Aware Neural IR Model for Relevance
Matching", EMNLP 2017. Convolutions over the match matrix find n-grams that match in order; each
query word keeps its k best values per n-gram size, beside its share of the query's idf; dense
layers turn all words' values into the score. They have a place for each query word, so queries
have a fixed longest length.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from glassrank.models.contract import Output, WordRanker, Words, WordTable
from glassrank.nn.match import (
    NGrams,
    RowsToScore,
    k_max,
    masked_softmax,
    match_matrix,
    ngram_name,
    pair_mask,
    unit,
)


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

    @classmethod
    def tk_authors(cls, query_length: int = 30, doc_length: int = 200) -> Self:
        """The baseline as TK's authors ran it; their code leaves idf and masks unused."""
        return cls(
            query_length=query_length,
            doc_length=doc_length,
            k=5,
            hidden=(100, 10),
            last_bias=False,
            centred=False,
            relu=False,
            idf=False,
            use_masking=False,
        )


class PACRR(WordRanker):
    """The k best n-gram matches of each query word, and dense layers over them."""

    name = "pacrr"
    config_type = PACRRConfig
    config: PACRRConfig

    def __init__(self, config: PACRRConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.ngrams = NGrams(
            config.ngrams, config.filters, centred=config.centred, relu=config.relu
        )
        features = config.idf + config.ngrams * config.k
        self.combine = RowsToScore(
            config.query_length, features, config.hidden, last_bias=config.last_bias
        )

    def query_words(self, words: Words) -> Words:
        """Unit vectors; shares of the query's idf in the place of idf."""
        words = with_idf_shares(cut(words, self.config.query_length))
        return words.with_vectors(unit(words.vectors))

    def doc_words(self, words: Words) -> Words:
        words = cut(words, self.config.doc_length)
        return words.with_vectors(unit(words.vectors))

    def interact(self, query: Words, doc: Words) -> Output:
        """Parts: for each n-gram size the matrix (B, Q, D) from which the best are chosen, the
        chosen values (B, Q, k) and their places in the document, -1 for none."""
        config = self.config
        if not config.use_masking:
            query = fill(query, config.query_length)
            doc = fill(doc, config.doc_length)
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


def cut(words: Words, length: int) -> Words:
    """The first words: layer sizes or positions depend on a longest length."""
    return Words(*(tensor[:, :length] for tensor in words))


def fill(words: Words, length: int) -> Words:
    """Padded up to a fixed length, and all of it, padding too, taken for words."""

    def longer(tensor: Tensor) -> Tensor:
        missing = length - tensor.shape[1]
        return torch.cat([tensor, tensor.new_zeros(len(tensor), missing, *tensor.shape[2:])], 1)

    vectors, mask, idf = map(longer, words)
    return Words(vectors, torch.ones_like(mask), idf)


def with_idf_shares(words: Words) -> Words:
    """A softmax over the query's real words, which needs the query alone."""
    return Words(words.vectors, words.mask, masked_softmax(words.idf, words.mask))
