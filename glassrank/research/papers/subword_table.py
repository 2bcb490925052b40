"""Word vectors that are made of character n-grams.

A word is the mean of its own vector and those of its letters' n-grams.
P. Bojanowski, E. Grave, A. Joulin, T. Mikolov, "Enriching Word Vectors with Subword Information",
TACL 2017; as in run TUW19-p2 of S. Hofstätter, M. Zlabinger, A. Hanbury, "TU Wien @ TREC Deep
Learning '19", training goes on with the n-grams' vectors, and no word is without one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.models.model import TokenBatch, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable

UNKNOWN = 1
_LONGEST_NGRAM = 100


class SubwordTable(EmbeddingTable):
    """A `EmbeddingTable` whose rows are shared by words.

    `table` (R, E) begins with a row for each of V word ids, id 0 being padding, and ends with one
    for each bucket of n-grams. Word i is the mean of `rows[offsets[i]:offsets[i + 1]]`, and zero if
    there are none. `ngrams` says how unseen words are split: how many buckets there are, and the
    letters of the shortest and longest n-gram.
    """

    offsets: Tensor
    rows: Tensor
    ngrams: Tensor
    more_offsets: Tensor
    more_rows: Tensor
    has_buckets = False
    has_ngrams = True

    def __init__(
        self,
        table: Tensor,  # (R, E)
        offsets: Tensor,  # (V + 1,)
        rows: Tensor,
        ngrams: Tensor,  # (3,)
        idf: Tensor | None = None,  # (V,)
        *,
        trained: bool = True,
    ) -> None:
        super().__init__(
            table, torch.ones(len(offsets) - 1) if idf is None else idf, trained=trained
        )
        self.register_buffer("offsets", offsets.long())
        self.register_buffer("rows", rows.long())
        self.register_buffer("ngrams", ngrams.long())
        # Words that were not there in training: see `extend`.
        self.unseen = 0
        self.ids_of_unseen: dict[str, int] = {}
        for name in ("more_offsets", "more_rows"):
            empty = torch.zeros(2, dtype=torch.long, device="cpu")
            self.register_buffer(name, empty, persistent=False)

    def check(self) -> None:
        """Whether every word's rows are in the table, as look-ups take for granted."""
        offsets, rows = self.offsets, self.rows
        buckets, shortest, longest = self.ngrams.tolist()
        table = len(self.embedding.weight)
        if (
            len(offsets) < 2
            or offsets[0] != 0
            or offsets[-1] != len(rows)
            or (offsets.diff() < 0).any()
            or (len(rows) and not (rows.min() >= 0 and rows.max() < table))
            or not 0 <= buckets <= table
            or not 1 <= shortest <= longest <= _LONGEST_NGRAM
        ):
            raise InputError("its n-grams do not belong to its words; save the model again")

    def forward(self, batch: TokenBatch) -> TokenEmbeddings:
        # Each word once: a text repeats its words, and each has dozens of rows.
        ids, places = torch.unique(batch.ids.long(), return_inverse=True)  # (U,), (B, L)
        vectors = functional.embedding(places, self._means(ids))  # (B, L, E)
        return TokenEmbeddings(vectors, batch.mask, self._idf(ids)[places] * batch.mask)

    def _idf(self, ids: Tensor) -> Tensor:
        """(U,). An unseen word is as rare as the rarest there is."""
        known = len(self.idf)
        return torch.where(ids < known, self.idf[ids.clamp(max=known - 1)], self.idf.max())

    def _means(self, ids: Tensor) -> Tensor:
        """(U,) to (U, E)."""
        offsets, rows, known = self.offsets, self.rows, len(self.offsets) - 1
        seen = ids < known  # (U,)
        unseen = (ids - known).clamp(min=0)
        first, end = (
            torch.where(
                seen,
                offsets[ids.clamp(max=known - 1) + next_],
                len(rows) + self.more_offsets[unseen + next_],
            )
            for next_ in (0, 1)
        )  # (U,)
        sizes = end - first
        begins = sizes.cumsum(0) - sizes  # (U,)
        places = torch.arange(int(sizes.sum()), device=ids.device)
        places = places + (first - begins).repeat_interleave(sizes, output_size=len(places))
        bags = torch.where(
            places < len(rows),
            rows[places.clamp(max=len(rows) - 1)],
            self.more_rows[(places - len(rows)).clamp(min=0)],
        )
        return functional.embedding_bag(
            bags, self.embedding.weight, begins, mode="mean", sparse=self.embedding.sparse
        )

    def extend(self, words: Sequence[str]) -> range:
        """Ids, after those there are, for words that the vocabulary lacks: the means of their
        n-grams as training left them. Nothing that is saved, or that a fingerprint is made of,
        changes; only one thread at a time may call it, while others look words up."""
        from glassrank.research.papers.word_vectors import ngram_hashes

        buckets, shortest, longest = self.ngrams.tolist()
        begin = len(self.embedding.weight) - buckets
        bags = [
            [begin + value % buckets for value in ngram_hashes(word, shortest, longest) if buckets]
            or [UNKNOWN]  # too short for n-grams: the vector that unknown words share
            for word in words
        ]
        there, rows = self.unseen, int(self.more_offsets[self.unseen])
        ends = rows + torch.tensor([len(bag) for bag in bags], dtype=torch.long).cumsum(0)
        added = torch.tensor([row for bag in bags for row in bag], dtype=torch.long)
        # Room is doubled: whoever reads meanwhile keeps the old one, which has all that it knows.
        self.more_rows = _with_room(self.more_rows, rows + len(added))
        self.more_offsets = _with_room(self.more_offsets, there + len(bags) + 1)
        self.more_rows[rows : rows + len(added)] = added.to(self.more_rows.device)
        self.more_offsets[there + 1 : there + 1 + len(bags)] = ends.to(self.more_offsets.device)
        self.unseen = there + len(bags)
        known = len(self.offsets) - 1
        return range(known + there, known + self.unseen)


def _with_room(values: Tensor, size: int) -> Tensor:
    """(N,), with at least one place behind `size`; those that are new are zero."""
    if size < len(values):
        return values
    return torch.cat([values, values.new_zeros(max(len(values), size + 1 - len(values)))])
