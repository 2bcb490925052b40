"""Ablation, for any model: what the score loses when a word is left out. Of two words that do the
same job each seems worth little, because the other stays; what words add together is a part of its
own.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    make_part,
    make_signal,
    make_term_parts,
    scale_columns,
    to_matrix,
)
from glassrank.explanations.structure import Mark, Matrix, QueryTerm, ScorePart, Signal
from glassrank.explanations.subword_merging import group_subwords, merge_runs, share_evenly
from glassrank.models.model import TokenBatch, TokenEmbeddings, make_batch, no_gradients, to_array

APPROXIMATE = (
    "Approximate: a word's value is what the score loses without it; what the words add together "
    "is a part of its own."
)
SUBWORDS_APPROXIMATE = (
    "Approximate: a word's value is what the score loses without it, in either text; subwords of a "
    "word share evenly, and what words add together is a part of its own."
)
MIN_SALIENT_SHARE = 0.25
"""Of the most important word's value: words below get no colour."""
MAX_ABLATIONS = 64
"""Each costs as much as ranking one document."""
TOGETHER = "together"
_TOKENS_AT_ONCE = 2048

Units = Sequence[Sequence[int]]
"""The places of the tokens that are left out together: a word, its subwords, or a run of words."""


def explain_leave_one_out(pair: ScoredPair) -> Attribution:
    """The score as a sum over query words; marks by leaving out document words."""
    terms, words = ablate_query(pair), ablate_doc(pair)
    score = pair.output.score.item()
    similarity = pair.output.parts.get("similarity")
    matrix = None if similarity is None else pair.trim_padding(similarity)
    return Attribution(
        is_additive=False,
        parts=(*make_term_parts(pair.query_tokens, terms), make_part(TOGETHER, score, terms)),
        signals=(make_ablation_signal(words),),
        marks=make_ablation_marks(words, matrix),
        rest=(make_part(TOGETHER, score, words),),
        matrices=() if matrix is None else (to_matrix("similarity", matrix),),
        notes=(APPROXIMATE,),
    )


def explain_leave_one_out_subwords(pair: ScoredPair) -> Attribution:
    """For a model that keeps no token apart, such as a bi-encoder: leaves out whole words."""
    runs = merge_runs(group_subwords(pair.doc_tokens), MAX_ABLATIONS)
    shares = share_evenly(ablate_doc(pair, runs), runs, pair.num_doc_tokens)
    no_attention = np.zeros((len(pair.query_tokens), pair.num_doc_tokens))
    signals = [make_ablation_signal(shares)]
    return attribute_to_subwords(pair, runs, signals, [shares], no_attention)


def attribute_to_subwords(
    pair: ScoredPair,
    units: Units,
    signals: Sequence[Signal],
    by_signal: Sequence[Sequence[float]],  # (S, D)
    attention: Any,  # (Q, D)
    matrices: Iterable[Matrix] = (),
    notes: Sequence[str] = (SUBWORDS_APPROXIMATE,),
) -> Attribution:
    """The score as a sum over the query's words, and what the document's words add."""
    words = group_subwords(pair.query_tokens)
    lost = share_evenly(ablate_query(pair, words), words, len(pair.query_tokens))
    places = _list_subwords(pair.query_tokens)
    terms = [ScorePart(pair.query_tokens[place], "term", lost[place], place) for place in places]
    marks = _make_subword_marks(pair, units, by_signal, attention)
    return Attribution(
        is_additive=False,
        parts=(*terms, make_part(TOGETHER, pair.score, (term.value for term in terms))),
        signals=tuple(signals),
        marks=marks,
        rest=(make_part(TOGETHER, pair.score, (mark.share for mark in marks)),),
        matrices=tuple(matrices),
        terms=tuple(QueryTerm(place, lost[place], {}) for place in places),
        notes=tuple(notes),
    )


def ablate_query(pair: ScoredPair, units: Units | None = None) -> list[float]:
    """What the score loses without each word of the query, or each unit."""
    model = pair.model
    units = _list_places(len(pair.query_tokens)) if units is None else units
    return _ablate(
        pair,
        iter_ablated(pair.query_batch, units, pair.doc.mask.shape[1]),
        lambda batch: (model.encode_query(batch), pair.doc.rows([0] * len(batch.ids))),
    )


def ablate_doc(pair: ScoredPair, units: Units | None = None) -> list[float]:
    """What the score loses without each word or unit of the document."""
    model = pair.model
    units = _list_places(pair.num_doc_tokens) if units is None else units
    return _ablate(
        pair,
        iter_ablated(pair.doc_batch, units, pair.query.mask.shape[1]),
        lambda batch: (model.expand(pair.query, len(batch.ids)), model.encode_doc(batch)),
    )


def _ablate(
    pair: ScoredPair,
    batches: Iterator[TokenBatch],
    encode: Callable[[TokenBatch], tuple[TokenEmbeddings, TokenEmbeddings]],
) -> list[float]:
    score = pair.output.score.item()
    lost: list[float] = []
    for batch in batches:
        pair.deadline.check("this explanation")
        with no_gradients(pair.model):
            left = pair.model.interact(*encode(batch)).score
        lost += (score - to_array(left).astype(np.float64)).tolist()
    return lost


def _list_places(count: int) -> Units:
    return [[place] for place in range(count)]


def iter_ablated(batch: TokenBatch, units: Units, beside: int) -> Iterator[TokenBatch]:
    """Batches of the text without its first unit, without its second, and so on. `beside` is the
    length of the other text. A text of one unit becomes padding: models read no empty text."""
    ids = to_array(batch.ids)[0, to_array(batch.mask)[0] > 0]
    device = None if isinstance(batch.ids, np.ndarray) else batch.ids.device
    step = max(1, _TOKENS_AT_ONCE // (len(ids) + beside))
    for start in range(0, len(units), step):
        some = units[start : start + step]
        yield make_batch([np.delete(ids, list(places)) for places in some], device)


def make_ablation_signal(lost: Sequence[float]) -> Signal:
    """The one kind of evidence: the score is lower without a word."""
    return make_signal("left out", {"words": math.fsum(lost)}, scale_columns(np.array([lost])))


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


def select_salient(values: Sequence[float], share: float = MIN_SALIENT_SHARE) -> list[bool]:
    """Whether each word adds to the score, and at least this share of what the best word adds."""
    least = max(values, default=0.0) * share
    return [value > 0 and value >= least for value in values]


def _make_subword_marks(
    pair: ScoredPair,
    units: Units,
    by_signal: Sequence[Sequence[float]],  # (S, D)
    attention: Any,  # (Q, D)
) -> tuple[Mark, ...]:
    """A subword of a salient word has the colour of the signal that adds most to it."""
    shares = [math.fsum(values) for values in zip(*by_signal, strict=True)]  # (D,)
    whole = [math.fsum(shares[place] for place in unit) for unit in units]
    salient = zip(units, select_salient(whole), strict=True)
    coloured = {place for unit, is_salient in salient if is_salient for place in unit}
    terms = _find_closest(pair, attention)
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


def _find_closest(pair: ScoredPair, attention: Any) -> list[int | None]:
    """For each document subword the query subword that attends to it most."""
    rows = _list_subwords(pair.query_tokens)
    terms: list[int | None] = [None] * pair.num_doc_tokens
    for place in _list_subwords(pair.doc_tokens) if rows else ():
        terms[place] = rows[int(attention[rows, place].argmax())]
    return terms


def scale_subwords(weights: Any, tokens: Sequence[str]) -> tuple[float, ...]:
    """Weights (D,) divided by the largest of a subword, not of [CLS] or [SEP]."""
    places = _list_subwords(tokens)
    values = np.asarray(weights)
    largest = values[places].max() if places else 0.0
    return tuple((values / largest if largest > 0 else values).clip(0, 1).tolist())


def _list_subwords(tokens: Sequence[str]) -> list[int]:
    return [place for word in group_subwords(tokens) for place in word]
