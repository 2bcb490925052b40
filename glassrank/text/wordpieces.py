"""WordPiece: texts as the pieces of words that a BERT has vectors for.

A text becomes [CLS] pieces [SEP]. A text that says "[SEP]" itself has four pieces there, as for any
other characters: only this file puts special pieces in.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassrank.errors import InputError
from glassrank.text.encoder import TextIds, readable
from glassrank.text.vocabulary import PADDING
from glassrank.text.word_splitting import split_words

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
