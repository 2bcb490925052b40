"""Any model that declares its summands: the score is their sum, over query words where they have
them.

Nothing here knows a family. A document word's share is what the score would lose if the word were
masked, while the others keep their vectors; what it loses by summand and by query word is the
difference of the model's own parts. MaxSim is explained by this, and so is a model that somebody
else has written. An ensemble's score is a sum of its members' explanations, each with its share in
the mean.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glassrank.explanations.attribution import (
    Attribution,
    Explainer,
    ScoredPair,
    Values,
    make_marks,
    scale_columns,
    to_float64,
    to_matrix,
)
from glassrank.explanations.leave_one_out import select_salient
from glassrank.explanations.structure import Mark, Matrix, PathShare, ScorePart, Signal
from glassrank.models.model import Output, TokenBatch, no_gradients

_CELLS_AT_ONCE = 1 << 16
"""Query words times document words that `interact` compares in one call."""


def explain_summands(case: ScoredPair) -> Attribution:
    """By the parts that the model names as its summands."""
    names = case.model.info.summands
    totals = _by_word(case, case.output)[:, 0]  # (S, Q + 1)
    shares = _lost(case)  # (S, Q + 1, D)
    words = len(case.query_tokens)
    similarity = case.output.parts.get("similarity")
    matrix = None if similarity is None else case.trim_padding(similarity)  # (Q, D)
    parts = tuple(_path(name, totals[s], case) for s, name in enumerate(names))
    by_query_word = shares[:, :words].transpose(1, 2, 0)  # (Q, D, S)
    lost = shares.sum((0, 1)).tolist()  # (D,)
    marks = make_marks(
        by_query_word,
        np.zeros((words, case.num_doc_tokens)) if matrix is None else matrix,
        _coloured(shares, matrix, lost),
    )
    if matrix is None:  # then nothing is said of which query word is closest
        marks = tuple(replace(mark, term=None, similarity=None) for mark in marks)
    if shares[:, words].any():  # some of it is not by query word
        by_summand = shares.sum(1).T.tolist()  # (D, S)
        marks = tuple(
            replace(mark, share=lost[d], by_term=(), by_signal=tuple(by_summand[d]))
            for d, mark in enumerate(marks)
        )
    strength = scale_columns(np.array([lost]) if matrix is None else matrix)
    left = math.fsum(part.value for part in parts) - math.fsum(mark.share for mark in marks)
    return Attribution(
        is_additive=True,
        parts=parts,
        signals=tuple(
            Signal(
                part.name,
                None,
                None,
                (PathShare(part.name, None, None, part.value),),
                part.value,
                strength,
            )
            for part in parts
        ),
        marks=marks,
        rest=(ScorePart("together", "constant", left),),
        matrices=() if matrix is None else (to_matrix("similarity", matrix),),
    )


def _path(name: str, values: Values, case: ScoredPair) -> ScorePart:
    """A summand (Q + 1,) as a part: its query words, or itself where it has none."""
    *by_word, other = values.tolist()
    terms = [
        ScorePart(word, "term", value, q)
        for q, (word, value) in enumerate(zip(case.query_tokens, by_word, strict=True))
    ]
    if other:
        return ScorePart.total(name, "path", [*terms, ScorePart(name, "constant", other)])
    return ScorePart.total(name, "path", terms)


def _by_word(case: ScoredPair, out: Output) -> Values:
    """(S, B, Q + 1): each summand by query word; last, what is not by query word."""
    words, padded = len(case.query_tokens), case.query.mask.shape[1]
    rows = []
    for name in case.model.info.summands:
        part = to_float64(out.parts[name])
        if part.ndim > 1 and part.shape[1] == padded:
            values = part.reshape(len(part), padded, -1).sum(2)  # (B, Q')
        else:
            values = np.hstack([np.zeros((len(part), words)), part.reshape(len(part), -1)])
        rows.append(np.hstack([values[:, :words], values[:, words:].sum(1, keepdims=True)]))
    return np.stack(rows)


def _lost(case: ScoredPair) -> Values:
    """What each summand and query word loses without each document word: (S, Q + 1, D)."""
    whole = _by_word(case, case.output)  # (S, 1, Q + 1)
    step = max(1, _CELLS_AT_ONCE // max(1, case.query.mask.shape[1] * case.doc.mask.shape[1]))
    lost = [whole[:, :0]]
    for start in range(0, case.num_doc_tokens, step):
        case.check_deadline()
        places = list(range(start, min(start + step, case.num_doc_tokens)))
        docs = case.doc.rows([0] * len(places))  # copies
        docs.mask[list(range(len(places))), places] = 0
        query = case.model.expand(case.query, len(places))
        with no_gradients(case.model):
            left = case.model.interact(query, docs)
        lost.append(whole - _by_word(case, left))
    return np.concatenate(lost, axis=1).transpose(0, 2, 1)


def _coloured(shares: Values, similarity: Values | None, lost: Sequence[float]) -> list[int | None]:
    """Of each document word the summand that it adds most to, if it is the closest to a query word,
    or, where nothing is said of similarities, if it stands out."""
    most = shares.sum(1).argmax(0).tolist()  # (D,)
    chosen = select_salient(lost)
    if similarity is not None:
        matched = set(similarity.argmax(1).tolist()) if similarity.size else set()
        chosen = [place in matched for place in range(len(lost))]
    return [number if coloured else None for number, coloured in zip(most, chosen, strict=True)]


def explain_ensemble(case: ScoredPair, explain_one: Explainer) -> Attribution:
    """By its members' explanations, each with its share."""
    ensemble = case.model
    share = 1 / len(ensemble.members)
    names, all_findings = [], []
    for number, model in enumerate(ensemble.rankers()):
        lengths = ensemble.config.members[number]
        query = _cut(case.query_batch, lengths.query_length)
        doc = _cut(case.doc_batch, lengths.doc_length)
        names.append(f"{number + 1} {model.name}")
        words = case.query_tokens, case.doc_tokens
        all_findings.append(
            explain_one(ScoredPair.of(model, query, doc, *words, deadline=case.deadline))
        )
    described = list(zip(names, all_findings, strict=True))
    return Attribution(
        is_additive=all(findings.is_additive for findings in all_findings),
        parts=tuple(
            ScorePart.total(name, "member", (part.scaled(share) for part in findings.parts))
            for name, findings in described
        ),
        signals=tuple(
            _signal(signal, name, share, case.num_doc_tokens)
            for name, findings in described
            for signal in findings.signals
        ),
        marks=_marks(all_findings, share, case),
        rest=tuple(
            ScorePart.total(name, "member", (part.scaled(share) for part in findings.rest))
            for name, findings in described
        ),
        matrices=tuple(
            _matrix(matrix, name, case)
            for name, findings in described
            for matrix in findings.matrices
        ),
        notes=tuple(f"{name}: {note}" for name, findings in described for note in findings.notes),
    )


def _cut(batch: TokenBatch, length: int) -> TokenBatch:
    return TokenBatch(batch.ids[:, :length], batch.mask[:, :length])


def _signal(signal: Signal, member: str, share: float, words: int) -> Signal:
    return replace(
        signal,
        name=f"{member}: {signal.name}",
        paths=tuple(
            replace(path, path=f"{member}: {path.path}", value=share * path.value)
            for path in signal.paths
        ),
        value=share * signal.value,
        strength=_longer(signal.strength, words),
    )


def _matrix(matrix: Matrix, member: str, case: ScoredPair) -> Matrix:
    """With zeros for words that this member does not read."""
    sizes = {"query": len(case.query_tokens), "document": case.num_doc_tokens}
    rows = [_longer(row, sizes[matrix.columns]) for row in matrix.values]
    rows += [(0.0,) * sizes[matrix.columns]] * (sizes[matrix.rows] - len(rows))
    return replace(matrix, name=f"{member}: {matrix.name}", values=tuple(rows))


def _longer(values: tuple[float, ...], length: int) -> tuple[float, ...]:
    return values + (0.0,) * (length - len(values))


def _marks(all_findings: list[Attribution], share: float, case: ScoredPair) -> tuple[Mark, ...]:
    return tuple(
        _mark(word, all_findings, share, len(case.query_tokens))
        for word in range(case.num_doc_tokens)
    )


def _mark(word: int, all_findings: list[Attribution], share: float, terms: int) -> Mark:
    """Shares are summed; what a word is closest to, the member says to whom it matters most."""
    marks = [f.marks[word] if word < len(f.marks) else None for f in all_findings]
    leader = max((mark for mark in marks if mark), key=lambda mark: abs(mark.share), default=None)
    by_signal: list[float] = []
    by_term = [0.0] * terms
    signal = None
    for mark, findings in zip(marks, all_findings, strict=True):
        if mark is leader and mark is not None and mark.signal is not None:
            signal = len(by_signal) + mark.signal
        shares = mark.by_signal if mark else ()
        by_signal += [share * value for value in _longer(shares, len(findings.signals))]
        for q, value in enumerate(mark.by_term if mark else ()):
            by_term[q] += share * value
    return Mark(
        leader.term if leader else None,
        signal,
        leader.similarity if leader else None,
        share * math.fsum(mark.share for mark in marks if mark),
        tuple(by_term),
        tuple(by_signal),
    )
