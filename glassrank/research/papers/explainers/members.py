"""Ensembles: the score is the mean of the members' scores, so an explanation is the sum of theirs,
each with its share.
"""

import math
from dataclasses import replace

from glassrank.explanations.attribution import Attribution, Explainer, ScoredPair
from glassrank.explanations.explainers import explain_pair
from glassrank.explanations.structure import Mark, Matrix, ScorePart, Signal
from glassrank.research.papers.pacrr import cut


def explain_ensemble(pair: ScoredPair, explain: Explainer = explain_pair) -> Attribution:
    """Explains each member, and scales its parts by its share."""
    ensemble = pair.model
    share = 1 / len(ensemble.members)
    members: list[tuple[str, Attribution]] = []
    for number, model in enumerate(ensemble.rankers()):
        lengths = ensemble.config.members[number]
        query = cut(pair.query_batch, lengths.query_length)
        doc = cut(pair.doc_batch, lengths.doc_length)
        tokens = pair.query_tokens, pair.doc_tokens
        own = ScoredPair.of(model, query, doc, *tokens, deadline=pair.deadline)
        members.append((f"{number + 1} {model.name}", explain(own)))

    def scale(name: str, parts: tuple[ScorePart, ...]) -> ScorePart:
        return ScorePart.total(name, "member", (part.scaled(share) for part in parts))

    count = pair.num_doc_tokens
    found = [each for _, each in members]
    return Attribution(
        is_additive=all(each.is_additive for each in found),
        parts=tuple(scale(name, each.parts) for name, each in members),
        signals=tuple(
            _scale_signal(signal, name, share, count)
            for name, each in members
            for signal in each.signals
        ),
        marks=tuple(_mark(d, found, share, len(pair.query_tokens)) for d in range(count)),
        rest=tuple(scale(name, each.rest) for name, each in members),
        matrices=tuple(
            _pad_matrix(matrix, name, pair) for name, each in members for matrix in each.matrices
        ),
        notes=tuple(f"{name}: {note}" for name, each in members for note in each.notes),
    )


def _scale_signal(signal: Signal, member: str, share: float, words: int) -> Signal:
    return replace(
        signal,
        name=f"{member}: {signal.name}",
        paths=tuple(
            replace(path, path=f"{member}: {path.path}", value=share * path.value)
            for path in signal.paths
        ),
        value=share * signal.value,
        strength=_pad(signal.strength, words),
    )


def _pad_matrix(matrix: Matrix, member: str, pair: ScoredPair) -> Matrix:
    """Pads with zeros for words that this member does not read."""
    sizes = {"query": len(pair.query_tokens), "document": pair.num_doc_tokens}
    rows = [_pad(row, sizes[matrix.columns]) for row in matrix.values]
    rows += [(0.0,) * sizes[matrix.columns]] * (sizes[matrix.rows] - len(rows))
    return replace(matrix, name=f"{member}: {matrix.name}", values=tuple(rows))


def _pad(values: tuple[float, ...], length: int) -> tuple[float, ...]:
    return values + (0.0,) * (length - len(values))


def _mark(word: int, members: list[Attribution], share: float, terms: int) -> Mark:
    """Sums the shares; the closest query word is that of the member in which the word adds most."""
    marks = [f.marks[word] if word < len(f.marks) else None for f in members]
    leader = max((mark for mark in marks if mark), key=lambda mark: abs(mark.share), default=None)
    by_signal: list[float] = []
    by_term = [0.0] * terms
    signal = None
    for mark, member in zip(marks, members, strict=True):
        if mark is leader and mark is not None and mark.signal is not None:
            signal = len(by_signal) + mark.signal
        shares = mark.by_signal if mark else ()
        by_signal += [share * value for value in _pad(shares, len(member.signals))]
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
