"""Encodes texts as the ids of subwords: WordPiece for a BERT, or what the `tokenizer.json` of a
published model says, which may be BPE or Unigram, too. A text that contains "[SEP]" does not become
a special token: only this module adds those.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.text.words import PADDING, TextIds, limit_text, split_words

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")
_LONGEST_WORD = 100
_PLAIN = bytes([*b"\t\n\r", *range(ord(" "), ord("~") + 1)])
"""A text of other characters, or with a longer word, may not consist of `_WORD`."""
_CACHED_WORDS = 1 << 15


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
        self._lowercase = lowercase
        self._word_ids = lru_cache(_CACHED_WORDS)(self._tokenize_word)
        self._around = [numbers["[CLS]"]], [numbers["[SEP]"]]
        self._tokenizer = _tokenizer(numbers, lowercase)

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """`longest` counts [CLS] and [SEP]; `most_words` truncates first, as in the TK paper."""
        if longest < 2:
            raise InputError(f"a text needs room for [CLS] and [SEP], found a length of {longest}")
        return encode_subwords(self._tokenize, texts, self._around, longest, most_words)

    def _tokenize_word(self, word: str) -> list[int]:
        tokens = self._tokenizer.model.tokenize(word.lower() if self._lowercase else word)
        return [token.id for token in tokens]

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Plain English word by word with a cache, in a third of the tokenizer's time."""
        plain = [_plain_words(text) for text in texts]
        others = [text for text, words in zip(texts, plain, strict=True) if words is None]
        ids_of_others = iter(tokenize_batch(self._tokenizer, others))
        return [
            next(ids_of_others)
            if words is None
            else list(chain.from_iterable(map(self._word_ids, words)))
            for words in plain
        ]


def _plain_words(text: str) -> list[str] | None:
    """The words of a text of plain English; None of any other."""
    if not text.isascii() or text.encode().translate(None, _PLAIN):
        return None
    words: list[str] = _WORD.findall(text)
    return None if max(map(len, words), default=0) > _LONGEST_WORD else words


def encode_subwords(
    tokenize: Callable[[Sequence[str]], list[list[int]]],
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
        TextIds(np.array([*before, *ids[:room], *after], np.int32), cut, max(0, len(ids) - room))
        for ids, cut in zip(tokenize(kept), cut_words, strict=True)
    ]


def tokenize_batch(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of all subwords of each text."""
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [text.ids for text in encoded]


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


Ids = NDArray[np.int64]


class TokenPair(NamedTuple):
    """The ids and types of two texts as one sequence."""

    ids: Ids  # (L,)
    types: Ids  # (L,)


class Token(NamedTuple):
    """A token and its (start, stop) in the text; None for special tokens."""

    text: str
    goes_on: bool  # whether it continues the word of the token before it
    start: int | None = None
    stop: int | None = None


class PublishedTokenizer:
    """Encodes texts with the special tokens of a published model: no name of one is needed."""

    def __init__(self, content: bytes) -> None:
        """`content` is a `tokenizer.json`."""
        from tokenizers import Tokenizer

        try:
            self._tokenizer: Any = Tokenizer.from_str(content.decode("utf-8"))
        except Exception as error:  # the library raises `Exception`
            raise InputError(f"its tokenizer cannot be read: {str(error)[:200]}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is not a special token
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary = [""] * (1 + max(vocabulary.values(), default=0))
        for token, number in vocabulary.items():
            self.vocabulary[number] = token
        self._before, self._after = self._around()
        self._pair = self._around_pair()

    def _around(self) -> tuple[list[int], list[int]]:
        encoded = self._tokenizer.encode("a")
        places = [place for place, text in enumerate(encoded.sequence_ids) if text is not None]
        if not places:
            raise InputError("its tokenizer makes no tokens of a text")
        return encoded.ids[: places[0]], encoded.ids[places[-1] + 1 :]

    def _around_pair(self) -> list[TokenPair]:
        """The parts before, of and between two texts, and after them, with their types."""
        encoded = self._tokenizer.encode("a", "a")
        texts = encoded.sequence_ids
        first, second = ([p for p, t in enumerate(texts) if t == number] for number in (0, 1))
        bounds = [0, first[0], first[-1] + 1, second[0], second[-1] + 1, len(texts)]
        ids, types = np.array(encoded.ids, np.int64), np.array(encoded.type_ids, np.int64)
        return [TokenPair(ids[a:b], types[a:b]) for a, b in pairwise(bounds)]

    @property
    def around(self) -> tuple[int, int]:
        """The numbers of special tokens before a text and after it."""
        return len(self._before), len(self._after)

    @property
    def around_pair(self) -> int:
        """The number of special tokens of a pair of texts."""
        return sum(len(self._pair[place].ids) for place in (0, 2, 4))

    def number(self, token: str) -> int | None:
        """The id of a token."""
        number: int | None = self._tokenizer.token_to_id(token)
        return number

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """At most `longest` ids for each text, special tokens included."""
        around = self._before, self._after
        tokenize = partial(tokenize_batch, self._tokenizer)
        return encode_subwords(tokenize, texts, around, longest, most_words)

    def content(self, ids: NDArray[np.integer]) -> Ids:
        """The ids of an encoded text without special tokens."""
        return ids[len(self._before) : len(ids) - len(self._after)].astype(np.int64)

    def with_prompt(self, prompt: Sequence[int], ids: NDArray[np.integer]) -> Ids:
        """An encoded text with a prompt before it."""
        parts = [self._before, prompt, self.content(ids), self._after]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    def prompt(self, text: str) -> list[int]:
        """The ids of a prompt; the name of a token, such as `[unused0]`, is that token."""
        if (number := self.number(text.strip())) is not None and text.strip():
            return [number]
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def joined(
        self, query: NDArray[np.integer], doc: NDArray[np.integer], longest: int
    ) -> TokenPair:
        """Two encoded texts as one sequence; the second is truncated to fit `longest`."""
        first, second = self.content(query), self.content(doc)
        second = second[: max(0, longest - self.around_pair - len(first))]
        before, of_first, between, of_second, after = self._pair
        ids = [before.ids, first, between.ids, second, after.ids]
        types = [
            before.types,
            np.full(len(first), of_first.types[0]),
            between.types,
            np.full(len(second), of_second.types[0]),
            after.types,
        ]
        return TokenPair(np.concatenate(ids), np.concatenate(types))

    def tokens(self, text: str) -> list[Token]:
        """The tokens of a text for display, without special tokens."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        words = encoded.word_ids
        tokens = []
        for place, (start, stop) in enumerate(encoded.offsets):
            goes_on = place > 0 and words[place] is not None and words[place] == words[place - 1]
            shown = text[start:stop].strip() or encoded.tokens[place]
            tokens.append(Token(shown, goes_on, start, stop))
        return tokens
