"""The data of an explanation, the same for every model; and the format of numbers and colours.

A *term* is a query word. A *signal* is one kind of evidence: a kernel, a size of n-grams. A *path*
is one way from signals to the score: TK has logarithms of counts, and counts by length.

Values add up before they are rounded for print. The colours are Okabe and Ito's, which colour-blind
people can tell apart; a letter or number and a line style say the same.
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
SIMILAR_DOCS = "similar documents"
"""What the scores of similar candidates add to a document's own, or take away."""
CONTEXT = "context"
"""What [CLS] and [SEP], function words and punctuation add: it belongs to no content word."""

DECIMALS = 4
WORDS_ADD = "What each word of the document adds to the score"


@dataclass(frozen=True)
class Word:
    """A word or subword as the model reads it, and its place in the text: `text[start:stop]`."""

    text: str
    start: int | None
    stop: int | None
    """None if the word is not in the text, as [CLS]; it is then not coloured."""
    known: bool
    """Whether it is in the vocabulary; unknown words share vectors."""
    is_content: bool = True
    """False for function words and punctuation, unless the query has nothing else."""


@dataclass(frozen=True)
class Text:
    """A text, and what the model read of it."""

    text: str
    words: tuple[Word, ...]
    cut: int
    """How many words or subwords at the end the model did not read."""
    passage: tuple[int, int] | None = None
    """Start and stop of the passage that these words are from; the title may be before it."""


@dataclass(frozen=True)
class ScorePart:
    """A named value, which is the sum of its children if it has any."""

    name: str
    kind: Kind
    value: float
    number: int | None = None
    """Of the query word or of the signal."""
    children: tuple["ScorePart", ...] = ()

    @classmethod
    def total(
        cls, name: str, kind: Kind, children: Iterable["ScorePart"], number: int | None = None
    ) -> "ScorePart":
        """A part that is the sum of these children."""
        parts = tuple(children)
        return cls(name, kind, math.fsum(part.value for part in parts), number, parts)

    def leaves(self) -> Iterator["ScorePart"]:
        """The parts without children."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def scaled(self, share: float) -> "ScorePart":
        """Multiplies it and all below it by a share."""
        children = tuple(child.scaled(share) for child in self.children)
        return replace(self, value=self.value * share, children=children)


@dataclass(frozen=True)
class QueryTerm:
    """What one query word adds, in total and on each path."""

    word: int
    value: float
    paths: dict[str, float]


@dataclass(frozen=True)
class PathShare:
    """What a signal adds on a path: weight times signal, where these are known."""

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
    """Whether its words are coloured by default; those of low similarity are not."""


@dataclass(frozen=True)
class Mark:
    """How one document word relates to the query. The shares of all words and `rest` add up to the
    score; those by term, and those by signal, to the word's share."""

    term: int | None
    signal: int | None
    similarity: float | None
    """To that term, the closest query word."""
    share: float
    """What it adds, by a rule of its model: `docs/reference/explanations.md` has them all."""
    by_term: tuple[float, ...]  # (Q,) or none
    by_signal: tuple[float, ...]  # (S,) or none
    stands_out: bool = False
    """Whether it is a content word that adds much, compared with the others."""


@dataclass(frozen=True)
class Matrix:
    """For a heat map. Rows and columns are words of the query or of the document."""

    name: str
    rows: Side
    columns: Side
    values: tuple[tuple[float, ...], ...]
    attention: bool = False
    """Whether each row is a word's attention; otherwise values are similarities."""


@dataclass(frozen=True)
class Against:
    """Each part's value minus its mean over the re-ranked candidates of the query."""

    docs: int
    """How many candidates the means are over, the document itself included if it is one."""
    of: int
    """How many candidates there are."""
    mean: float
    """Of their scores."""
    parts: ScorePart
    """The differences as a tree: content words of the query, largest first; the context as one
    part; then what belongs to no query word. Its root is the score minus the mean."""
    is_additive: bool
    """Whether differences are those of the model's own summands; if not, of what scores lose when a
    query word is left out."""
    heading: str
    """What the document is compared with, in words."""
    sentence: str
    """What decides, in words."""
    rival: str = ""
    """The id of the best other candidate; empty if there is none."""
    above_rival: ScorePart | None = None
    """Each part's value minus the rival's: of the same shape as `parts`."""


@dataclass(frozen=True)
class ExplanationData:
    """The explanation of one score; `Explanation` prints it."""

    query: Text
    doc_id: str
    doc: Text
    model: str
    score: float
    """The model's own, and what similar documents add to it."""
    is_additive: bool
    """Whether the parts are the model's own summands. If not, they still add up, but hold only for
    small changes of this document, or for one word at a time."""
    parts: ScorePart
    """The score as a tree; its root differs from `score` only by the rounding of float32 sums."""
    terms: tuple[QueryTerm, ...]
    signals: tuple[Signal, ...]
    marks: tuple[Mark, ...]  # one for each word of doc.words
    rest: tuple[ScorePart, ...]
    """What belongs to no document word."""
    matrices: tuple[Matrix, ...]
    notes: tuple[str, ...]
    against: Against | None = None
    """None if there are no candidates, as for a single text."""

    @property
    def signal_paths(self) -> list[str]:
        """The paths that all signals share; none for an ensemble, whose members have their own."""
        paths = [[share.path for share in signal.paths] for signal in self.signals]
        return paths[0] if paths and all(names == paths[0] for names in paths) else []


def iter_gaps(text: Text) -> Iterator[tuple[int, int, bool]]:
    """(start, stop, is_unread) of the text before each word, and after the last."""
    at = 0
    begins = text.passage[0] if text.passage else 0
    for word in text.words:
        if word.start is not None and word.stop is not None:
            yield at, word.start, at < begins <= word.start
            at = word.stop
    yield at, len(text.text), bool(text.cut or text.passage)


def is_coloured(explanation: ExplanationData, word: Word, mark: Mark) -> bool:
    """Whether a word is coloured by default: it is close to a query word, or adds much."""
    if mark.signal is None or not word.is_content:
        return False
    return mark.stands_out or explanation.signals[mark.signal].is_highlighted


Group = Literal["score", "part", "signal", "term"]


@dataclass(frozen=True)
class Difference:
    """The difference of one named value; a value that one side lacks counts as zero there."""

    group: Group
    name: str
    path: str
    """Of a signal or term; empty for the sum over all paths."""
    left: float | None
    right: float | None
    difference: float
    """Left minus right: what puts the left document above the right one."""


@dataclass(frozen=True)
class PairData:
    """Two explanations and how they differ; `ExplanationPair` prints it."""

    left: ExplanationData
    right: ExplanationData
    differences: tuple[Difference, ...]
    parts: ScorePart | None = None
    """Left minus right, for two documents and one model: of the shape of `Against.parts`."""
    sentence: str = ""
    """Why one document is above the other, in words; empty for two models."""


def format_number(value: float) -> str:
    """
    >>> format_number(-11.93124), format_number(-0.00001)
    ('-11.9312', '0.0000')
    """
    text = f"{value:.{DECIMALS}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def format_signed(value: float) -> str:
    """
    >>> format_signed(0.25), format_signed(-2), format_signed(0)
    ('+0.2500', '-2.0000', '0.0000')
    """
    text = format_number(value)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


COLOURS = (
    *("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999"),
)
_LETTERS = "abcdefghijklmnoprstuvwxyz"  # Unicode has no superscript q
_RAISED = str.maketrans(f"{_LETTERS}0123456789", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ⁰¹²³⁴⁵⁶⁷⁸⁹")
ARROWS = {"+": "▲", "-": "▼"}
"""By the sign of a printed number: nothing depends on colour alone."""
LINES = ("solid", "double", "dashed", "dotted", "wavy")


def to_letter(place: int) -> str:
    """
    >>> to_letter(0), to_letter(24), to_letter(25)
    ('a', 'z', 'aa')
    """
    name = ""
    while place >= 0:
        name = _LETTERS[place % len(_LETTERS)] + name
        place = place // len(_LETTERS) - 1
    return name


def superscript(name: str) -> str:
    """
    >>> superscript("b12")
    'ᵇ¹²'
    """
    return name.translate(_RAISED)


def pick_colour(place: int) -> str:
    """The colour of a signal or query word, by its number."""
    return COLOURS[place % len(COLOURS)]


def pick_line_style(place: int) -> str:
    """The style of the line below a signal's words."""
    return LINES[place % len(LINES)]
