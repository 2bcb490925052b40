"""From texts to the ids that a model reads, whatever its units are: words, or WordPiece's pieces of
words, which a BERT has vectors for. What a model does not read is counted, never dropped in
silence.

Nothing is stemmed, and punctuation and function words are words too, unless a model was trained
without them. A text of pieces becomes [CLS] pieces [SEP]. One that says "[SEP]" itself has four
pieces there, as for any other characters: only this file puts special pieces in.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.text.english import without_function_words
from glassrank.text.vocabulary import PADDING, Vocabulary
from glassrank.text.word_splitting import split_words


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


LONGEST_READ = 1 << 20
"""Characters. A model reads a few hundred words: of a longer text no more than this is split."""


def readable(text: str) -> tuple[str, int]:
    """What of a text is split into words, and about how many words stand behind that.

    >>> readable("The cat sat.")
    ('The cat sat.', 0)
    """
    if len(text) <= LONGEST_READ:
        return text, 0
    return text[:LONGEST_READ], text.count(" ", LONGEST_READ) + 1


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
            read, behind = readable(text)
            words = split_words(read)
            if self.remove_stop_words:
                words = without_function_words(words)
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


_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class PieceEncoder:
    """`vocabulary` has the pieces by id, as a BERT's `vocab.txt` does."""

    def __init__(self, vocabulary: Sequence[str], lowercase: bool = True) -> None:
        numbers = {piece: number for number, piece in enumerate(vocabulary)}
        missing = [piece for piece in _SPECIAL if piece not in numbers]
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
        read = [readable(text) for text in texts]
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
