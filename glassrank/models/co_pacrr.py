"""CO-PACRR: PACRR that looks at where a match stands and at what surrounds it.

K. Hui, A. Yates, K. Berberich, G. de Melo, "Co-PACRR: A Context-Aware Neural IR Model for Ad-hoc
Retrieval", WSDM 2018. Three additions: beside each chosen match, how much the words around it are
about the query (the same word may mean something else there); the best matches of the document's
first quarter, half and three quarters, too; and query words in a random order while training, so
that the dense layers do not learn what stands where in the training queries.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.models.contract import Output, WordRanker, Words, WordTable
from glassrank.models.pacrr import PACRRConfig, cut, fill, with_idf_shares
from glassrank.nn.match import NGrams, RowsToScore, k_max, match_matrix, ngram_name, pair_mask, unit


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

    @classmethod
    def tk_authors(cls, query_length: int = 30, doc_length: int = 200) -> Self:
        """As TK's authors ran it: context looks ahead only, and nothing is shuffled, since the
        shuffled tensor is left unused."""
        same = super().tk_authors(query_length, doc_length)
        return replace(same, words_before=0, words_after=5, shuffle=False)

    @property
    def ends(self) -> list[int]:
        """How many of the document's first words each part of the cascade sees."""
        return [max(1, int(self.doc_length * part)) for part in self.cascade]


class CoPACRR(WordRanker):
    """PACRR with context, a cascade, and query words in random order."""

    name = "co_pacrr"
    config_type = CoPACRRConfig
    config: CoPACRRConfig

    def __init__(self, config: CoPACRRConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.ngrams = NGrams(
            config.ngrams, config.filters, centred=config.centred, relu=config.relu
        )
        features = config.idf + config.ngrams * len(config.cascade) * config.k * 2
        self.combine = RowsToScore(
            config.query_length, features, config.hidden, last_bias=config.last_bias
        )

    def query_words(self, words: Words) -> Words:
        """(B, Q, 2, E): each word's unit vector, and the whole query's; idf shares as in PACRR."""
        words = with_idf_shares(cut(words, self.config.query_length))
        # The sum has the direction of the mean, and only directions count.
        whole = self._visible(words).sum(1, keepdim=True).expand_as(words.vectors)  # (B, Q, E)
        return words.with_vectors(unit(torch.stack([words.vectors, whole], 2)))

    def doc_words(self, words: Words) -> Words:
        """(B, D, 2, E): each word's unit vector, and that of its surroundings."""
        words = cut(words, self.config.doc_length)
        before, after = self.config.words_before, self.config.words_after
        channels = functional.pad(self._visible(words).transpose(1, 2), (before, after))
        around = functional.avg_pool1d(channels, before + 1 + after, stride=1)  # (B, E, D)
        return words.with_vectors(unit(torch.stack([words.vectors, around.transpose(1, 2)], 2)))

    def _visible(self, words: Words) -> Tensor:
        vectors: Tensor = words.vectors
        return vectors * words.mask[..., None] if self.config.use_masking else vectors

    def interact(self, query: Words, doc: Words) -> Output:
        """Parts as PACRR's, with values and places (B, Q, 4 k) one part of the cascade after the
        other, the context (B, D) and its values at the chosen places."""
        config = self.config
        if not config.use_masking:
            query = fill(query, config.query_length)
            doc = fill(doc, config.doc_length)
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
            features = shuffled(features, query.mask)
        return Output(self.combine(features), parts)


def shuffled(rows: Tensor, mask: Tensor) -> Tensor:
    """The rows (B, Q, F) of real words in random order, another for each query; padding stays
    behind them."""
    keys = torch.rand_like(mask).masked_fill(mask == 0, 2.0)  # (B, Q)
    order = keys.argsort(dim=1, stable=True)[..., None]  # (B, Q, 1)
    return rows.gather(1, order.expand_as(rows))
