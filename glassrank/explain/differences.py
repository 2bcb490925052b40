"""Two explanations side by side, with signed differences, as in the TK paper's Figure 3.

Parts are matched by name. So two documents of one query can be compared, and two models on one
document, and a document before and after a change.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from glassrank.explain.structure import ExplanationData

Group = Literal["score", "part", "signal", "term"]


@dataclass(frozen=True)
class Difference:
    """Of one named value; where one side does not have it, it counts as zero there."""

    group: Group
    name: str
    path: str
    """For signals and terms the path, empty for the sum over all paths."""
    left: float | None
    right: float | None
    difference: float
    """Left less right: what puts the left document above the right one."""


@dataclass(frozen=True)
class ComparisonData:
    """Two explanations and how they differ; `Comparison` prints it."""

    left: ExplanationData
    right: ExplanationData
    differences: tuple[Difference, ...]


_Key = tuple[Group, str, str, int]


def differences_of(left: ExplanationData, right: ExplanationData) -> tuple[Difference, ...]:
    """What each path, kernel and query word adds to the left document more than to the right."""
    mine, others = _values(left), _values(right)
    keys = [*mine, *(key for key in others if key not in mine)]
    return tuple(
        Difference(
            *key[:3],
            mine.get(key),
            others.get(key),
            mine.get(key, 0.0) - others.get(key, 0.0),
        )
        for key in keys
    )


def _values(explanation: ExplanationData) -> dict[_Key, float]:
    """Named values in the order in which they are shown. A name that comes twice, as a word may in
    a query, has a number."""
    seen: Counter[tuple[Group, str, str]] = Counter()
    found: dict[_Key, float] = {}
    for group, name, path, value in _listed(explanation):
        key = group, name, path
        found[(*key, seen[key])] = value
        seen[key] += 1
    return found


def _listed(explanation: ExplanationData) -> Iterator[tuple[Group, str, str, float]]:
    yield "score", "score", "", explanation.score
    for part in explanation.parts.children:
        yield "part", part.name, "", part.value
    for signal in explanation.signals:
        yield "signal", signal.name, "", signal.value
        if len(signal.paths) > 1:
            for share in signal.paths:
                yield "signal", signal.name, share.path, share.value
    for term in explanation.terms:
        name = explanation.query.words[term.word].text
        yield "term", name, "", term.value
        if len(term.paths) > 1:
            for path, value in term.paths.items():
                yield "term", name, path, value
