"""Snippets: the part of a text that matches a query best."""

from functools import lru_cache, partial
from string import ascii_lowercase, digits
from typing import NamedTuple

from glassrank.text.analysis import Analyzer, WordAnalyzer, word_spans

_LETTERS = frozenset(ascii_lowercase + digits)
_CACHE_LIMIT = 10_000  # entries for one query, whatever its documents contain

Match = tuple[int, int, str]  # start, stop, term

SNIPPET_CHARS = 240  # the default length of a snippet
MAX_CHARS_READ = 20_000  # of a document, so that a snippet of a long one costs no more

_MORE_BEFORE, _MORE_AFTER = "… ", " …"


class Snippet(NamedTuple):
    """`matches` has the (start, stop) of the query's words in `text`."""

    text: str
    matches: tuple[tuple[int, int], ...]

    def add_ellipses(self, *, before: bool, after: bool) -> "Snippet":
        """Adds dots where the text goes on `before` or `after` the snippet.

        >>> Snippet("a cat", ((2, 5),)).add_ellipses(before=True, after=True)
        Snippet(text='… a cat …', matches=((4, 7),))
        """
        prefix = _MORE_BEFORE if before and not self.text.startswith(_MORE_BEFORE) else ""
        suffix = _MORE_AFTER if after and not self.text.endswith(_MORE_AFTER) else ""
        shift = len(prefix)
        matches = tuple((start + shift, stop + shift) for start, stop in self.matches)
        return Snippet(prefix + self.text + suffix, matches)


class SnippetMaker:
    """Makes snippets for a query; it caches the matches of words between documents."""

    def __init__(self, query: str, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        wanted = frozenset(analyzer(query))
        self._prefixes = {word_prefix(term) for term in wanted}
        # Of the text between two spaces.
        self._matches_inside = lru_cache(_CACHE_LIMIT)(partial(_find_matches, wanted))

    def __call__(
        self, text: str, length: int = SNIPPET_CHARS, passage: tuple[int, int] | None = None
    ) -> Snippet:
        """About `length` characters with the most different words of the query, cut between words,
        from the start of the text or from this (start, stop) of it.

        >>> from glassrank.text import EnglishAnalyzer
        >>> SnippetMaker("chasing cat", EnglishAnalyzer())("The dog sleeps. Cats chase mice!", 19)
        Snippet(text='… Cats chase mice!', matches=((2, 6), (7, 12)))
        """
        if passage is not None:
            start = max(0, min(passage[0], passage[1] - length))  # a short one is extended
            stop = max(passage[1], start + length)
            inside = self(text[start:stop], length)
            return inside.add_ellipses(before=start > 0, after=len(text) > stop)
        cut = len(text) > MAX_CHARS_READ
        text = " ".join(text[:MAX_CHARS_READ].split())
        analyzer = self._analyzer.for_text(text)
        lowered = analyzer.lower_case(text)  # positions stay the same
        matches = self._matches(lowered, analyzer)
        context = length // 6  # words before the first match
        start = max(0, min(_best_start(matches, length - context) - context, len(text) - length))
        stop = min(len(text), start + length)
        # Cut between words, except at the start and end of the text.
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
        """(start, stop, term) of the query's terms in a text.

        >>> from glassrank.text import EnglishAnalyzer
        >>> SnippetMaker("chasing cat", EnglishAnalyzer()).matches("A cat chases cats.")
        [(2, 5, 'cat'), (6, 12, 'chase'), (13, 17, 'cat')]
        """
        analyzer = self._analyzer.for_text(text)
        return self._matches(analyzer.lower_case(text), analyzer)

    def _matches(self, lowered: str, analyzer: WordAnalyzer) -> list[Match]:
        """The matches in their order; only parts in which one can start are split into words."""
        if not analyzer.stems_are_prefixes:
            return self._matches_inside(lowered, analyzer)
        places: dict[int, list[Match]] = {}
        for prefix in self._prefixes:
            is_ascii = prefix[0] in _LETTERS
            at = lowered.find(prefix)
            while at >= 0:
                stop = at + 1
                # No word starts at a letter or digit after another one.
                if not (is_ascii and lowered[at - 1 : at] in _LETTERS):
                    start, stop = _around(lowered, at)
                    if start not in places:
                        places[start] = self._matches_inside(lowered[start:stop], analyzer)
                at = lowered.find(prefix, stop)
        return [
            (place + start, place + stop, term)
            for place in sorted(places)
            for start, stop, term in places[place]
        ]


def _find_matches(wanted: frozenset[str], text: str, analyzer: WordAnalyzer) -> list[Match]:
    return [
        (start, stop, term)
        for start, stop in analyzer.spans(text)
        if (term := analyzer.term(text[start:stop])) in wanted
    ]


def make_snippet(query: str, analyzer: Analyzer, text: str, passage: tuple[int, int] | None) -> str:
    """The snippet of a single text."""
    return SnippetMaker(query, analyzer)(text, passage=passage).text


def word_prefix(term: str) -> str:
    """The prefix of every word with this stem: a stem differs from its words in its last two
    characters at most (sensibility, sensibl), a short one in its last (eyed, ei)."""
    return term[: max(1, min(len(term) - 1, 2), len(term) - 2)]


def _best_start(matches: list[Match], length: int) -> int:
    """The start of `length` characters with the most different terms, then the most matches."""
    best_start, best_value = 0, (0, 0)
    first = 0
    inside: dict[str, int] = {}
    for last, (_, stop, term) in enumerate(matches):
        inside[term] = inside.get(term, 0) + 1
        while stop - matches[first][0] > length and first < last:
            term_left = matches[first][2]
            inside[term_left] -= 1
            if not inside[term_left]:
                del inside[term_left]
            first += 1
        value = (len(inside), last + 1 - first)
        if value > best_value:
            best_value, best_start = value, matches[first][0]
    return best_start


def _first_start(lowered: str, start: int) -> int:
    """The start of the first word from `start` on."""
    place = _around(lowered, start)
    while True:
        for begin, _ in _spans(lowered, place):
            if begin >= start:
                return begin
        if place[1] >= len(lowered):
            return start
        place = _around(lowered, place[1] + 1)


def _last_end(lowered: str, begin: int, stop: int) -> int:
    """The end of the last word between `begin` and `stop`."""
    place = _around(lowered, stop)
    while True:
        for start, end in reversed(_spans(lowered, place)):
            if begin <= start and end <= stop:
                return end
        if place[0] <= begin:
            return stop
        place = _around(lowered, place[0] - 1)


def _around(text: str, at: int) -> tuple[int, int]:
    """(start, stop) of the text between the nearest spaces: no word goes beyond."""
    stop = text.find(" ", at)
    return text.rfind(" ", 0, at) + 1, len(text) if stop < 0 else stop


def _spans(text: str, place: tuple[int, int]) -> list[tuple[int, int]]:
    start, stop = place
    return [(start + first, start + last) for first, last in word_spans(text[start:stop])]
