"""What decides, in a sentence: the content words, or the context, that put a document where it is,
and what the best other candidate lacks; or why one of two documents is above the other.
"""

from collections.abc import Sequence

from glassrank.explanations.structure import CONTEXT, FIRST_STAGE, SIMILAR_DOCS, ScorePart

_MIN_SHARE = 0.25  # of the largest difference: smaller ones are not in the sentence
_MAX_WORDS, _MAX_RIVAL_WORDS = 3, 2
_MAIN_SHARE = 0.6  # of all that words add: a word that adds more is the main one


def quote(names: Sequence[str]) -> str:
    """
    >>> quote(["csv", "read", "csv", "file"])
    '“csv”, “read” and “file”'
    """
    return _join([f"“{name}”" for name in dict.fromkeys(names)])


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def headline(parts: ScorePart, rival: str = "", above_rival: ScorePart | None = None) -> str:
    """
    >>> csv, read = ScorePart("csv", "term", 2.0, 0), ScorePart("read", "term", -0.9, 1)
    >>> headline(ScorePart.total("", "score", [csv, read]))
    '“csv” lifts it above the others, though it has less of “read”.'
    >>> headline(ScorePart.total("", "score", [csv]), "d2", ScorePart.total("", "score", [read]))
    '“csv” lifts it above the others. d2 is ahead of it for “read”.'
    """
    leads = above_rival is not None and above_rival.value >= 0
    sentence = _against_mean(parts, leads)
    return sentence if above_rival is None else f"{sentence} {_against_rival(rival, above_rival)}"


def _against_mean(parts: ScorePart, leads: bool) -> str:
    more, less = _content(parts, 1, _MAX_WORDS), _content(parts, -1, _MAX_WORDS)
    if parts.value < 0:
        if not less:
            return "It fits the query less than the others do, by no word alone."
        return f"It has less of {quote(less)} than the others{_though(more, 'more')}."
    if _context(parts) > _sum(parts, more):
        other = f", more than by {quote(more)}" if more else ""
        return f"It fits the query as a whole{other}."
    if not more:
        return "No word sets it apart from the others."
    one = len(set(more)) == 1
    is_main = not one and _sum(parts, more[:1]) > _MAIN_SHARE * _sum(parts, more)
    mostly = f", mostly “{more[0]}”" if is_main else ""
    verb, where = ("put", "first") if leads else ("lift", "above the others")
    return f"{quote(more)} {verb}{'s' if one else ''} it {where}{mostly}{_though(less, 'less')}."


def _though(names: Sequence[str], how: str) -> str:
    return f", though it has {how} of {quote(names[:2])}" if names else ""


def _against_rival(rival: str, parts: ScorePart) -> str:
    """What the next document lacks; or, if this one is not first, what the first has more of."""
    if parts.value >= 0:
        missing_words = _content(parts, 1, _MAX_RIVAL_WORDS)
        if _context(parts) > _sum(parts, missing_words):
            return f"{rival}, the next, fits the query as a whole less."
        if missing_words:
            return f"{rival}, the next, has less of {quote(missing_words)}."
        return f"{rival}, the next, is as good by every word."
    has = _content(parts, -1, _MAX_RIVAL_WORDS)
    if -_similar(parts) > max(-_context(parts), -_sum(parts, has)):
        return f"{rival} is ahead of it: documents similar to {rival} score higher."
    if -_context(parts) > -_sum(parts, has) or not has:
        return f"{rival} is ahead of it: it fits the query as a whole better."
    return f"{rival} is ahead of it for {quote(has)}."


def pair_headline(left: str, right: str, parts: ScorePart) -> str:
    """`parts` are left minus right.

    >>> place, sort = ScorePart("place", "term", 1.25, 0), ScorePart("sort", "term", -0.4, 1)
    >>> pair_headline("list.sort", "sorted", ScorePart.total("", "score", [place, sort]))
    'list.sort stands above sorted for “place” (+1.25); sorted has more of “sort” (+0.40).'
    >>> similar = ScorePart(SIMILAR_DOCS, "constant", 0.5)
    >>> pair_headline("csv", "json", ScorePart.total("", "score", [similar]))
    'csv stands above json as documents similar to it score higher (+0.50).'
    """
    if not parts.value:
        return "Both have the same score."
    if parts.value < 0:
        negated = [child.scaled(-1) for child in parts.children]
        return pair_headline(right, left, ScorePart.total("", "score", negated))
    more, less = (_largest(parts, sign, _MAX_WORDS) for sign in (1, -1))
    reasons = [f"for {_quote_values(more)}"] if more else []
    for value, reason in (
        (_context(parts), "it fits the query as a whole"),
        (_similar(parts), "documents similar to it score higher"),
    ):
        if value > 0 and (not more or value >= _MIN_SHARE * more[0].value):
            reasons.append(f"as {reason} (+{value:.2f})")
    why = ", and ".join(reasons) or "by no word alone"
    other = f"; {right} has more of {_quote_values(less)}" if less else ""
    return f"{left} stands above {right} {why}{other}."


def _quote_values(parts: Sequence[ScorePart]) -> str:
    return _join([f"“{part.name}” (+{abs(part.value):.2f})" for part in parts])


def _largest(parts: ScorePart, sign: int, most: int) -> list[ScorePart]:
    """Content words that are above zero, or below, and not small compared with the largest."""
    terms = [part for part in parts.children if part.kind == "term"]
    least = _MIN_SHARE * max((abs(part.value) for part in terms), default=0.0)
    kept = [part for part in terms if sign * part.value > 0 and abs(part.value) >= least]
    return sorted(kept, key=lambda part: -sign * part.value)[:most]


def _content(parts: ScorePart, sign: int, most: int) -> list[str]:
    return [part.name for part in _largest(parts, sign, most)]


def _sum(parts: ScorePart, names: Sequence[str]) -> float:
    return sum(part.value for part in parts.children if part.kind == "term" and part.name in names)


def _context(parts: ScorePart) -> float:
    return sum(part.value for part in parts.children if part.name in (CONTEXT, FIRST_STAGE))


def _similar(parts: ScorePart) -> float:
    return sum(part.value for part in parts.children if part.name == SIMILAR_DOCS)
