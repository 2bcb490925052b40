"""What the explanations of transformers have in common: query words left out one by one, and what
attention says of the pieces of words."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from glassrank.explain.cases import Case, Findings
from glassrank.explain.leave_one_out import (
    Units,
    left_out_signal,
    lost_without_doc_words,
    lost_without_query_words,
    stand_out,
)
from glassrank.explain.structure import Mark, Part, Term
from glassrank.explain.whole_words import in_runs, shared_evenly, whole_words

APPROXIMATE = (
    "Approximate: a word's value is what the score loses without it, in either text; pieces of a "
    "word share evenly, and what words do together is a part of its own."
)
MOST_TEXTS = 64
"""Each is as much work as ranking one document."""


def explain_left_out_words(case: Case) -> Findings:
    """For a model that keeps no pieces apart, as one of single vectors: texts without a word."""
    runs = in_runs(whole_words(case.doc_words), MOST_TEXTS)
    shares = shared_evenly(lost_without_doc_words(case, runs), runs, case.doc_count)
    parts = query_parts(case)
    nowhere = torch.zeros(len(case.query_words), case.doc_count)
    return Findings(
        exact=False,
        parts=parts,
        signals=(left_out_signal(shares),),
        marks=piece_marks(case, runs, [shares], nowhere),
        rest=(together(case, shares),),
        matrices=(),
        terms=terms_of(parts),
        notes=(APPROXIMATE,),
    )


def query_parts(case: Case) -> tuple[Part, ...]:
    """The score as a sum over the query's pieces, without [CLS] and [SEP], which cannot be left
    out, and what they do together."""
    words = whole_words(case.query_words)
    lost = lost_without_query_words(case, words)
    shares = shared_evenly(lost, words, len(case.query_words))
    terms = [
        Part(case.query_words[place], "term", shares[place], place)
        for word in words
        for place in word
    ]
    return (*terms, together(case, [term.value for term in terms]))


def terms_of(parts: Sequence[Part]) -> tuple[Term, ...]:
    return tuple(Term(p.number, p.value, {}) for p in parts if p.number is not None)


def together(case: Case, shares: Sequence[float]) -> Part:
    return Part("together", "constant", case.score - math.fsum(shares))


def piece_marks(
    case: Case,
    units: Units,
    by_signal: Sequence[Sequence[float]],  # (S, D)
    attention: Tensor,  # (Q, D)
) -> tuple[Mark, ...]:
    """A piece is coloured by the signal that adds most to it, where its word stands out. Attention
    is no similarity: it only says which query piece looks at it most."""
    shares = [math.fsum(values) for values in zip(*by_signal, strict=True)]  # (D,)
    whole = [math.fsum(shares[place] for place in unit) for unit in units]
    chosen = zip(units, stand_out(whole), strict=True)
    coloured = {place for unit, stands_out in chosen if stands_out for place in unit}
    terms = _closest(case, attention)
    return tuple(
        Mark(
            terms[place],
            max(range(len(own)), key=own.__getitem__) if place in coloured else None,
            None,
            shares[place],
            (),
            own,
        )
        for place, own in enumerate(zip(*by_signal, strict=True))
    )


def _closest(case: Case, attention: Tensor) -> list[int | None]:
    """Of each document piece the query piece that looks at it most. [CLS] and [SEP], which look at
    everything and are looked at by everyone, are left out on both sides."""
    rows = _own_places(case.query_words)
    found: list[int | None] = [None] * case.doc_count
    for place in _own_places(case.doc_words) if rows else ():
        found[place] = rows[int(attention[rows, place].argmax())]
    return found


def shades_of_pieces(weights: Tensor, pieces: Sequence[str]) -> tuple[float, ...]:
    """Weights (D,) as parts of the largest that a piece of the text has: [CLS] and [SEP] would
    leave all others pale."""
    places = _own_places(pieces)
    largest = weights[places].max() if places else torch.tensor(0.0)
    return tuple((weights / largest if largest > 0 else weights).clamp(0, 1).tolist())


def _own_places(pieces: Sequence[str]) -> list[int]:
    return [place for word in whole_words(pieces) for place in word]
