"""One document against the others: each part's value minus its mean over the re-ranked candidates.

A value alone says little: logarithms of soft counts are negative even for words that match well.
The differences add up to the score minus the mean score.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from glassrank.explanations.headlines import headline
from glassrank.explanations.structure import CONTEXT, FIRST_STAGE, Against, Kind, ScorePart
from glassrank.text.english import MARKERS, fold_function_words


class Key(NamedTuple):
    """Names a value in every document. Windows of documents have no names in common, and count
    together."""

    term: int | None
    path: str
    signal: int | None
    name: str
    """Of the kernel, or of a part that belongs to no query word."""


Values = Mapping[Key, float]


class Rival(NamedTuple):
    """The best of the other candidates."""

    doc_id: str
    values: Values


def values_of(root: ScorePart) -> dict[Key, float]:
    """The leaves of a score's tree, by their keys."""
    found: dict[Key, list[float]] = {}
    for key, value in _leaves(root, "", None):
        found.setdefault(key, []).append(value)
    return {key: math.fsum(values) for key, values in found.items()}


def _leaves(part: ScorePart, path: str, term: int | None) -> Iterator[tuple[Key, float]]:
    if part.kind == "member":
        path = f"{part.name}: "
    elif part.kind == "path" or (part.kind == FIRST_STAGE and part.children):
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
    own: Values,
    mean: Values,
    words: Sequence[str],
    *,
    docs: int,
    of: int,
    is_additive: bool,
    rival: Rival | None = None,
) -> Against:
    """Compares with the mean of `docs` candidates; a missing part counts as zero."""
    root = differences(own, mean, words)
    above = None if rival is None else differences(own, rival.values, words)
    name = "" if rival is None else rival.doc_id
    return Against(
        docs,
        of,
        math.fsum(mean.values()),
        root,
        is_additive,
        _heading(docs, of, is_additive),
        headline(root, name, above),
        name,
        above,
    )


def differences(own: Values, others: Values, words: Sequence[str]) -> ScorePart:
    """A tree: content words of the query, largest first; the context; then the rest."""
    keys = [*own, *(key for key in others if key not in own)]
    values = {key: own.get(key, 0.0) - others.get(key, 0.0) for key in keys}
    terms = _largest_first(
        _term(q, word, {key: value for key, value in values.items() if key.term == q})
        for q, word in enumerate(words)
        if any(key.term == q for key in keys)
    )
    written = [word for word in words if word not in MARKERS]
    is_small = dict(zip(written, fold_function_words(written), strict=True))
    content = [term for term in terms if is_small.get(term.name) is False]
    small = [term for term in terms if is_small.get(term.name) is not False]
    rest = _largest_first(
        ScorePart(_name(key), FIRST_STAGE if key.name == FIRST_STAGE else "constant", value)
        for key, value in values.items()
        if key.term is None
    )
    context = [ScorePart.total(CONTEXT, "words", small)] if small else []
    return ScorePart.total("in all", "score", [*content, *context, *rest])


def _heading(docs: int, of: int, is_additive: bool) -> str:
    """
    >>> _heading(64, 1000, True)
    'Against the mean of the first 64 of the 1,000 candidates'
    """
    which = f"{docs:,}" if docs == of else f"first {docs:,} of the {of:,}"
    way = "" if is_additive else ", by leaving query words out"
    return f"Against the mean of the {which} candidates{way}"


def _largest_first(parts: Iterator[ScorePart]) -> list[ScorePart]:
    return sorted(parts, key=lambda part: -abs(part.value))


def _term(q: int, word: str, values: Values) -> ScorePart:
    """By path and kernel, if the model has them."""
    paths: dict[str, list[ScorePart]] = {}
    for key, value in values.items():
        kind: Kind = "signal" if key.signal is not None else "constant"
        paths.setdefault(key.path, []).append(ScorePart(key.name, kind, value, key.signal))
    if list(paths) == [""]:
        return ScorePart(word, "term", paths[""][0].value, q)
    return ScorePart.total(
        word, "term", (_path(path or "model", parts) for path, parts in paths.items()), q
    )


def _path(name: str, parts: list[ScorePart]) -> ScorePart:
    if [part.kind for part in parts] == ["constant"]:
        return ScorePart(name, "path", parts[0].value)
    return ScorePart.total(name, "path", parts)


def _name(key: Key) -> str:
    return key.name if not key.path or key.path == key.name else f"{key.path}: {key.name}"
