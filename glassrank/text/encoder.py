"""Encodes texts as the token ids that a model reads: words, or WordPiece subwords for a BERT.

Id 0 of a vocabulary is padding, id 1 every unknown word; with buckets, an unknown word gets one of
several further ids by its hash, so that a rare word of the query still matches itself. Words are
not stemmed. A text that contains "[SEP]" does not become a special token: only this module adds
those.
"""

import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.text.english import remove_function_words
from glassrank.text.word_splitting import split_words

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
    n-grams in each of the tables.

    New ids last as long as the model is loaded. They are limited to half a million, so that the
    memory of a service is bounded; further words share the vector of the unknown word.
    """

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
    cut_subwords: int = 0
    """Subwords of the words that were kept."""

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


_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class WordPieceEncoder:
    """Encodes texts as WordPiece subwords. `vocabulary` has them by id, as BERT's `vocab.txt`."""

    def __init__(self, vocabulary: Sequence[str], lowercase: bool = True) -> None:
        numbers = {token: number for number, token in enumerate(vocabulary)}
        missing = [token for token in _SPECIAL_TOKENS if token not in numbers]
        if missing or numbers["[PAD]"] != PADDING:
            raise InputError(
                "expected the vocabulary of a BERT, with [PAD] first and [UNK], [CLS] and [SEP] "
                + (f"in it; {', '.join(missing)} is missing" if missing else "in it")
            )
        self.vocabulary = tuple(vocabulary)
        self._around = [numbers["[CLS]"]], [numbers["[SEP]"]]
        self._tokenizer = _tokenizer(numbers, lowercase)

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """`longest` counts [CLS] and [SEP]; `most_words` truncates first, as in the TK paper."""
        if longest < 2:
            raise InputError(f"a text needs room for [CLS] and [SEP], found a length of {longest}")
        return encode_subwords(self._tokenizer, texts, self._around, longest, most_words)


def encode_subwords(
    tokenizer: Any,
    texts: Sequence[str],
    around: tuple[Sequence[int], Sequence[int]],
    longest: int,
    most_words: int | None,
) -> list[TextIds]:
    """At most `longest` ids of each text, with the special tokens that stand `around` it."""
    before, after = around
    room = max(0, longest - len(before) - len(after))
    kept, cut_words = [], []
    for text in texts:
        read, cut = limit_text(text)
        # Half a surrogate pair, as in broken JSON, has no UTF-8 form.
        read = read.encode("utf-8", "replace").decode()
        if most_words is not None:
            words = split_words(read)
            read, cut = " ".join(words[:most_words]), cut + max(0, len(words) - most_words)
        kept.append(read)
        cut_words.append(cut)
    return [
        TextIds(
            np.array([*before, *encoded.ids[:room], *after], np.int32),
            cut,
            max(0, len(encoded.ids) - room),
        )
        for encoded, cut in zip(
            tokenizer.encode_batch(kept, add_special_tokens=False), cut_words, strict=True
        )
    ]


def _tokenizer(numbers: dict[str, int], lowercase: bool) -> Any:
    """A tokenizer without special tokens, which it would find in texts."""
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    except ImportError:
        raise InputError(
            "WordPiece needs the package tokenizers; pip install tokenizers", code="missing_package"
        ) from None
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
