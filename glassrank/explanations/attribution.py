"""The input of an explainer, a function for one family of models, and its output. Texts, notes and
the first stage's share are added for all models alike.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline
from glassrank.explanations.structure import (
    Mark,
    Matrix,
    PathShare,
    QueryTerm,
    ScorePart,
    Side,
    Signal,
)
from glassrank.models.model import Output, TokenBatch, TokenEmbeddings, no_gradients, to_array

Values = NDArray[np.float64]


def to_float64(values: Any) -> Values:
    """Copies a tensor or an array."""
    return to_array(values).astype(np.float64)


@dataclass(frozen=True)
class ScoredPair:
    """One query and one document, encoded and scored by a model: all batches have one row."""

    model: Any
    query_batch: TokenBatch
    doc_batch: TokenBatch
    query_tokens: tuple[str, ...]  # (Q,) those that the model reads
    doc_tokens: tuple[str, ...]  # (D,) those that the model reads
    query: TokenEmbeddings
    doc: TokenEmbeddings
    output: Output
    score: float
    """As ranked: with layers that are rounded for speed it differs a little from `output`."""
    deadline: Deadline = NEVER
    """Checked before each batch that the model has to encode."""

    @classmethod
    def of(
        cls,
        model: Any,
        query_batch: TokenBatch,
        doc_batch: TokenBatch,
        query_tokens: Sequence[str],
        doc_tokens: Sequence[str],
        doc: TokenEmbeddings | None = None,
        query: TokenEmbeddings | None = None,
        deadline: Deadline = NEVER,
    ) -> "ScoredPair":
        """Encodes query and document, unless their embeddings are given."""
        with no_gradients(model):
            doc = model.encode_doc(doc_batch) if doc is None else doc
            query = model.encode_query(query_batch) if query is None else query
            output = model.interact(query, doc)
        # Some models cut texts: their layers have fixed sizes, or a long query leaves no room.
        read = (query_batch, doc_batch) if model.info.single_vector else (query, doc)
        query_count, doc_count = (int(text.mask[0].sum()) for text in read)
        doc_count = min(doc_count, len(doc_tokens))
        if "cut" in output.parts:
            doc_count = max(0, doc_count - int(output.parts["cut"][0]))
        tokens = tuple(query_tokens[:query_count]), tuple(doc_tokens[:doc_count])
        score = output.score.item()
        return cls(model, query_batch, doc_batch, *tokens, query, doc, output, score, deadline)

    @property
    def num_doc_tokens(self) -> int:
        """How many document tokens the model reads."""
        return len(self.doc_tokens)

    def interact_with_gradients(self) -> Output:
        """Calls `interact` again and records gradients."""
        import torch

        with torch.enable_grad():
            query, doc = (
                TokenEmbeddings(
                    tokens.vectors.detach().requires_grad_(),
                    tokens.mask.detach(),
                    tokens.idf.detach().requires_grad_(),
                )
                for tokens in (self.query, self.doc)
            )
            output: Output = self.model.interact(query, doc)
            return output

    def trim_padding(self, matrix: Any) -> Values:
        """(1, Q', D') to (Q, D)."""
        return to_float64(matrix[0, : len(self.query_tokens), : self.num_doc_tokens])


@dataclass(frozen=True)
class Attribution:
    """The explanation of one pair's score."""

    is_additive: bool
    parts: tuple[ScorePart, ...]
    """Of the score of `interact`."""
    signals: tuple[Signal, ...]
    marks: tuple[Mark, ...]  # (D,)
    rest: tuple[ScorePart, ...]
    matrices: tuple[Matrix, ...]
    terms: tuple[QueryTerm, ...] | None = None
    """None: they follow from the parts."""
    notes: tuple[str, ...] = ()


Explainer = Callable[[ScoredPair], Attribution]


def make_part(name: str, total: float, parts: Iterable[float]) -> ScorePart:
    """What is left of a total without these parts."""
    return ScorePart(name, "constant", total - math.fsum(parts))


def make_term_parts(words: Sequence[str], values: Sequence[float]) -> list[ScorePart]:
    """What each query word adds."""
    return [ScorePart(word, "term", values[q], q) for q, word in enumerate(words)]


def make_path(
    name: str, words: Sequence[str], rows: Sequence[Sequence[float]], signals: Sequence[str]
) -> ScorePart:
    """A path, as a sum over query words (rows) and signals (columns)."""
    terms = (
        ScorePart.total(
            word,
            "term",
            (ScorePart(signal, "signal", rows[q][s], s) for s, signal in enumerate(signals)),
            q,
        )
        for q, word in enumerate(words)
    )
    return ScorePart.total(name, "path", terms)


def make_signal(name: str, paths: Mapping[str, float], strength: tuple[float, ...]) -> Signal:
    """A signal that has no center, width or weight."""
    shares = tuple(PathShare(path, None, None, value) for path, value in paths.items())
    return Signal(name, None, None, shares, math.fsum(paths.values()), strength)


def make_marks(
    shares: Any,  # (Q, D, S)
    similarity: Any,  # (Q, D)
    signal: Sequence[int | None],  # (D,)
) -> tuple[Mark, ...]:
    """Marks each document token with its closest query token and its shares."""
    shares, similarity = np.asarray(shares), np.asarray(similarity)
    by_term, by_signal = shares.sum(2).T.tolist(), shares.sum(0).tolist()  # (D, Q), (D, S)
    whole = shares.sum((0, 2)).tolist()  # (D,)
    if not len(similarity):  # a query without words
        return tuple(Mark(None, None, None, share, (), ()) for share in whole)
    nearest, term = similarity.max(0), similarity.argmax(0)
    columns = zip(term.tolist(), signal, nearest.tolist(), whole, strict=True)
    return tuple(
        Mark(*facts, tuple(by_term[word]), tuple(by_signal[word]))
        for word, facts in enumerate(columns)
    )


def to_matrix(
    name: str,
    values: Any,
    rows: Side = "query",
    columns: Side = "document",
    *,
    attention: bool = False,
) -> Matrix:
    """Converts an array (rows, columns)."""
    return Matrix(name, rows, columns, tuple(map(tuple, values.tolist())), attention)


def scale_columns(matrix: Any) -> tuple[float, ...]:
    """The best of each column, divided by the best of all: (Q, D) to D values from 0 to 1."""
    matrix = np.asarray(matrix)
    best = np.maximum(matrix.max(0), 0) if len(matrix) else matrix.sum(0)  # (D,)
    return tuple((best / best.max() if best.any() else best).tolist())


def spread_over_windows(
    shares: Values, before: int, after: int, words: int
) -> tuple[Values, Values]:
    """Divides the shares (Q, P, S) of windows evenly among their words: (Q, words, S); also returns
    the shares of windows without any word: (Q, S).

    The window at place p covers the words from p - `before` to p + `after`.
    """
    places = np.arange(shares.shape[1])
    targets = [places + offset for offset in range(-before, after + 1)]
    inside = [(target >= 0) & (target < words) for target in targets]
    count = np.stack(inside).sum(0)  # (P,)
    portion = shares / np.maximum(count, 1)[:, None]
    divided = np.zeros((shares.shape[0], words, shares.shape[2]))
    for target, real in zip(targets, inside, strict=True):
        divided[:, target[real]] += portion[:, real]  # no word is twice among these
    return divided, shares[:, count == 0].sum(1)
