"""From texts to the ids that a model reads, whatever its units are: words of a vocabulary, or
WordPiece's pieces of words, which a BERT has vectors for. What a model does not read is counted,
never dropped in silence.

A vocabulary has the words that a collection uses often enough. Id 0 is padding and id 1 stands for
every other word. With buckets, such a word has one of several further ids by its hash: two rare
words then seldom pass for one another, and a rare word of the query still finds itself in a
document. Where vectors are made of n-grams, no word is missing at all.

Nothing is stemmed, and punctuation and function words are words too, unless a model was trained
without them. A text of pieces becomes [CLS] pieces [SEP]. One that says "[SEP]" itself has four
pieces there, as for any other characters: only this file puts special pieces in.
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
_MOST_UNSEEN = 1 << 19
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
        # Not words of any text: a text that says "<unk>" has the unknown word all the same.
        del self._ids[_SPECIAL_WORDS[0]], self._ids[_SPECIAL_WORDS[1]]

    @classmethod
    def build(
        cls,
        texts: Iterable[Iterable[str]],
        min_count: int = 5,
        most: int | None = None,
        buckets: int = 0,
    ) -> "Vocabulary":
        """From texts split into words: those that occur `min_count` times, frequent ones first, and
        no more than `most` of them.

        >>> Vocabulary.build([["a", "b"], ["b", "c", "c"]], min_count=2).words
        ('<pad>', '<unk>', 'b', 'c')
        """
        counts: Counter[str] = Counter()
        for words in texts:
            counts.update(words)
        for special in _SPECIAL_WORDS:
            counts.pop(special, None)
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda word: (-counts[word], word))[:most], buckets)

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Of words: (L,)."""
        get = self._ids.get
        if not self.buckets:
            return np.fromiter((get(word, UNKNOWN) for word in words), np.int32)
        return np.fromiter((get(word) or self._bucket(word) for word in words), np.int32)

    def _bucket(self, word: str) -> int:
        """Behind the words; the same on every machine, as Python's own hash is not."""
        number = zlib.crc32(word.encode("utf-8", "surrogatepass")) % self.buckets
        return len(self.words) + number

    @property
    def rows(self) -> int:
        """How many ids there are: words, then buckets."""
        return len(self.words) + self.buckets

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)


class GrowingTable(Protocol):
    """Vectors that are made of n-grams, for words that training has not seen too."""

    ids_of_unseen: dict[str, int]

    def extend(self, words: Sequence[str]) -> range:
        """Ids, after those there are, for words that the vocabulary lacks."""


class SubwordVocabulary(Vocabulary):
    """A vocabulary that no word is missing from: one that was not there in training gets an id of
    its own when it is first read, and its n-grams' vector in each of the tables.

    Ids last as long as the model is loaded, and there are half a million of them: a service would
    otherwise grow with what strangers ask. Words beyond share the unknown word's vector.
    """

    def __init__(self, words: Iterable[str], tables: Sequence[GrowingTable]) -> None:
        super().__init__(words)
        self._tables = tables
        self._unseen = tables[0].ids_of_unseen  # of the model, which several readers share

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Of words: (L,)."""
        words = list(words)
        known, unseen = self._ids, self._unseen
        if any(word not in known and word not in unseen for word in words):
            with _GROWS:
                new = [w for w in dict.fromkeys(words) if w not in known and w not in unseen]
                new = new[: max(0, _MOST_UNSEEN - len(unseen))]
                for numbers in [table.extend(new) for table in self._tables][:1]:
                    unseen.update(zip(new, numbers, strict=True))
        return np.fromiter(
            (known.get(word) or unseen.get(word, UNKNOWN) for word in words), np.int32
        )

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self.ids([word])[0] != UNKNOWN)


class TextIds(NamedTuple):
    """One text as ids, and how much of it they leave out."""

    ids: NDArray[np.int32]  # (L,)
    cut_words: int = 0
    cut_pieces: int = 0
    """Of the words that were kept."""

    @property
    def cut(self) -> int:
        """Words and pieces together."""
        return self.cut_words + self.cut_pieces


class TextEncoder(Protocol):
    """At most `longest` ids for each text, of at most `most_words` words where that is given."""

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """Ids of each text."""


MAX_TEXT_CHARS = 1 << 20
"""Characters. A model reads a few hundred words: of a longer text no more than this is split."""


def limit_text(text: str) -> tuple[str, int]:
    """What of a text is split into words, and about how many words stand behind that.

    >>> limit_text("The cat sat.")
    ('The cat sat.', 0)
    """
    if len(text) <= MAX_TEXT_CHARS:
        return text, 0
    return text[:MAX_TEXT_CHARS], text.count(" ", MAX_TEXT_CHARS) + 1


class WordEncoder:
    """One id for each word.

    >>> WordEncoder(Vocabulary(["cat"])).encode(["The cat sat."], longest=3)
    [TextIds(ids=array([1, 2, 1], dtype=int32), cut_words=1, cut_pieces=0)]
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


class Batch(NamedTuple):
    """Ids, padded at the end, and a mask that is true where a word stands.

    `cut` says how many words of each sequence did not fit: nothing is dropped in silence.
    """

    ids: NDArray[np.int32]  # (B, L)
    mask: NDArray[np.bool_]  # (B, L)
    cut: NDArray[np.int64]  # (B,)


def pad(
    sequences: Sequence[NDArray[np.int32]], max_length: int | None = None, min_length: int = 0
) -> Batch:
    """Pads to the longest sequence, at least `min_length`; cuts what passes `max_length`.

    >>> pad([np.array([5, 6, 7]), np.array([8])], max_length=2)
    Batch(ids=array([[5, 6],
           [8, 0]], dtype=int32), mask=array([[ True,  True],
           [ True, False]]), cut=array([1, 0]))
    """
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)  # (B,)
    kept = lengths if max_length is None else np.minimum(lengths, max_length)  # (B,)
    width = max(min_length, int(kept.max(initial=0)))
    mask = np.arange(width) < kept[:, None]  # (B, L)
    ids = np.full(mask.shape, PADDING, np.int32)
    if len(sequences):
        ids[mask] = np.concatenate(
            [sequence[:n] for sequence, n in zip(sequences, kept.tolist(), strict=True)]
        )
    return Batch(ids, mask, lengths - kept)


_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class WordPieceEncoder:
    """`vocabulary` has the pieces by id, as a BERT's `vocab.txt` does."""

    def __init__(self, vocabulary: Sequence[str], lowercase: bool = True) -> None:
        numbers = {piece: number for number, piece in enumerate(vocabulary)}
        missing = [piece for piece in _SPECIAL_PIECES if piece not in numbers]
        if missing or numbers["[PAD]"] != PADDING:
            raise InputError(
                "expected the vocabulary of a BERT, with [PAD] first and [UNK], [CLS] and [SEP] "
                + (f"in it; {', '.join(missing)} is missing" if missing else "in it")
            )
        self.vocabulary = tuple(vocabulary)
        self._first, self._last = numbers["[CLS]"], numbers["[SEP]"]
        self._tokenizer = _tokenizer(numbers, lowercase)

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """`longest` counts [CLS] and [SEP]. With `most_words`, a text is first split into words
        and cut there, as the TK paper gives BERT its texts; without, pieces alone are counted."""
        if longest < 2:
            raise InputError(f"a text needs room for [CLS] and [SEP], found a length of {longest}")
        read = [limit_text(text) for text in texts]
        cut_words = [behind for _, behind in read]
        kept = [_sound(text) for text, _ in read]
        if most_words is not None:
            split = [split_words(text) for text, _ in read]
            cut_words = [
                behind + max(0, len(words) - most_words)
                for words, (_, behind) in zip(split, read, strict=True)
            ]
            kept = [" ".join(words[:most_words]) for words in split]
        encoded = self._tokenizer.encode_batch(kept, add_special_tokens=False)
        room = longest - 2
        return [
            TextIds(
                np.array([self._first, *pieces.ids[:room], self._last], np.int32),
                cut,
                max(0, len(pieces.ids) - room),
            )
            for pieces, cut in zip(encoded, cut_words, strict=True)
        ]


def _sound(text: str) -> str:
    """Half a surrogate pair, as broken JSON may hold, cannot be handed on."""
    return text.encode("utf-8", "replace").decode()


def _tokenizer(numbers: dict[str, int], lowercase: bool) -> Any:
    """Without special tokens of its own: it would find them in texts."""
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    except ImportError:
        raise InputError(
            "a BERT's pieces need the package tokenizers; pip install tokenizers"
        ) from None
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
