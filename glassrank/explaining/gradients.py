"""MatchPyramid and DUET: how the score leans on the match matrix, near this one document.

MatchPyramid reads the matrix as a picture: the score's slope at each cell, times the similarity
there, says what the cell is worth. DUET adds up two halves before its last layers, which are linear
near any one input; its match matrix may be of zeros and ones, which have no slope, so that words
are left out one by one instead.
"""

import math

import torch

from glassrank.explaining.cases import Case, Findings, as_matrix, marks_of, shades
from glassrank.explaining.leave_one_out import (
    left_out_marks,
    left_out_signal,
    lost_without_doc_words,
    lost_without_query_words,
)
from glassrank.explaining.structure import PathShare, QueryTerm, ScorePart, Signal

PYRAMID = "Approximate: each value is the score's slope at a similarity times the similarity."
DUET = (
    "Approximate: the halves are the score's slopes at their sums times these; the value of a word "
    "is what the score loses without it."
)


def explain_pyramid(case: Case) -> Findings:
    """By the score's slope at each cell of the match matrix."""
    out = case.with_gradients()
    (slope,) = torch.autograd.grad(out.score.sum(), out.parts["similarity"])
    similarity = case.words_alone(out.parts["similarity"])  # (Q, D)
    shares = case.words_alone(slope) * similarity  # (Q, D)
    patterns = case.words_alone(out.parts["patterns"])  # (Q, D)
    values = shares.sum(1).tolist()
    tree = ScorePart.total(
        "patterns",
        "path",
        (ScorePart(term, "term", values[q], q) for q, term in enumerate(case.query_words)),
    )
    constant = ScorePart("constant", "constant", out.score.item() - tree.value)
    signal = Signal(
        "patterns",
        None,
        None,
        (PathShare("patterns", None, None, tree.value),),
        tree.value,
        shades(patterns),
    )
    marked = [0 if any(column) else None for column in shares.T.tolist()]
    return Findings(
        exact=False,
        parts=(tree, constant),
        signals=(signal,),
        marks=marks_of(shares[..., None], similarity, marked),
        rest=(constant,),
        matrices=(as_matrix("similarity", similarity), as_matrix("patterns", patterns)),
        notes=(PYRAMID,),
    )


def explain_duet(case: Case) -> Findings:
    """By slopes at the two halves, and by leaving words out."""
    out = case.with_gradients()
    halves = [out.parts["local"], out.parts["distributed"]]
    slopes = torch.autograd.grad(out.score.sum(), halves)
    parts = [
        ScorePart(name, "path", (slope * half).sum().item())
        for name, slope, half in zip(("local", "distributed"), slopes, halves, strict=True)
    ]
    score = out.score.item()
    parts.append(ScorePart("constant", "constant", score - math.fsum(part.value for part in parts)))
    words = lost_without_doc_words(case)
    similarity = case.words_alone(out.parts["similarity"])
    weighted = case.words_alone(out.parts["weighted"])
    return Findings(
        exact=False,
        parts=tuple(parts),
        signals=(left_out_signal(words),),
        marks=left_out_marks(words, similarity),
        rest=(ScorePart("together", "constant", score - math.fsum(words)),),
        matrices=(as_matrix("similarity", similarity), as_matrix("weighted by idf", weighted)),
        terms=tuple(
            QueryTerm(q, value, {}) for q, value in enumerate(lost_without_query_words(case))
        ),
        notes=(DUET,),
    )
