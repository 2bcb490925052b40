"""Explains any model that declares its summands, such as MaxSim, or one of another package. A
document word's share is what the parts lose if the word is masked, while the others keep their
vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    Values,
    make_marks,
    make_part,
    make_signal,
    make_term_parts,
    scale_columns,
    to_float64,
    to_matrix,
)
from glassrank.explanations.leave_one_out import TOGETHER, select_salient
from glassrank.explanations.structure import ScorePart
from glassrank.models.model import Output, no_gradients

_CELLS_AT_ONCE = 1 << 16
"""Query words times document words that `interact` compares in one call."""


def explain_summands(pair: ScoredPair) -> Attribution:
    """Sums the parts that the model declares as its summands."""
    names = pair.model.info.summands
    totals = _split_by_word(pair, pair.output)[:, 0]  # (S, Q + 1)
    shares = _ablate_masked(pair)  # (S, Q + 1, D)
    words = len(pair.query_tokens)
    similarity = pair.output.parts.get("similarity")
    matrix = None if similarity is None else pair.trim_padding(similarity)  # (Q, D)
    parts = tuple(_make_path(name, totals[s], pair) for s, name in enumerate(names))
    by_query_word = shares[:, :words].transpose(1, 2, 0)  # (Q, D, S)
    lost = shares.sum((0, 1)).tolist()  # (D,)
    marks = make_marks(
        by_query_word,
        np.zeros((words, pair.num_doc_tokens)) if matrix is None else matrix,
        _choose_signals(shares, matrix, lost),
    )
    if matrix is None:  # the closest query word is unknown
        marks = tuple(replace(mark, term=None, similarity=None) for mark in marks)
    if shares[:, words].any():  # some of it is not by query word
        by_summand = shares.sum(1).T.tolist()  # (D, S)
        marks = tuple(
            replace(mark, share=lost[d], by_term=(), by_signal=tuple(by_summand[d]))
            for d, mark in enumerate(marks)
        )
    strength = scale_columns(np.array([lost]) if matrix is None else matrix)
    total = math.fsum(part.value for part in parts)
    return Attribution(
        is_additive=True,
        parts=parts,
        signals=tuple(make_signal(p.name, {p.name: p.value}, strength) for p in parts),
        marks=marks,
        rest=(make_part(TOGETHER, total, (mark.share for mark in marks)),),
        matrices=() if matrix is None else (to_matrix("similarity", matrix),),
    )


def _make_path(name: str, values: Values, pair: ScoredPair) -> ScorePart:
    """A summand (Q + 1,) as a part: its query words, or itself where it has none."""
    *by_word, other = values.tolist()
    terms = make_term_parts(pair.query_tokens, by_word)
    if other:
        return ScorePart.total(name, "path", [*terms, ScorePart(name, "constant", other)])
    return ScorePart.total(name, "path", terms)


def _split_by_word(pair: ScoredPair, out: Output) -> Values:
    """(S, B, Q + 1): each summand by query word; last, what is not by query word."""
    words, padded = len(pair.query_tokens), pair.query.mask.shape[1]
    rows = []
    for name in pair.model.info.summands:
        part = to_float64(out.parts[name])
        if part.ndim > 1 and part.shape[1] == padded:
            values = part.reshape(len(part), padded, -1).sum(2)  # (B, Q')
        else:
            values = np.hstack([np.zeros((len(part), words)), part.reshape(len(part), -1)])
        rows.append(np.hstack([values[:, :words], values[:, words:].sum(1, keepdims=True)]))
    return np.stack(rows)


def _ablate_masked(pair: ScoredPair) -> Values:
    """What each summand and query word loses without each document word: (S, Q + 1, D)."""
    whole = _split_by_word(pair, pair.output)  # (S, 1, Q + 1)
    step = max(1, _CELLS_AT_ONCE // max(1, pair.query.mask.shape[1] * pair.doc.mask.shape[1]))
    lost = [whole[:, :0]]
    for start in range(0, pair.num_doc_tokens, step):
        pair.deadline.check("this explanation")
        places = list(range(start, min(start + step, pair.num_doc_tokens)))
        docs = pair.doc.rows([0] * len(places))  # copies
        docs.mask[list(range(len(places))), places] = 0
        query = pair.model.expand(pair.query, len(places))
        with no_gradients(pair.model):
            left = pair.model.interact(query, docs)
        lost.append(whole - _split_by_word(pair, left))
    return np.concatenate(lost, axis=1).transpose(0, 2, 1)


def _choose_signals(
    shares: Values, similarity: Values | None, lost: Sequence[float]
) -> list[int | None]:
    """The summand that each word adds most to, if it is close to a query word or salient."""
    most = shares.sum(1).argmax(0).tolist()  # (D,)
    chosen = select_salient(lost)
    if similarity is not None:
        matched = set(similarity.argmax(1).tolist()) if similarity.size else set()
        chosen = [place in matched for place in range(len(lost))]
    return [number if coloured else None for number, coloured in zip(most, chosen, strict=True)]
