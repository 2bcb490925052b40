"""Ensembles: the members' explanations under one root, each with its share in the mean."""

import math
from dataclasses import replace

from glassrank.explaining.cases import Case, Explainer, Findings
from glassrank.explaining.structure import Mark, Matrix, ScorePart, Signal
from glassrank.models.ranker import TokenBatch


def explain_members(case: Case, explain_one: Explainer) -> Findings:
    """By its members' explanations, each with its share."""
    ensemble = case.model
    share = 1 / len(ensemble.members)
    names, all_findings = [], []
    for number, model in enumerate(ensemble.rankers()):
        lengths = ensemble.config.members[number]
        query = _cut(case.query_batch, lengths.query_length)
        doc = _cut(case.doc_batch, lengths.doc_length)
        names.append(f"{number + 1} {model.name}")
        words = case.query_words, case.doc_words
        all_findings.append(explain_one(Case.of(model, query, doc, *words, deadline=case.deadline)))
    described = list(zip(names, all_findings, strict=True))
    return Findings(
        exact=all(findings.exact for findings in all_findings),
        parts=tuple(
            ScorePart.total(name, "member", (part.scaled(share) for part in findings.parts))
            for name, findings in described
        ),
        signals=tuple(
            _signal(signal, name, share, case.doc_count)
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


def _matrix(matrix: Matrix, member: str, case: Case) -> Matrix:
    """With zeros for words that this member does not read."""
    sizes = {"query": len(case.query_words), "document": case.doc_count}
    rows = [_longer(row, sizes[matrix.columns]) for row in matrix.values]
    rows += [(0.0,) * sizes[matrix.columns]] * (sizes[matrix.rows] - len(rows))
    return replace(matrix, name=f"{member}: {matrix.name}", values=tuple(rows))


def _longer(values: tuple[float, ...], length: int) -> tuple[float, ...]:
    return values + (0.0,) * (length - len(values))


def _marks(all_findings: list[Findings], share: float, case: Case) -> tuple[Mark, ...]:
    return tuple(
        _mark(word, all_findings, share, len(case.query_words)) for word in range(case.doc_count)
    )


def _mark(word: int, all_findings: list[Findings], share: float, terms: int) -> Mark:
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
