"""Words as the TK papers' systems read them: those of BlingFire's default rules, written anew.

A word is a run of letters and digits; of all else that is printed, each character is a word. The
rules below say where it is otherwise: `do n't`, `U.S.A.`, `3.14`, `c++`, `.net`. At each place the
rule wins that sees most of the text, the character after the word included where it asks for one.

What a character is comes from a table beside this file and not from Python's own: a trained model's
words must be the same ones under every version of Unicode.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

LONGEST_WORD = 300
"""Characters that a rule sees: longer words are cut."""

# Beyond ASCII a character is replaced by one that stands for its class, which keeps rules short.
_STANDS_FOR = {"L": "é", "N": "²", "P": "§", "S": " ", "-": "\1"}
_HYPHENS = "\\-‐‑"  # noqa: RUF001
_KEPT = "´‘’‐‑"  # noqa: RUF001
_LETTER = "A-Za-zé&_"
_WORD = f"[{_LETTER}0-9²]"
_APOSTROPHE = "['`´‘’]"  # noqa: RUF001
# What rules may ask for behind a word. `&` and `_` are letters, but end a word as well.
_END = "(?![A-Za-zé\1])"
_END_NO_DIGIT = "(?![A-Za-zé0-9²\1])"
_INITIALS = rf"(?:[{_LETTER}]\.)+[{_LETTER}]"
_SPACES = "\4-\x20\x7f"


class _Rule(NamedTuple):
    """Each group that the pattern matches is a word."""

    pattern: re.Pattern[str]
    asks: int
    """For so many characters behind them, the end of the text among these."""
    apart: bool
    """Not one word, but as many as its runs of letters and its other characters."""


_RULES = tuple(
    _Rule(re.compile(pattern), asks, apart)
    for pattern, asks, apart in (
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
        # c++, A+, but no longer row
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
# Most words are seen to be of no other rule at a glance.
_JOINT = rf"[+#]|(?:\.|{_APOSTROPHE}){_WORD}"
_CANNOT = "[cC][aA][nN][nN][oO][tT]"
_OTHER = re.compile(
    rf"{_WORD}{{0,{LONGEST_WORD}}}+(?:{_JOINT})|[1-9][0-9]{{0,2}},[0-9]{{3}}|[\[{_HYPHENS}]\]|{_CANNOT}"
)
_OTHER_INSIDE = re.compile(rf"{_JOINT}|,[0-9]{{3}}|\]|{_CANNOT}")
_LAST_INITIALS = re.compile(rf"({_INITIALS})\.[{_SPACES}'\"]*\Z")
"""The last dot of a text ends its sentence, not an abbreviation."""


class _Classes(dict[int, str]):
    """What stands for a character in the rules, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        starts, classes = _class_runs()
        stands = _STANDS_FOR[classes[bisect_right(starts, code) - 1]]
        self[code] = stands
        return stands


@cache
def _class_runs() -> tuple[list[int], str]:
    """Where each run of characters of one class begins, and which: L letters, N digits, P
    punctuation and symbols, S spaces, - what is left out without a trace."""
    runs = Path(__file__).with_name("character_classes.txt").read_text("ascii").split()
    return [int(run[:-1], 16) for run in runs], "".join(run[-1] for run in runs)


_classes = _Classes({code: chr(code) for code in [*range(128), *map(ord, _KEPT)]})
_classes |= {0: " ", 2: "\1", 3: "\1"}
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_NO_SPACE = "\u1680\u2028\u2029"
"""Python would split at these, the rules do not end a word there."""
_TRAILING = "".join(map(chr, [*range(33), 0x7F, 0xA0, *range(0x2000, 0x200C), 0x3000])) + "'\""

_CACHE_LIMIT = 50_000
_LONGEST_CACHED = 64
"""Together about 25 megabytes, whatever strangers search for."""
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
    # No rule sees beyond a space, and most of what stands between two was seen before.
    for piece in text.split():
        words += known(piece) or _remembered(piece)
    return words + last


def _remembered(piece: str) -> list[str]:
    if piece.isascii() and len(piece) < LONGEST_WORD and not _OTHER_INSIDE.search(piece):
        words = _SINGLE.findall(piece.lower())
    else:
        words = list(split_by_rules(piece, ends=False))
    if len(piece) <= _LONGEST_CACHED:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[piece] = words
    return words


def split_by_rules(text: str, ends: bool = True) -> Iterator[str]:
    """By the rules alone: slower, and what `split_words` must agree with. `ends` where this is the
    end of a whole text."""
    text = _HALF_PAIR.sub("?", text)  # as broken JSON may hold
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
    """The words of the rule that wins at a place where there is one."""
    if ends and (initials := _LAST_INITIALS.match(classes, at)):
        rest = _SINGLE.finditer(classes, initials.end(1))
        return [initials.span(1), *(word.span() for word in rest)]
    best, most = None, (0, 0)
    for rule in _RULES:
        match = rule.pattern.match(classes, at)
        if match and (match.end() + rule.asks, match.end()) > most:
            best, most = (rule, match), (match.end() + rule.asks, match.end())
    if best is None:
        return [(at, at + 1)]
    rule, match = best
    if rule.apart:
        return [word.span() for word in _SINGLE.finditer(classes, at, match.end())]
    return [match.span(group + 1) for group in range(rule.pattern.groups)]
