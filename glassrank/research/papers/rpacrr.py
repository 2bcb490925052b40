"""RPACRR: PACRR made again, and what might replace its bottlenecks.

J. Lages, J. P. Carvalho, "Relevance Ranking for Web Search". Dropout is added and idf left out.
Each further change is a flag: 1x1 convolutions in the place of the maximum over filters; row-wise
attention in the place of k-max pooling; one more match matrix, of phrases; and learned channels in
the place of cosines. RPACRRF, the final model, has the first of them.

The authors add an L2 penalty of 0.01 on all weight matrices; that is for the training to do.
"""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.match import match_matrix, ngram_name, pair_mask, unit
from glassrank.models.model import ModelInfo, Output, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker
from glassrank.research.papers.ngrams import (
    NGrams,
    RowsToScore,
    glorot,
    k_max,
    masked_softmax,
    window_padding,
)
from glassrank.research.papers.pacrr import cut, fill, share_idf


@dataclass(frozen=True)
class RPACRRConfig:
    """Sizes are those that the paper's counts of weights imply."""

    size: int = 300
    query_length: int = 16
    doc_length: int = 800
    ngrams: int = 3
    filters: int = 32
    k: int = 3
    hidden: tuple[int, ...] = (32, 16)
    dropout: float = 0.35
    """After the pooled n-gram matrices and the hidden layers; none for unigrams."""
    idf: bool = False
    use_masking: bool = True
    """False: padding up to the fixed lengths takes part, as in the paper: its similarity of 0 wins
    over negative ones, and attention falls on it."""

    one_by_one: bool = False
    """1x1conv: learned pooling of the filters."""

    row_attention: bool = False
    """rSAtt: each row's weighted average in the place of its k best values."""
    attention_size: int = 32
    attention_dropout: float = 0.1

    phrases: bool = False
    """1Dconv: a further match matrix, of words as a convolution over their neighbours has them."""
    phrase_words: int = 2
    phrase_size: int = 16
    phrase_dropout: float = 0.2

    channels: bool = False
    """3DSAtt: sums of projected word vectors in the place of cosines."""
    channel_count: int = 20
    channel_dropout: float = 0.2


class RPACRR(WordRanker):
    """PACRR with dropout, and what its config switches on."""

    info = ModelInfo("rpacrr", RPACRRConfig)
    config: RPACRRConfig

    def __init__(self, config: RPACRRConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.ngrams = NGrams(
            config.ngrams,
            config.filters,
            config.channel_count if config.channels else 1,
            learned_pooling=config.one_by_one,
        )
        self.ngrams.apply(_he)
        self.dropout = nn.Dropout(config.dropout)
        if config.channels:
            self.projection = nn.Linear(config.size, config.channel_count)
            self.channel_dropout = nn.Dropout(config.channel_dropout)
            glorot(self.projection)
        if config.phrases:
            self.phrase = nn.Conv1d(config.size, config.phrase_size, config.phrase_words)
            self.phrase_dropout = nn.Dropout(config.phrase_dropout)
            _he(self.phrase)
        if config.row_attention:
            self.attend_query = nn.Linear(config.size, config.attention_size, bias=False)
            self.attend_doc = nn.Linear(config.size, config.attention_size, bias=False)
            bound = (6 / (config.attention_size + 1)) ** 0.5  # Glorot's, of a vector
            self.attend = nn.Parameter(torch.empty(config.attention_size).uniform_(-bound, bound))
            self.attention_dropout = nn.Dropout(config.attention_dropout)
            glorot(self.attend_query)
            glorot(self.attend_doc)
        self.columns = _columns(config)
        matrices = config.ngrams + config.phrases
        features = config.idf + matrices * (1 if config.row_attention else config.k)
        self.combine = RowsToScore(
            config.query_length, features, config.hidden, dropout=config.dropout
        )

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit vectors or channels, phrases, attention: (B, Q, sum of parts); idf shares."""
        words = share_idf(cut(words, self.config.query_length))
        return self._encode(words, self.attend_query if self.config.row_attention else None)

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """The same of documents; only attention has weights of its own for either side."""
        words = cut(words, self.config.doc_length)
        return self._encode(words, self.attend_doc if self.config.row_attention else None)

    def _encode(self, words: TokenEmbeddings, attend: nn.Module | None) -> TokenEmbeddings:
        vectors = words.vectors * words.mask[..., None]  # (B, L, E)
        if self.config.channels:
            encoded = [self.channel_dropout(self.projection(vectors))]  # (B, L, C)
        else:
            encoded = [unit(vectors)]
        if self.config.phrases:
            sides = window_padding(self.config.phrase_words, centred=True)
            near = self.phrase(functional.pad(vectors.transpose(1, 2), sides))  # (B, P, L)
            encoded.append(unit(self.phrase_dropout(torch.relu(near)).transpose(1, 2)))
        if attend is not None:
            encoded.append(attend(vectors))
        # Padding stays zero, so that it need not be stored even where it is not masked later.
        return words.with_vectors(torch.cat(encoded, -1) * words.mask[..., None])

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        """Parts: for each n-gram size, and "phrase", the matrix (B, Q, D) that is pooled and its
        values (B, Q, k), with their places, -1 for none; or (B, Q, 1) and the attention."""
        config = self.config
        if not config.use_masking:
            query, doc = fill(query, config.query_length), fill(doc, config.doc_length)
        mask = pair_mask(query.mask, doc.mask)  # (B, Q, D)
        parts = self._matrices(query, doc, mask)
        rows = [query.idf[..., None]] if config.idf else []  # each (B, Q, features)
        if config.row_attention:
            attention = self._attention(query, doc, mask)
        for name, matrix in list(parts.items()):
            if config.row_attention:
                values = (attention * matrix).sum(-1, keepdim=True)  # (B, Q, 1)
                values = self.attention_dropout(values)
            else:
                values, parts[f"{name}_places"] = k_max(matrix, config.k, mask)  # (B, Q, k)
            parts[f"{name}_values"] = values
            rows.append(values)
        if config.row_attention:
            parts["attention"] = attention
        parts["idf"] = query.idf
        return Output(self.combine(torch.cat(rows, -1)), parts)

    def _matrices(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, mask: Tensor
    ) -> dict[str, Tensor]:
        """Matrices (B, Q, D) by name; all that pooling chooses from."""

        def cosines(part: str) -> Tensor:
            vectors = query.vectors[..., self.columns[part]], doc.vectors[..., self.columns[part]]
            return match_matrix(*vectors, query.mask, doc.mask)  # (B, Q, D)

        if self.config.channels:
            part = self.columns["channels"]
            sums = query.vectors[:, :, None, part] + doc.vectors[:, None, :, part]
            matrix = (sums * mask[..., None]).permute(0, 3, 1, 2)  # (B, C, Q, D)
        else:
            matrix = cosines("words")[:, None]  # (B, 1, Q, D)
        matrices = {ngram_name(1): matrix.amax(1)}
        for name, pooled in self.ngrams(matrix).items():
            matrices[name] = self.dropout(pooled)
        if self.config.phrases:
            matrices["phrase"] = cosines("phrase")
        return matrices

    def _attention(self, query: TokenEmbeddings, doc: TokenEmbeddings, mask: Tensor) -> Tensor:
        """Shares (B, Q, D) that add up to 1 over the document, the same for all matrices."""
        part = self.columns["attention"]
        sums = query.vectors[:, :, None, part] + doc.vectors[:, None, :, part]  # (B, Q, D, A)
        return masked_softmax(torch.tanh(sums) @ self.attend, mask)


def _columns(config: RPACRRConfig) -> dict[str, slice]:
    """The columns of each part of a word's encoded vector."""
    sizes = {"channels": config.channel_count} if config.channels else {"words": config.size}
    if config.phrases:
        sizes["phrase"] = config.phrase_size
    if config.row_attention:
        sizes["attention"] = config.attention_size
    ends = accumulate(sizes.values())
    return {name: slice(end - sizes[name], end) for name, end in zip(sizes, ends, strict=True)}


def _he(module: nn.Module) -> None:
    """The authors' start for convolutions; the small bias keeps their ReLUs alive."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.constant_(module.bias, 0.01)
