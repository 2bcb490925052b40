"""What an explanation is: one structure of named parts, the same for every model. And how numbers
and colours are printed: one way, so that terminal, HTML and page never differ.

Whoever draws it never asks which model it shows. Three words recur. A *term* is a query word. A
*signal* is one kind of evidence that a model looks for: a kernel, a size of n-grams. A *path* is
one way on which signals become score: TK has logarithms of counts, and counts by length.

Printed values are rounded; they add up before rounding, and JSON has them in full. The colours are
Okabe and Ito's, which colour-blind people can tell apart. Every signal and every query word also
has a letter or number of its own, which is written behind the words it marks, and a line style
below them: nothing is said by colour alone.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal[
    "score", "member", "path", "window", "words", "term", "signal", "first stage", "constant"
]
Side = Literal["query", "document"]

FIRST_STAGE: Literal["first stage"] = "first stage"
CONTEXT = "context"
"""What an encoder's first and last piece, function words and punctuation add: it is of no content
word, and the model does not say of which it should be."""

DECIMALS = 4
WORDS_ADD = "What each word of the document adds to the score"
"""What "adds" means, wherever it is said."""


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
    is_content: bool = True
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
    """(D,) from 0 to 1: how much each document word has of it, for scale_columns of a colour."""
    is_highlighted: bool = True
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
    """What it adds, by a rule of its model: `docs/reference/explanations.md` has them all."""
    by_term: tuple[float, ...]  # (Q,) or none
    by_signal: tuple[float, ...]  # (S,) or none
    stands_out: bool = False
    """Whether it is a content word that adds much beside what the others add."""


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
    """The differences as a tree: content words of the query, largest first; the context as one
    part; then what is of no query word. Its root is the score less the mean."""
    is_additive: bool
    """Whether differences are of the model's own summands; if not, of what scores lose when a query
    word is left out."""
    heading: str
    """Against what, for people."""
    sentence: str
    """What decides, for people."""
    rival: str = ""
    """The id of the best of the others; empty where there is none."""
    above_rival: ScorePart | None = None
    """Each part's value less the rival's: of the same shape as `parts`."""


@dataclass(frozen=True)
class ExplanationData:
    """All that is said of one score; `Explanation` prints it."""

    query: Text
    doc_id: str
    doc: Text
    model: str
    score: float
    """The model's own."""
    is_additive: bool
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
    """Whether a word has a colour before anybody chooses: it is close to a query word, or adds."""
    if mark.signal is None or not word.is_content:
        return False
    return mark.stands_out or explanation.signals[mark.signal].is_highlighted


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
    parts: ScorePart | None = None
    """Left less right, of two documents and one model: of the shape of `Against.parts`."""
    sentence: str = ""
    """Why one document stands above the other, for people; empty of two models."""


def number(value: float) -> str:
    """
    >>> number(-11.93124), number(-0.00001)
    ('-11.9312', '0.0000')
    """
    text = f"{value:.{DECIMALS}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float) -> str:
    """
    >>> signed(0.25), signed(-2), signed(0)
    ('+0.2500', '-2.0000', '0.0000')
    """
    text = number(value)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


COLOURS = (
    *("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"),
)
_LETTERS = "abcdefghijklmnoprstuvwxyz"
_RAISED = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"
"""Letters as a terminal can raise them; there is no q."""
LINES = ("solid", "double", "dashed", "dotted", "wavy")


def letter(place: int) -> str:
    """
    >>> letter(0), letter(24), letter(25)
    ('a', 'z', 'aa')
    """
    name = ""
    while place >= 0:
        name = _LETTERS[place % len(_LETTERS)] + name
        place = place // len(_LETTERS) - 1
    return name


def raised(place: int) -> str:
    """
    >>> raised(1)
    'ᵇ'
    """
    return letter(place).translate(str.maketrans(_LETTERS, _RAISED))


def raised_number(place: int) -> str:
    """Of a query word, counted from 1.

    >>> raised_number(0), raised_number(11)
    ('¹', '¹²')
    """
    return str(place + 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def colour(place: int) -> str:
    """Of a signal or a query word, by its number."""
    return COLOURS[place % len(COLOURS)]


def line(place: int) -> str:
    """The style of the line below it."""
    return LINES[place % len(LINES)]
