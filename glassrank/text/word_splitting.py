"""Splits words as the TK papers do: BlingFire's default rules, reimplemented.

A word is a run of letters and digits; every other printed character is a word. The rules below are
exceptions, such as `do n't`, `U.S.A.`, `c++`; the longest match wins, with what it requires after
the word. Character classes come from a table, the same under every version of Unicode.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

LONGEST_WORD = 300
"""Longer words are split."""

# Characters beyond ASCII are replaced by a representative of their class, which keeps rules short.
_STANDS_FOR = {"L": "é", "N": "²", "P": "§", "S": " ", "-": "\1"}
_HYPHENS = "\\-‐‑"  # noqa: RUF001
_KEPT = "´‘’‐‑"  # noqa: RUF001
_LETTER = "A-Za-zé&_"
_WORD = f"[{_LETTER}0-9²]"
_APOSTROPHE = "['`´‘’]"  # noqa: RUF001
# What may follow a word. `&` and `_` are letters, but also end a word.
_END = "(?![A-Za-zé\1])"
_END_NO_DIGIT = "(?![A-Za-zé0-9²\1])"
_INITIALS = rf"(?:[{_LETTER}]\.)+[{_LETTER}]"
_SPACES = "\4-\x20\x7f"


class _Rule(NamedTuple):
    """A pattern; each of its groups is a word."""

    pattern: re.Pattern[str]
    lookahead: int
    """The number of characters required after the words; the end of the text counts as one."""
    splits: bool
    """Whether the match is split into runs of letters and single characters."""


_RULES = tuple(
    _Rule(re.compile(pattern), lookahead, splits)
    for pattern, lookahead, splits in (
        (f"({_WORD}+)", 0, False),
        (f"([cC][aA][nN])([nN][oO][tT]){_END}", 1, False),
        # you'd, we'll, apple's, shouldn't
        (f"({_WORD}+)({_APOSTROPHE}(?:ll|LL|[rv]e|RE|VE|[dDsS]|on|ON|il|IL)){_END}", 1, False),
        (f"({_WORD}+)([nN]{_APOSTROPHE}[tT]){_END}", 1, False),
        # o'clock, l'amour
        (f"((?:[lLcCjJdDtTsSoO]|[qQ][uU]){_APOSTROPHE})({_WORD}+){_END}", 1, False),
        # e.g. U.S.A
        (rf"({_INITIALS}\.)", 0, False),
        (rf"({_INITIALS}\.?){_END}", 1, False),
        # 10,000.50 and 3.14, 2.95.3, 10bn, .99
        (rf"([1-9][0-9]?[0-9]?(?:,[0-9]{{3}})+(?:\.[0-9]+)?[{_LETTER}]*){_END_NO_DIGIT}", 1, False),
        (rf"([0-9]+(?:\.[0-9]+){{0,2}}[{_LETTER}]*){_END_NO_DIGIT}", 1, False),
        (rf"(\.[0-9]+[{_LETTER}]*){_END_NO_DIGIT}", 1, False),
        # c++, A+, but not more
        (rf"([A-Za-z]+\+\+?){_END}", 1, False),
        (r"([A-Za-z]+\+\+\++)", 0, True),
        # C#, D#m7
        ("([A-Ga-g]#)(?![é\1])", 1, False),
        # www.example.org
        (rf"((?:{_WORD}+\.)+{_WORD}+)", 0, True),
        # an empty list, an arrow's end
        (rf"([\[{_HYPHENS}]\])", 0, False),
        # .net, .mp3
        (rf"(\.[A-Za-z0-9]+){_END}", 1, False),
    )
)
_SINGLE = re.compile(rf"{_WORD}{{1,{LONGEST_WORD}}}|[^{_LETTER}0-9²\0-\x20\x7f^`´]")  # noqa: RUF001
"""Runs of letters and digits, and punctuation."""
# A quick test shows that most words match no other rule.
_JOINT = rf"[+#]|(?:\.|{_APOSTROPHE}){_WORD}"
_CANNOT = "[cC][aA][nN][nN][oO][tT]"
_OTHER = re.compile(
    rf"{_WORD}{{0,{LONGEST_WORD}}}+(?:{_JOINT})|[1-9][0-9]{{0,2}},[0-9]{{3}}|[\[{_HYPHENS}]\]|{_CANNOT}"
)
_OTHER_INSIDE = re.compile(rf"{_JOINT}|,[0-9]{{3}}|\]|{_CANNOT}")
_LAST_INITIALS = re.compile(rf"({_INITIALS})\.[{_SPACES}'\"]*\Z")
"""The last dot of a text ends a sentence, not an abbreviation."""


class _Classes(dict[int, str]):
    """The representative of each character, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        starts, classes = _class_runs()
        self[code] = representative = _STANDS_FOR[classes[bisect_right(starts, code) - 1]]
        return representative


@cache
def _class_runs() -> tuple[list[int], str]:
    """The start of each run of characters of a class, and the classes: L letters, N digits, P
    punctuation and symbols, S spaces, - ignored."""
    runs = Path(__file__).with_name("character_classes.txt").read_text("ascii").split()
    return [int(run[:-1], 16) for run in runs], "".join(run[-1] for run in runs)


_classes = _Classes({code: chr(code) for code in [*range(128), *map(ord, _KEPT)]})
_classes |= {0: " ", 2: "\1", 3: "\1"}
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_NO_SPACE = "\u1680\u2028\u2029"  # Python splits at these, the rules do not
_TRAILING = "".join(map(chr, [*range(33), 0x7F, 0xA0, *range(0x2000, 0x200C), 0x3000])) + "'\""

_CACHE_LIMIT = 50_000
_MAX_CACHED_CHARS = 64  # together about 25 MB, whatever the texts are
_cache: dict[str, list[str]] = {}


def split_words(text: str) -> list[str]:
    """
    >>> split_words("How do I read a CSV-file? I can't.")
    ['how', 'do', 'i', 'read', 'a', 'csv', '-', 'file', '?', 'i', 'ca', "n't", '.']
    """
    for character in _NO_SPACE:
        text = text.replace(character, "\1")
    last: list[str] = []
    ended = text.rstrip(_TRAILING)
    if ended[-3::2] == "..":
        start = len(ended) - len(ended.rsplit(maxsplit=1)[-1])
        text, last = text[:start], list(split_by_rules(text[start:], ends=True))
    words: list[str] = []
    known = _cache.get
    # No rule goes beyond a space, and most parts between spaces are cached.
    for part in text.split():
        words += known(part) or _split_part(part)
    return words + last


def _split_part(part: str) -> list[str]:
    """Splits a text without spaces, and caches the result."""
    if part.isascii() and len(part) < LONGEST_WORD and not _OTHER_INSIDE.search(part):
        words = _SINGLE.findall(part.lower())
    else:
        words = list(split_by_rules(part, ends=False))
    if len(part) <= _MAX_CACHED_CHARS:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[part] = words
    return words


def split_by_rules(text: str, ends: bool = True) -> Iterator[str]:
    """By the rules alone, slower; `ends` says that this is the end of the text."""
    text = _HALF_PAIR.sub("?", text)  # as in broken JSON
    classes = text.translate(_classes)
    at = 0
    while single := _SINGLE.search(classes, at):
        at, stop = single.span()
        if not _OTHER.match(classes, at):
            yield text[at:stop].lower()
            at = stop
            continue
        seen, of = classes, at
        if len(classes) - at > LONGEST_WORD:
            seen, of = classes[at : at + LONGEST_WORD] + "\1", 0
        for start, stop in _words_at(seen, of, ends):
            yield text[start - of + at : stop - of + at].lower()
        at += stop - of


def _words_at(classes: str, at: int, ends: bool) -> list[tuple[int, int]]:
    if ends and (initials := _LAST_INITIALS.match(classes, at)):
        rest = _SINGLE.finditer(classes, initials.end(1))
        return [initials.span(1), *(word.span() for word in rest)]
    best, longest = None, (0, 0)
    for rule in _RULES:
        match = rule.pattern.match(classes, at)
        if match and (match.end() + rule.lookahead, match.end()) > longest:
            best, longest = (rule, match), (match.end() + rule.lookahead, match.end())
    if best is None:
        return [(at, at + 1)]
    rule, match = best
    if rule.splits:
        return [word.span() for word in _SINGLE.finditer(classes, at, match.end())]
    return [match.span(group + 1) for group in range(rule.pattern.groups)]
