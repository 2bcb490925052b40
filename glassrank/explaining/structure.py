"""What an explanation is: one structure of named parts, the same for every model.

Whoever draws it never asks which model it shows. Three words recur. A *term* is a query word. A
*signal* is one kind of evidence that a model looks for: a kernel, a size of n-grams. A *path* is
one way on which signals become score: TK has logarithms of counts, and counts by length.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal[
    "score", "member", "path", "window", "words", "term", "signal", "first stage", "constant"
]
Side = Literal["query", "document"]


@dataclass(frozen=True)
class Word:
    """A word, or a piece of one, as the model reads it, and where it stands in the text:
    `text[start:stop]`."""

    text: str
    start: int | None
    stop: int | None
    """None where the word is not in the text, as [CLS]; it is then not coloured."""
    known: bool
    """Whether it is in the vocabulary; other words share vectors."""
    telling: bool = True
    """Whether it is worth a colour: function words and punctuation are not, unless the query has
    nothing else."""


@dataclass(frozen=True)
class Text:
    """A text and what the model read of it."""

    text: str
    words: tuple[Word, ...]
    cut: int
    """How many words or pieces at the end the model did not read."""
    passage: tuple[int, int] | None = None
    """From and to where, in a document that is read in passages, the one stands whose words these
    are; the title may stand before it."""


@dataclass(frozen=True)
class ScorePart:
    """A named value that is the sum of its children, where it has any."""

    name: str
    kind: Kind
    value: float
    number: int | None = None
    """Of the query word or of the signal, for parts of these kinds."""
    children: tuple["ScorePart", ...] = ()

    @classmethod
    def total(
        cls, name: str, kind: Kind, children: Iterable["ScorePart"], number: int | None = None
    ) -> "ScorePart":
        """A part that is the sum of these."""
        parts = tuple(children)
        return cls(name, kind, math.fsum(part.value for part in parts), number, parts)

    def leaves(self) -> Iterator["ScorePart"]:
        """The parts below it that have none themselves."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def scaled(self, share: float) -> "ScorePart":
        """It and all below it, times a share."""
        children = tuple(child.scaled(share) for child in self.children)
        return replace(self, value=self.value * share, children=children)


@dataclass(frozen=True)
class QueryTerm:
    """What one query word added, in all and on each path."""

    word: int
    value: float
    paths: dict[str, float]


@dataclass(frozen=True)
class PathShare:
    """What one signal added on one path. Where weight and signal are known, the value is their
    product but for rounding."""

    path: str
    weight: float | None
    signal: float | None
    value: float


@dataclass(frozen=True)
class Signal:
    """One row of the kernel table."""

    name: str
    center: float | None
    width: float | None
    paths: tuple[PathShare, ...]
    value: float
    strength: tuple[float, ...]
    """(D,) from 0 to 1: how much each document word has of it, for shades of a colour."""
    first_look: bool = True
    """Whether its words are coloured before anybody chooses; those of low similarity are not."""


@dataclass(frozen=True)
class Mark:
    """What one document word is to the query. The shares of all words and `rest` add up to the
    score; those by term, and those by signal, to the word's share."""

    term: int | None
    signal: int | None
    similarity: float | None
    """To that term, which is the query word it is closest to."""
    share: float
    """What it adds: where the model is exact, what the score loses if the word is not counted."""
    by_term: tuple[float, ...]  # (Q,) or none
    by_signal: tuple[float, ...]  # (S,) or none


@dataclass(frozen=True)
class Matrix:
    """For a heat map. Rows and columns are words of the query or of the document."""

    name: str
    rows: Side
    columns: Side
    values: tuple[tuple[float, ...], ...]
    attention: bool = False
    """Whether each row says how a word divides its attention; otherwise values are similarities."""


@dataclass(frozen=True)
class Against:
    """One document against the others: each part's value less its mean over candidates of the same
    query that were re-ranked."""

    docs: int
    """Over how many of them means are taken, the document itself among them if it is one."""
    of: int
    """How many of them there are."""
    mean: float
    """Of their scores."""
    parts: ScorePart
    """The differences as a tree: query words, largest first; function words and punctuation as one
    part; then what is of no query word. Its root is the score less the mean."""
    exact: bool
    """Whether differences are of the model's own summands; if not, of what scores lose when a query
    word is left out."""
    heading: str
    """Against what, for people."""
    sentence: str
    """What differs most, for people."""


@dataclass(frozen=True)
class ExplanationData:
    """All that is said of one score; `Explanation` prints it."""

    query: Text
    doc_id: str
    doc: Text
    model: str
    score: float
    """The model's own."""
    exact: bool
    """Whether the parts are the model's own summands. If not, they still add up, but say only how
    the score leans on each part near this one document."""
    parts: ScorePart
    """The score as a tree; its root differs from `score` by the rounding of 32-bit sums alone."""
    terms: tuple[QueryTerm, ...]
    signals: tuple[Signal, ...]
    marks: tuple[Mark, ...]  # one for each word of doc.words
    rest: tuple[ScorePart, ...]
    """What belongs to no document word."""
    matrices: tuple[Matrix, ...]
    notes: tuple[str, ...]
    against: Against | None = None
    """None where there are no others, as of a text by itself."""

    @property
    def signal_paths(self) -> list[str]:
        """Those that all signals share; members of an ensemble have their own, and so none."""
        paths = [[share.path for share in signal.paths] for signal in self.signals]
        return paths[0] if paths and all(names == paths[0] for names in paths) else []


def gaps(text: Text) -> Iterator[tuple[int, int, bool]]:
    """What stands before each word that is in the text, and behind the last one; and whether it was
    not read: what is around a passage, or was cut off."""
    at = 0
    begins = text.passage[0] if text.passage else 0
    for word in text.words:
        if word.start is not None and word.stop is not None:
            yield at, word.start, at < begins <= word.start
            at = word.stop
    yield at, len(text.text), bool(text.cut or text.passage)


def is_coloured(explanation: ExplanationData, word: Word, mark: Mark) -> bool:
    """Whether a word has a colour before anybody chooses."""
    if mark.signal is None or not word.telling:
        return False
    return explanation.signals[mark.signal].first_look


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
class PairData:
    """Two explanations and how they differ; `ExplanationPair` prints it."""

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
    values: dict[_Key, float] = {}
    for group, name, path, value in _listed(explanation):
        key = group, name, path
        values[(*key, seen[key])] = value
        seen[key] += 1
    return values


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
