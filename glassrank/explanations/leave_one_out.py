"""Any model: what the score loses when a word is left out, of a model over pieces all of a word.

This needs nothing but scores, so it works for models that nobody has written an explainer for. It
sees each word alone: of two words that do the same job each seems worth little, because the other
stays. What the words do together is kept as a part of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from glassrank.explanations.cases import Case, Findings, as_matrix, shades
from glassrank.explanations.structure import Mark, PathShare, QueryTerm, ScorePart, Signal
from glassrank.explanations.whole_words import in_runs, shared_evenly, whole_words
from glassrank.models.model import TokenBatch, as_array, no_gradients
from glassrank.models.text_batches import batch_of

APPROXIMATE = (
    "Approximate: a word's value is what the score loses without it; what the words do together "
    "is a part of its own."
)
ENOUGH = 0.25
"""Of what the most important word is worth: words below are not coloured."""
_TOKENS_AT_ONCE = 2048

Units = Sequence[Sequence[int]]
"""What is left out at once: the places of one word each, or of several pieces."""


def explain_by_leaving_out(case: Case) -> Findings:
    """The score as a sum over query words; marks by leaving out document words."""
    terms, words = lost_without_query_words(case), lost_without_doc_words(case)
    score = case.output.score.item()
    similarity = case.output.parts.get("similarity")
    matrix = None if similarity is None else case.words_alone(similarity)
    return Findings(
        exact=False,
        parts=(
            *(ScorePart(case.query_words[q], "term", value, q) for q, value in enumerate(terms)),
            ScorePart("together", "constant", score - math.fsum(terms)),
        ),
        signals=(left_out_signal(words),),
        marks=left_out_marks(words, matrix),
        rest=(ScorePart("together", "constant", score - math.fsum(words)),),
        matrices=() if matrix is None else (as_matrix("similarity", matrix),),
        notes=(APPROXIMATE,),
    )


def _one_by_one(words: int) -> Units:
    return [[place] for place in range(words)]


def lost_without_query_words(case: Case, units: Units | None = None) -> list[float]:
    """Word by word, or unit by unit."""
    score = case.output.score.item()
    lost: list[float] = []
    units = _one_by_one(len(case.query_words)) if units is None else units
    for part in each_left_out(case.query_batch, units, case.doc.mask.shape[1]):
        case.check_time()
        same = case.doc.rows([0] * len(part.ids))
        with no_gradients(case.model):
            left = case.model.interact(case.model.encode_query(part), same).score
        lost += (score - as_array(left).astype(np.float64)).tolist()
    return lost


def lost_without_doc_words(case: Case, units: Units | None = None) -> list[float]:
    """The same for document words, of which the others are encoded anew."""
    score = case.output.score.item()
    lost: list[float] = []
    units = _one_by_one(case.doc_count) if units is None else units
    for part in each_left_out(case.doc_batch, units, case.query.mask.shape[1]):
        case.check_time()
        same = case.model.expand(case.query, len(part.ids))
        with no_gradients(case.model):
            left = case.model.interact(same, case.model.encode_doc(part)).score
        lost += (score - as_array(left).astype(np.float64)).tolist()
    return lost


def each_left_out(batch: TokenBatch, units: Units, beside: int) -> Iterator[TokenBatch]:
    """The text without its first unit, without its second, and so on, some at a time, as another
    text of so many words stands beside each. A text of one word becomes one of padding, since a
    model cannot read nothing."""
    ids = as_array(batch.ids)[0, as_array(batch.mask)[0] > 0]
    device = None if isinstance(batch.ids, np.ndarray) else batch.ids.device
    step = max(1, _TOKENS_AT_ONCE // (len(ids) + beside))
    for start in range(0, len(units), step):
        some = units[start : start + step]
        yield batch_of([np.delete(ids, list(places)) for places in some], device)


def left_out_signal(lost: Sequence[float]) -> Signal:
    """One kind of evidence: that the score is lower without a word."""
    total = math.fsum(lost)
    strength = shades(np.array([lost]))
    return Signal("left out", None, None, (PathShare("words", None, None, total),), total, strength)


def left_out_marks(lost: Sequence[float], similarity: Any) -> tuple[Mark, ...]:
    """Marks of words whose shares are not divided among query words."""
    near: list[tuple[int | None, float | None]] = [(None, None)] * len(lost)
    if similarity is not None and len(similarity):
        values, terms = similarity.max(0), similarity.argmax(0)
        near = list(zip(terms.tolist(), values.tolist(), strict=True))
    return tuple(
        Mark(term, 0 if coloured else None, value, share, (), (share,))
        for (term, value), share, coloured in zip(near, lost, stand_out(lost), strict=True)
    )


def stand_out(lost: Sequence[float], share: float = ENOUGH) -> list[bool]:
    """Whether a word is worth a colour: it adds to the score, and not little beside the others."""
    enough = max(lost, default=0.0) * share
    return [share > 0 and share >= enough for share in lost]


PIECES_APPROXIMATE = (
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
    nowhere = np.zeros((len(case.query_words), case.doc_count))
    return Findings(
        exact=False,
        parts=parts,
        signals=(left_out_signal(shares),),
        marks=piece_marks(case, runs, [shares], nowhere),
        rest=(together(case, shares),),
        matrices=(),
        terms=terms_of(parts),
        notes=(PIECES_APPROXIMATE,),
    )


def query_parts(case: Case) -> tuple[ScorePart, ...]:
    """The score as a sum over the query's pieces, without [CLS] and [SEP], which cannot be left
    out, and what they do together."""
    words = whole_words(case.query_words)
    lost = lost_without_query_words(case, words)
    shares = shared_evenly(lost, words, len(case.query_words))
    terms = [
        ScorePart(case.query_words[place], "term", shares[place], place)
        for word in words
        for place in word
    ]
    return (*terms, together(case, [term.value for term in terms]))


def terms_of(parts: Sequence[ScorePart]) -> tuple[QueryTerm, ...]:
    """What each query word added, where the parts say so at their top."""
    return tuple(QueryTerm(p.number, p.value, {}) for p in parts if p.number is not None)


def together(case: Case, shares: Sequence[float]) -> ScorePart:
    """What is left of the score when each word has its share."""
    return ScorePart("together", "constant", case.score - math.fsum(shares))


def piece_marks(
    case: Case,
    units: Units,
    by_signal: Sequence[Sequence[float]],  # (S, D)
    attention: Any,  # (Q, D)
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
            max(range(len(values)), key=values.__getitem__) if place in coloured else None,
            None,
            shares[place],
            (),
            values,
        )
        for place, values in enumerate(zip(*by_signal, strict=True))
    )


def _closest(case: Case, attention: Any) -> list[int | None]:
    """Of each document piece the query piece that looks at it most. [CLS] and [SEP], which look at
    everything and are looked at by everyone, are left out on both sides."""
    rows = _own_places(case.query_words)
    terms: list[int | None] = [None] * case.doc_count
    for place in _own_places(case.doc_words) if rows else ():
        terms[place] = rows[int(attention[rows, place].argmax())]
    return terms


def shades_of_pieces(weights: Any, pieces: Sequence[str]) -> tuple[float, ...]:
    """Weights (D,) as parts of the largest that a piece of the text has: [CLS] and [SEP] would
    leave all others pale."""
    places = _own_places(pieces)
    values = np.asarray(weights)
    largest = values[places].max() if places else 0.0
    return tuple((values / largest if largest > 0 else values).clip(0, 1).tolist())


def _own_places(pieces: Sequence[str]) -> list[int]:
    return [place for word in whole_words(pieces) for place in word]
