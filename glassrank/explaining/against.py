"""This document against the others: what a person asks first.

A part's value alone says little: logarithms of soft counts are below zero even for words that match
well. Less its mean over the candidates that were re-ranked, it says what puts the document above
them or below. The differences of all parts add up to the score less the mean score.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from glassrank.explaining.structure import Against, Kind, ScorePart
from glassrank.text.english import MARKERS, folded

FIRST_STAGE = "first stage"
FOLDED = "function words and punctuation"
WHOLE = "the query as a whole"
"""What an encoder's first and last piece stand for."""
_WORTH_TELLING = 0.25
"""Of the largest difference: what is smaller is not in the sentence."""
_MOST_TOLD = 3


class Key(NamedTuple):
    """What a value is of, whichever document has it: windows of documents have no names in
    common, and count together."""

    term: int | None
    path: str
    signal: int | None
    name: str
    """Of the kernel, or of what belongs to no query word."""


Values = Mapping[Key, float]


def values_of(root: ScorePart) -> dict[Key, float]:
    """The leaves of a score's tree."""
    found: dict[Key, list[float]] = {}
    for key, value in _leaves(root, "", None):
        found.setdefault(key, []).append(value)
    return {key: math.fsum(values) for key, values in found.items()}


def _leaves(part: ScorePart, path: str, term: int | None) -> Iterator[tuple[Key, float]]:
    if part.kind == "member":
        path = f"{part.name}: "
    elif part.kind == "path":
        path += part.name
    elif part.kind == "term":
        term = part.number
    if not part.children:
        named = part.kind != "term" or part.number is None
        yield (
            Key(term, path, part.number if named else None, part.name if named else ""),
            part.value,
        )
    for child in part.children:
        yield from _leaves(child, path, term)


def against(
    own: Values, mean: Values, words: Sequence[str], *, docs: int, of: int, exact: bool
) -> Against:
    """`own` are the document's values and `mean` those of `docs` others; a part that one of them
    does not have is zero there. `words` are the query's."""
    keys = [*own, *(key for key in mean if key not in own)]
    differences = {key: own.get(key, 0.0) - mean.get(key, 0.0) for key in keys}
    terms = _largest_first(
        _term(q, word, {key: value for key, value in differences.items() if key.term == q})
        for q, word in enumerate(words)
        if any(key.term == q for key in keys)
    )
    written = [word for word in words if word not in MARKERS]
    is_small = dict(zip(written, folded(written), strict=True))
    telling = [term for term in terms if is_small.get(term.name) is False]
    function_words = [term for term in terms if is_small.get(term.name)]
    whole = [term for term in terms if term.name in MARKERS]
    others = _largest_first(
        ScorePart(_name(key), _kind(key), value)
        for key, value in differences.items()
        if key.term is None
    )
    together = [
        ScorePart.total(name, "words", parts)
        for name, parts in ((WHOLE, whole), (FOLDED, function_words))
        if parts
    ]
    root = ScorePart.total("in all", "score", [*telling, *together, *others])
    mean_score = math.fsum(mean.values())
    heading = _heading(docs, of, exact)
    return Against(
        docs, of, mean_score, root, exact, heading, _sentence(root, telling, [*together, *others])
    )


def _heading(docs: int, of: int, exact: bool) -> str:
    """
    >>> _heading(64, 1000, True)
    'Against the mean of the first 64 of 1,000 documents that were re-ranked'
    """
    which = f"{docs:,}" if docs == of else f"first {docs:,} of {of:,}"
    way = "" if exact else ", by leaving words of the query out"
    return f"Against the mean of the {which} documents that were re-ranked{way}"


def _largest_first(parts: Iterator[ScorePart]) -> list[ScorePart]:
    return sorted(parts, key=lambda part: -abs(part.value))


def _term(q: int, word: str, differences: Values) -> ScorePart:
    """By path and kernel, where the model has them."""
    paths: dict[str, list[ScorePart]] = {}
    for key, value in differences.items():
        kind: Kind = "signal" if key.signal is not None else "constant"
        paths.setdefault(key.path, []).append(ScorePart(key.name, kind, value, key.signal))
    if list(paths) == [""]:
        return ScorePart(word, "term", paths[""][0].value, q)
    return ScorePart.total(word, "term", (_path(*path) for path in paths.items()), q)


def _path(name: str, parts: list[ScorePart]) -> ScorePart:
    if [part.kind for part in parts] == ["constant"]:
        return ScorePart(name, "path", parts[0].value)
    return ScorePart.total(name, "path", parts)


def _name(key: Key) -> str:
    return key.name if not key.path or key.path == key.name else f"{key.path}: {key.name}"


def _kind(key: Key) -> Kind:
    return "first stage" if key.name == FIRST_STAGE else "constant"


def _sentence(root: ScorePart, terms: Sequence[ScorePart], others: Sequence[ScorePart]) -> str:
    """
    >>> csv, read = ScorePart("csv", "term", 2.0, 0), ScorePart("read", "term", -0.9, 1)
    >>> _sentence(ScorePart.total("", "score", [csv, read]), [csv, read], [])
    'Above the others for “csv”, below them for “read”.'
    """
    told = [*terms, *(part for part in others if part.kind == "first stage" or part.name == WHOLE)]
    least = _WORTH_TELLING * max((abs(part.value) for part in told), default=0.0)
    above = _told([part for part in told if part.value > 0 and part.value >= least])
    below = _told([part for part in told if part.value < 0 and -part.value >= least])
    if above and below:
        if root.value >= 0:
            return f"Above the others {above}, below them {below}."
        return f"Below the others {below}, above them {above}."
    if above or below:
        return f"Above the others {above}." if above else f"Below the others {below}."
    return "No part of its score differs from the others'."


def _told(parts: Sequence[ScorePart]) -> str:
    """Query words, each once; the query as a whole, and the first stage, of which a word would be
    too little."""
    names = dict.fromkeys(f"“{part.name}”" for part in parts if part.kind == "term")
    words = list(names)[:_MOST_TOLD]
    pieces = []
    if words:
        pieces.append("for " + " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])))
    if any(part.name == WHOLE for part in parts):
        pieces.append(f"for {WHOLE}")
    if any(part.kind == "first stage" for part in parts):
        pieces.append("by the first stage's score")
    if len(pieces) < 3:
        return " and ".join(pieces)
    return f"{', '.join(pieces[:-1])}, and {pieces[-1]}"
