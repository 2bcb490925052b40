"""The part of a text that shows best why it was found."""

from collections import Counter
from typing import NamedTuple

from glassrank.text import EnglishAnalyzer
from glassrank.text.english import lower_case
from glassrank.text.word_breaks import word_spans

CHARACTERS_READ = 20_000
"""Of a document: a snippet costs no more than this, however long the document is."""


class Snippet(NamedTuple):
    """`matches` are (start, stop) of the query's words in `text`."""

    text: str
    matches: tuple[tuple[int, int], ...]


def make_snippet(text: str, query: str, analyzer: EnglishAnalyzer, length: int = 240) -> Snippet:
    """About `length` characters around the most different words of the query, on word boundaries,
    from the part of the text that is read.

    >>> make_snippet("The dog sleeps. Cats chase mice!", "chasing cat", EnglishAnalyzer(), 19)
    Snippet(text='… Cats chase mice!', matches=((2, 6), (7, 12)))
    """
    cut = len(text) > CHARACTERS_READ
    text = " ".join(text[:CHARACTERS_READ].split())
    wanted = set(analyzer(query))
    lowered = lower_case(text)  # character by character, so positions stay
    spans = list(word_spans(lowered))
    matches = [
        (start, stop, term)
        for start, stop in spans
        if (term := analyzer.term(lowered[start:stop])) in wanted
    ]
    context = length // 6  # some words before the first match
    best_start, best_value = 0, (0, 0)
    first = 0
    inside: Counter[str] = Counter()
    for last, (_, stop, term) in enumerate(matches):
        inside[term] += 1
        while stop - matches[first][0] > length - context and first < last:
            gone = matches[first][2]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            first += 1
        value = (len(inside), last + 1 - first)
        if value > best_value:
            best_value, best_start = value, matches[first][0]
    start = max(0, min(best_start - context, len(text) - length))
    stop = min(len(text), start + length)
    # Cut between words, unless the cut is the text's own begin or end.
    begin = next((s for s, _ in spans if s >= start), start) if start > 0 else 0
    ends = [e for s, e in spans if s >= begin and e <= stop]
    end = max(ends, default=stop) if stop < len(text) else stop
    prefix = "… " if begin > 0 else ""
    suffix = " …" if cut or end < len(text) else ""
    shift = len(prefix) - begin
    return Snippet(
        prefix + text[begin:end] + suffix,
        tuple((s + shift, e + shift) for s, e, _ in matches if s >= begin and e <= end),
    )
