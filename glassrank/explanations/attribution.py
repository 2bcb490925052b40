"""The input of an explainer (`ScoredPair`) and its output (`Attribution`).

An explainer is a function for one family of models. It explains the score of `interact`; texts,
notes and the first stage's share are added for all models alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline
from glassrank.explanations.structure import Mark, Matrix, QueryTerm, ScorePart, Side, Signal
from glassrank.models.model import Output, TokenBatch, TokenEmbeddings, no_gradients, to_array

Values = NDArray[np.float64]


def to_float64(values: Any) -> Values:
    """A tensor's numbers, or an array's, in 64 bits."""
    return to_array(values).astype(np.float64)


@dataclass(frozen=True)
class ScoredPair:
    """One query, one document, and what the model makes of them: all batches are of one."""

    model: Any
    query_batch: TokenBatch
    doc_batch: TokenBatch
    query_tokens: tuple[str, ...]  # (Q,) those that the model reads
    doc_tokens: tuple[str, ...]  # (D,) the same
    query: TokenEmbeddings
    doc: TokenEmbeddings
    output: Output
    score: float
    """As ranked: where a transformer's layers are rounded for speed, not quite `output`'s."""
    deadline: Deadline = NEVER
    """Looked at before each batch of texts that the model reads anew."""

    @classmethod
    def of(
        cls,
        model: Any,
        query: TokenBatch,
        doc: TokenBatch,
        query_tokens: Sequence[str],
        doc_tokens: Sequence[str],
        encoded_doc: TokenEmbeddings | None = None,
        encoded_query: TokenEmbeddings | None = None,
        deadline: Deadline = NEVER,
    ) -> "ScoredPair":
        """Both as they were ranked, if that is not what `encode_doc` and `encode_query` give."""
        with no_gradients(model):
            own_doc = model.encode_doc(doc) if encoded_doc is None else encoded_doc
            own_query = model.encode_query(query) if encoded_query is None else encoded_query
            encoded = own_query, own_doc
            output = model.interact(*encoded)
        # Some models cut texts by themselves: their layers have fixed sizes, or a document has no
        # room beside a long query.
        read = (query, doc) if model.info.single_vector else encoded
        query_count, num_doc_tokens = (int(words.mask[0].sum()) for words in read)
        read_query, own_doc_words = (
            tuple(query_tokens[:query_count]),
            tuple(doc_tokens[:num_doc_tokens]),
        )
        if "cut" in output.parts:
            left = len(own_doc_words) - int(output.parts["cut"][0])
            own_doc_words = own_doc_words[: max(0, left)]
        return cls(
            model,
            query,
            doc,
            read_query,
            own_doc_words,
            *encoded,
            output,
            output.score.item(),
            deadline,
        )

    def check_deadline(self) -> None:
        """Raises a LateError when the deadline has passed."""
        self.deadline.check("this explanation")

    @property
    def num_doc_tokens(self) -> int:
        """How many document words the model reads."""
        return len(self.doc_tokens)

    def interact_with_gradients(self) -> Output:
        """`interact` once more, so that gradients of the score can be asked for."""
        import torch

        with torch.enable_grad():
            query, doc = (
                TokenEmbeddings(
                    words.vectors.detach().requires_grad_(),
                    words.mask.detach(),
                    words.idf.detach().requires_grad_(),
                )
                for words in (self.query, self.doc)
            )
            output: Output = self.model.interact(query, doc)
            return output

    def trim_padding(self, matrix: Any) -> Values:
        """(1, Q', D') without padding, in 64 bits: (Q, D)."""
        return to_float64(matrix[0, : len(self.query_tokens), : self.num_doc_tokens])


@dataclass(frozen=True)
class Attribution:
    """What an explainer has found of one case."""

    is_additive: bool
    parts: tuple[ScorePart, ...]
    """Of `interact`'s score."""
    signals: tuple[Signal, ...]
    marks: tuple[Mark, ...]  # (D,)
    rest: tuple[ScorePart, ...]
    matrices: tuple[Matrix, ...]
    terms: tuple[QueryTerm, ...] | None = None
    """None: they can be read off the parts."""
    notes: tuple[str, ...] = ()


Explainer = Callable[[ScoredPair], Attribution]


def make_marks(
    shares: Any,  # (Q, D, S)
    similarity: Any,  # (Q, D)
    signal: Sequence[int | None],  # (D,)
) -> tuple[Mark, ...]:
    """Each document word's mark: the closest query word by similarity, and all its shares."""
    shares, similarity = np.asarray(shares), np.asarray(similarity)
    by_term, by_signal = shares.sum(2).T.tolist(), shares.sum(0).tolist()  # (D, Q), (D, S)
    whole = shares.sum((0, 2)).tolist()  # (D,)
    if not len(similarity):  # a query without words
        return tuple(Mark(None, None, None, share, (), ()) for share in whole)
    nearest, term = similarity.max(0), similarity.argmax(0)
    described = zip(term.tolist(), signal, nearest.tolist(), whole, strict=True)
    return tuple(
        Mark(*facts, tuple(by_term[word]), tuple(by_signal[word]))
        for word, facts in enumerate(described)
    )


def to_matrix(
    name: str,
    values: Any,
    rows: Side = "query",
    columns: Side = "document",
    *,
    attention: bool = False,
) -> Matrix:
    """Values (rows, columns) as plain numbers."""
    return Matrix(name, rows, columns, tuple(map(tuple, values.tolist())), attention)


def scale_columns(matrix: Any) -> tuple[float, ...]:
    """The best of each column, as a part of the best of all: (Q, D) to D values from 0 to 1."""
    matrix = np.asarray(matrix)
    best = np.maximum(matrix.max(0), 0) if len(matrix) else matrix.sum(0)  # (D,)
    return tuple((best / best.max() if best.any() else best).tolist())


def spread_over_windows(
    shares: Values, before: int, after: int, words: int
) -> tuple[Values, Values]:
    """Shares (Q, P, S) of windows, given to their words in equal parts: (Q, words, S), and what
    belongs to windows without any word: (Q, S).

    The window at place p covers the words from p - `before` to p + `after`.
    """
    places = np.arange(shares.shape[1])
    targets = [places + offset for offset in range(-before, after + 1)]
    inside = [(target >= 0) & (target < words) for target in targets]
    count = np.stack(inside).sum(0)  # (P,)
    portion = shares / np.maximum(count, 1)[:, None]
    given = np.zeros((shares.shape[0], words, shares.shape[2]))
    for target, real in zip(targets, inside, strict=True):
        given[:, target[real]] += portion[:, real]  # no word is twice among these
    return given, shares[:, count == 0].sum(1)
