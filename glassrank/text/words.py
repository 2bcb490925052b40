"""Texts as words, and as the ids of words that a model reads.

Words are split as the TK papers do: BlingFire's default rules, reimplemented. A word is a run of
letters and digits; every other printed character is a word. The rules below are exceptions, such as
`do n't`, `U.S.A.`, `c++`; the longest match wins, with what it requires after the word. Character
classes come from a table, the same under every version of Unicode. Words are not stemmed.

Id 0 of a vocabulary is padding, id 1 every unknown word; with buckets, an unknown word gets one of
several further ids by its hash, so that a rare word of the query still matches itself.
"""

import re
import threading
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.text.english import remove_function_words

LONGEST_WORD = 300  # longer words are split

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
    splits: bool  # whether the match is split into runs of letters and single characters


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


PADDING = 0
UNKNOWN = 1
_SPECIAL_WORDS = ("<pad>", "<unk>")
_MAX_UNSEEN = 1 << 19
_GROWS = threading.Lock()


class Vocabulary:
    """An ordered set of words; `vocabulary.words[id]` and `vocabulary.ids(words)` are inverse.

    >>> vocabulary = Vocabulary(["cat", "mat"])
    >>> vocabulary.ids(["the", "cat"]).tolist()
    [1, 2]
    """

    def __init__(self, words: Iterable[str], buckets: int = 0) -> None:
        self.buckets = buckets
        self.words: tuple[str, ...] = (*_SPECIAL_WORDS, *words)
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            twice = next(word for word, n in Counter(self.words).items() if n > 1)
            raise InputError(f"the word {twice!r} appears twice in the vocabulary; remove one")
        # A text that contains "<unk>" has an unknown word, not the special one.
        del self._ids[_SPECIAL_WORDS[0]], self._ids[_SPECIAL_WORDS[1]]

    @classmethod
    def build(
        cls,
        texts: Iterable[Iterable[str]],
        min_count: int = 5,
        max_words: int | None = None,
        buckets: int = 0,
    ) -> "Vocabulary":
        """Takes words that occur at least `min_count` times in split texts, frequent ones first, up
        to `max_words`.

        >>> Vocabulary.build([["a", "b"], ["b", "c", "c"]], min_count=2).words
        ('<pad>', '<unk>', 'b', 'c')
        """
        counts: Counter[str] = Counter()
        for words in texts:
            counts.update(words)
        for special in _SPECIAL_WORDS:
            counts.pop(special, None)
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda word: (-counts[word], word))[:max_words], buckets)

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Of words: (L,)."""
        get = self._ids.get
        if not self.buckets:
            return np.fromiter((get(word, UNKNOWN) for word in words), np.int32)
        return np.fromiter((get(word) or self._bucket(word) for word in words), np.int32)

    def _bucket(self, word: str) -> int:
        """An id after those of words; unlike `hash`, it is the same on every machine."""
        number = zlib.crc32(word.encode("utf-8", "surrogatepass")) % self.buckets
        return len(self.words) + number

    @property
    def rows(self) -> int:
        """The number of ids: words, then buckets."""
        return len(self.words) + self.buckets

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)


class GrowingTable(Protocol):
    """N-gram vectors, also for words that were not seen in training."""

    ids_of_unseen: dict[str, int]

    def extend(self, words: Sequence[str]) -> range:
        """New ids for words that are not in the vocabulary."""


class SubwordVocabulary(Vocabulary):
    """A vocabulary of all words: a new word gets an id when it is first read, and the vector of its
    n-grams in each of the tables. New ids last as long as the model is loaded. They are limited, to
    bound a service's memory; further words share the vector of the unknown word."""

    def __init__(self, words: Iterable[str], tables: Sequence[GrowingTable]) -> None:
        super().__init__(words)
        self._tables = tables
        self._unseen = tables[0].ids_of_unseen  # shared by all readers of the model

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Of words: (L,)."""
        words = list(words)
        known, unseen = self._ids, self._unseen
        if any(word not in known and word not in unseen for word in words):
            with _GROWS:
                new = [w for w in dict.fromkeys(words) if w not in known and w not in unseen]
                new = new[: max(0, _MAX_UNSEEN - len(unseen))]
                for numbers in [table.extend(new) for table in self._tables][:1]:
                    unseen.update(zip(new, numbers, strict=True))
        return np.fromiter(
            (known.get(word) or unseen.get(word, UNKNOWN) for word in words), np.int32
        )

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self.ids([word])[0] != UNKNOWN)


class TextIds(NamedTuple):
    """The token ids of a text, and how much of it was truncated."""

    ids: NDArray[np.int32]  # (L,)
    cut_words: int = 0
    cut_subwords: int = 0  # subwords of the words that were kept

    @property
    def cut(self) -> int:
        """Words and subwords together."""
        return self.cut_words + self.cut_subwords


class TextEncoder(Protocol):
    """Encodes each text as at most `longest` ids, optionally of its first `most_words` words."""

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """Ids of each text."""


MAX_TEXT_CHARS = 1 << 20
"""A model reads a few hundred tokens: no more than this of a longer text is split into words."""


def limit_text(text: str) -> tuple[str, int]:
    """The part of a text that is split into words, and the approximate number of words after it.

    >>> limit_text("The cat sat.")
    ('The cat sat.', 0)
    """
    if len(text) <= MAX_TEXT_CHARS:
        return text, 0
    return text[:MAX_TEXT_CHARS], text.count(" ", MAX_TEXT_CHARS) + 1


class WordEncoder:
    """Encodes each word as one id.

    >>> WordEncoder(Vocabulary(["cat"])).encode(["The cat sat."], longest=3)
    [TextIds(ids=array([1, 2, 1], dtype=int32), cut_words=1, cut_subwords=0)]
    """

    def __init__(self, vocabulary: Vocabulary, *, remove_stop_words: bool = False) -> None:
        self.vocabulary = vocabulary
        self.remove_stop_words = remove_stop_words

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """Ids of each text's words."""
        most = longest if most_words is None else min(longest, most_words)
        encoded = []
        for text in texts:
            read, behind = limit_text(text)
            words = split_words(read)
            if self.remove_stop_words:
                words = remove_function_words(words)
            cut = max(0, len(words) - most) + behind
            encoded.append(TextIds(self.vocabulary.ids(words[:most]), cut_words=cut))
        return encoded


def pad(sequences: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Ids (B, L) padded to the longest sequence, at least one, and a mask that is true for tokens.

    >>> pad([np.array([5, 6]), np.array([8])])
    (array([[5, 6],
           [8, 0]], dtype=int32), array([[ True,  True],
           [ True, False]]))
    """
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)  # (B,)
    mask = np.arange(lengths.max(initial=1)) < lengths[:, None]  # (B, L)
    ids = np.full(mask.shape, PADDING, np.int32)
    if len(sequences):
        ids[mask] = np.concatenate(sequences)
    return ids, mask
