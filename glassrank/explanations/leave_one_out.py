"""Any model: what the score loses when a word is left out, of a model over pieces all of a word.

This needs nothing but scores, so it works for models that nobody has written an explainer for. It
sees each word alone: of two words that do the same job each seems worth little, because the other
stays. What the words do together is kept as a part of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from glassrank.explanations.attribution import Attribution, ScoredPair, scale_columns, to_matrix
from glassrank.explanations.structure import Mark, PathShare, QueryTerm, ScorePart, Signal
from glassrank.explanations.subword_merging import group_subwords, merge_runs, share_evenly
from glassrank.models.model import TokenBatch, no_gradients, to_array
from glassrank.models.text_batches import make_batch

APPROXIMATE = (
    "Approximate: a word's value is what the score loses without it; what the words do together "
    "is a part of its own."
)
ENOUGH = 0.25
"""Of what the most important word is worth: words below are not coloured."""
_TOKENS_AT_ONCE = 2048

Units = Sequence[Sequence[int]]
"""What is left out at once: the places of one word each, or of several pieces."""


def explain_leave_one_out(case: ScoredPair) -> Attribution:
    """The score as a sum over query words; marks by leaving out document words."""
    terms, words = ablate_query(case), ablate_doc(case)
    score = case.output.score.item()
    similarity = case.output.parts.get("similarity")
    matrix = None if similarity is None else case.trim_padding(similarity)
    return Attribution(
        is_additive=False,
        parts=(
            *(ScorePart(case.query_tokens[q], "term", value, q) for q, value in enumerate(terms)),
            ScorePart("together", "constant", score - math.fsum(terms)),
        ),
        signals=(make_ablation_signal(words),),
        marks=make_ablation_marks(words, matrix),
        rest=(ScorePart("together", "constant", score - math.fsum(words)),),
        matrices=() if matrix is None else (to_matrix("similarity", matrix),),
        notes=(APPROXIMATE,),
    )


def _one_by_one(words: int) -> Units:
    return [[place] for place in range(words)]


def ablate_query(case: ScoredPair, units: Units | None = None) -> list[float]:
    """Word by word, or unit by unit."""
    score = case.output.score.item()
    lost: list[float] = []
    units = _one_by_one(len(case.query_tokens)) if units is None else units
    for part in iter_ablated(case.query_batch, units, case.doc.mask.shape[1]):
        case.check_deadline()
        same = case.doc.rows([0] * len(part.ids))
        with no_gradients(case.model):
            left = case.model.interact(case.model.encode_query(part), same).score
        lost += (score - to_array(left).astype(np.float64)).tolist()
    return lost


def ablate_doc(case: ScoredPair, units: Units | None = None) -> list[float]:
    """The same for document words, of which the others are encoded anew."""
    score = case.output.score.item()
    lost: list[float] = []
    units = _one_by_one(case.num_doc_tokens) if units is None else units
    for part in iter_ablated(case.doc_batch, units, case.query.mask.shape[1]):
        case.check_deadline()
        same = case.model.expand(case.query, len(part.ids))
        with no_gradients(case.model):
            left = case.model.interact(same, case.model.encode_doc(part)).score
        lost += (score - to_array(left).astype(np.float64)).tolist()
    return lost


def iter_ablated(batch: TokenBatch, units: Units, beside: int) -> Iterator[TokenBatch]:
    """The text without its first unit, without its second, and so on, some at a time, as another
    text of so many words stands beside each. A text of one word becomes one of padding, since a
    model cannot read nothing."""
    ids = to_array(batch.ids)[0, to_array(batch.mask)[0] > 0]
    device = None if isinstance(batch.ids, np.ndarray) else batch.ids.device
    step = max(1, _TOKENS_AT_ONCE // (len(ids) + beside))
    for start in range(0, len(units), step):
        some = units[start : start + step]
        yield make_batch([np.delete(ids, list(places)) for places in some], device)


def make_ablation_signal(lost: Sequence[float]) -> Signal:
    """One kind of evidence: that the score is lower without a word."""
    total = math.fsum(lost)
    strength = scale_columns(np.array([lost]))
    return Signal("left out", None, None, (PathShare("words", None, None, total),), total, strength)


def make_ablation_marks(lost: Sequence[float], similarity: Any) -> tuple[Mark, ...]:
    """Marks of words whose shares are not divided among query words."""
    near: list[tuple[int | None, float | None]] = [(None, None)] * len(lost)
    if similarity is not None and len(similarity):
        values, terms = similarity.max(0), similarity.argmax(0)
        near = list(zip(terms.tolist(), values.tolist(), strict=True))
    return tuple(
        Mark(term, 0 if coloured else None, value, share, (), (share,))
        for (term, value), share, coloured in zip(near, lost, select_salient(lost), strict=True)
    )


def select_salient(lost: Sequence[float], share: float = ENOUGH) -> list[bool]:
    """Whether a word is worth a colour: it adds to the score, and not little beside the others."""
    enough = max(lost, default=0.0) * share
    return [share > 0 and share >= enough for share in lost]


PIECES_APPROXIMATE = (
    "Approximate: a word's value is what the score loses without it, in either text; pieces of a "
    "word share evenly, and what words do together is a part of its own."
)
MOST_TEXTS = 64
"""Each is as much work as ranking one document."""


def explain_leave_one_out_subwords(case: ScoredPair) -> Attribution:
    """For a model that keeps no pieces apart, as one of single vectors: texts without a word."""
    runs = merge_runs(group_subwords(case.doc_tokens), MOST_TEXTS)
    shares = share_evenly(ablate_doc(case, runs), runs, case.num_doc_tokens)
    parts = ablate_query_parts(case)
    nowhere = np.zeros((len(case.query_tokens), case.num_doc_tokens))
    return Attribution(
        is_additive=False,
        parts=parts,
        signals=(make_ablation_signal(shares),),
        marks=make_subword_marks(case, runs, [shares], nowhere),
        rest=(together(case, shares),),
        matrices=(),
        terms=make_terms(parts),
        notes=(PIECES_APPROXIMATE,),
    )


def ablate_query_parts(case: ScoredPair) -> tuple[ScorePart, ...]:
    """The score as a sum over the query's pieces, without [CLS] and [SEP], which cannot be left
    out, and what they do together."""
    words = group_subwords(case.query_tokens)
    lost = ablate_query(case, words)
    shares = share_evenly(lost, words, len(case.query_tokens))
    terms = [
        ScorePart(case.query_tokens[place], "term", shares[place], place)
        for word in words
        for place in word
    ]
    return (*terms, together(case, [term.value for term in terms]))


def make_terms(parts: Sequence[ScorePart]) -> tuple[QueryTerm, ...]:
    """What each query word added, where the parts say so at their top."""
    return tuple(QueryTerm(p.number, p.value, {}) for p in parts if p.number is not None)


def together(case: ScoredPair, shares: Sequence[float]) -> ScorePart:
    """What is left of the score when each word has its share."""
    return ScorePart("together", "constant", case.score - math.fsum(shares))


def make_subword_marks(
    case: ScoredPair,
    units: Units,
    by_signal: Sequence[Sequence[float]],  # (S, D)
    attention: Any,  # (Q, D)
) -> tuple[Mark, ...]:
    """A piece is coloured by the signal that adds most to it, where its word stands out. Attention
    is no similarity: it only says which query piece looks at it most."""
    shares = [math.fsum(values) for values in zip(*by_signal, strict=True)]  # (D,)
    whole = [math.fsum(shares[place] for place in unit) for unit in units]
    chosen = zip(units, select_salient(whole), strict=True)
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


def _closest(case: ScoredPair, attention: Any) -> list[int | None]:
    """Of each document piece the query piece that looks at it most. [CLS] and [SEP], which look at
    everything and are looked at by everyone, are left out on both sides."""
    rows = _own_places(case.query_tokens)
    terms: list[int | None] = [None] * case.num_doc_tokens
    for place in _own_places(case.doc_tokens) if rows else ():
        terms[place] = rows[int(attention[rows, place].argmax())]
    return terms


def scale_subwords(weights: Any, pieces: Sequence[str]) -> tuple[float, ...]:
    """Weights (D,) as parts of the largest that a piece of the text has: [CLS] and [SEP] would
    leave all others pale."""
    places = _own_places(pieces)
    values = np.asarray(weights)
    largest = values[places].max() if places else 0.0
    return tuple((values / largest if largest > 0 else values).clip(0, 1).tolist())


def _own_places(pieces: Sequence[str]) -> list[int]:
    return [place for word in group_subwords(pieces) for place in word]
