"""The part of a text that shows best why it was found."""

from string import ascii_lowercase, digits
from typing import NamedTuple

from glassrank.text.analysis import Analyzer, WordAnalyzer
from glassrank.text.word_breaks import word_spans

_LETTERS = frozenset(ascii_lowercase + digits)
_PLACES_KEPT = 10_000
"""Of one query's documents, whatever stands in them."""

Match = tuple[int, int, str]
"""Start, stop, term."""

SNIPPET_CHARS = 240
"""Of a snippet, in characters, unless another is asked for."""
MAX_CHARS_READ = 20_000
"""Of a document: a snippet costs no more than this, however long the document is."""


_MORE_BEFORE, _MORE_AFTER = "… ", " …"


class Snippet(NamedTuple):
    """`matches` are (start, stop) of the query's words in `text`."""

    text: str
    matches: tuple[tuple[int, int], ...]

    def within(self, *, before: bool, after: bool) -> "Snippet":
        """Of a part of a text, with dots where there is more `before` or `after` it.

        >>> Snippet("a cat", ((2, 5),)).within(before=True, after=True)
        Snippet(text='… a cat …', matches=((4, 7),))
        """
        prefix = _MORE_BEFORE if before and not self.text.startswith(_MORE_BEFORE) else ""
        suffix = _MORE_AFTER if after and not self.text.endswith(_MORE_AFTER) else ""
        shift = len(prefix)
        matches = tuple((start + shift, stop + shift) for start, stop in self.matches)
        return Snippet(prefix + self.text + suffix, matches)


class SnippetMaker:
    """Snippets for one query: what is known of a word in one document is known in the next."""

    def __init__(self, query: str, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._wanted = frozenset(analyzer(query))
        self._beginnings = {word_prefix(term) for term in self._wanted}
        # language, and what stands between two spaces -> its matches
        self._inside: dict[tuple[str, str], list[Match]] = {}

    def __call__(
        self, text: str, length: int = SNIPPET_CHARS, passage: tuple[int, int] | None = None
    ) -> Snippet:
        """About `length` characters around the most different words of the query, on word
        boundaries, from the part of the text that is read, or from these characters of it.

        >>> from glassrank.text import EnglishAnalyzer
        >>> SnippetMaker("chasing cat", EnglishAnalyzer())("The dog sleeps. Cats chase mice!", 19)
        Snippet(text='… Cats chase mice!', matches=((2, 6), (7, 12)))
        """
        if passage is not None:
            start = max(0, min(passage[0], passage[1] - length))  # a short one with what is before
            stop = max(passage[1], start + length)
            inside = self(text[start:stop], length)
            return inside.within(before=start > 0, after=len(text) > stop)
        cut = len(text) > MAX_CHARS_READ
        text = " ".join(text[:MAX_CHARS_READ].split())
        analyzer = self._analyzer.for_text(text)
        lowered = analyzer.lower_case(text)  # character by character, so positions stay
        matches = self._matches(lowered, analyzer)
        context = length // 6  # some words before the first match
        start = max(0, min(_best_start(matches, length - context) - context, len(text) - length))
        stop = min(len(text), start + length)
        # Cut between words, unless the cut is the text's own begin or end.
        begin = _first_start(lowered, start) if start > 0 else 0
        end = _last_end(lowered, begin, stop) if stop < len(text) else stop
        prefix = _MORE_BEFORE if begin > 0 else ""
        suffix = _MORE_AFTER if cut or end < len(text) else ""
        shift = len(prefix) - begin
        return Snippet(
            prefix + text[begin:end] + suffix,
            tuple((s + shift, e + shift) for s, e, _ in matches if s >= begin and e <= end),
        )

    def matches(self, text: str) -> list[Match]:
        """Where the query's terms stand in a text, and which.

        >>> from glassrank.text import EnglishAnalyzer
        >>> SnippetMaker("chasing cat", EnglishAnalyzer()).matches("A cat chases cats.")
        [(2, 5, 'cat'), (6, 12, 'chase'), (13, 17, 'cat')]
        """
        analyzer = self._analyzer.for_text(text)
        return self._matches(analyzer.lower_case(text), analyzer)

    def _matches(self, lowered: str, analyzer: WordAnalyzer) -> list[Match]:
        """Words of the query, in their order. Only where such a word can begin, the text is cut
        into words: a long one has few such places."""
        if not analyzer.stems_keep_beginnings:
            return self._matches_inside(lowered, analyzer)
        places: dict[int, list[Match]] = {}
        for beginning in self._beginnings:
            plain = beginning[0] in _LETTERS
            at = lowered.find(beginning)
            while at >= 0:
                stop = at + 1
                # Where a letter or digit stands before another, no word begins.
                if not (plain and lowered[at - 1 : at] in _LETTERS):
                    start, stop = _around(lowered, at)
                    if start not in places:
                        places[start] = self._matches_inside(lowered[start:stop], analyzer)
                at = lowered.find(beginning, stop)
        return [
            (place + start, place + stop, term)
            for place in sorted(places)
            for start, stop, term in places[place]
        ]

    def _matches_inside(self, text: str, analyzer: WordAnalyzer) -> list[Match]:
        key = analyzer.language, text
        matches = self._inside.get(key)
        if matches is None:
            term_of, wanted = analyzer.term, self._wanted
            if len(self._inside) >= _PLACES_KEPT:
                self._inside.clear()
            matches = self._inside[key] = [
                (start, stop, term)
                for start, stop in analyzer.spans(text)
                if (term := term_of(text[start:stop])) in wanted
            ]
        return matches


def make_snippet(query: str, analyzer: Analyzer, text: str, passage: tuple[int, int] | None) -> str:
    """Of one text by itself: nothing is done for a query before it is asked for."""
    return SnippetMaker(query, analyzer)(text, passage=passage).text


def word_prefix(term: str) -> str:
    """What every word of this term begins with: stems end otherwise than their words in two
    characters at most (sensibility, sensibl), short ones in one (eyed, ei)."""
    return term[: max(1, min(len(term) - 1, 2), len(term) - 2)]


def _best_start(matches: list[Match], length: int) -> int:
    """Of so many characters with the most different terms, and then the most matches."""
    best_start, best_value = 0, (0, 0)
    first = 0
    inside: dict[str, int] = {}
    for last, (_, stop, term) in enumerate(matches):
        inside[term] = inside.get(term, 0) + 1
        while stop - matches[first][0] > length and first < last:
            gone = matches[first][2]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            first += 1
        value = (len(inside), last + 1 - first)
        if value > best_value:
            best_value, best_start = value, matches[first][0]
    return best_start


def _first_start(lowered: str, start: int) -> int:
    """Where the first word begins from here on."""
    place = _around(lowered, start)
    while True:
        for begin, _ in _spans(lowered, place):
            if begin >= start:
                return begin
        if place[1] >= len(lowered):
            return start
        place = _around(lowered, place[1] + 1)


def _last_end(lowered: str, begin: int, stop: int) -> int:
    """Where the last word ends up to `stop`, of those that begin from `begin` on."""
    place = _around(lowered, stop)
    while True:
        for start, end in reversed(_spans(lowered, place)):
            if begin <= start and end <= stop:
                return end
        if place[0] <= begin:
            return stop
        place = _around(lowered, place[0] - 1)


def _around(text: str, at: int) -> tuple[int, int]:
    """From the space before this place to the one after it: no word goes beyond."""
    stop = text.find(" ", at)
    return text.rfind(" ", 0, at) + 1, len(text) if stop < 0 else stop


def _spans(text: str, place: tuple[int, int]) -> list[tuple[int, int]]:
    start, stop = place
    return [(start + first, start + last) for first, last in word_spans(text[start:stop])]
