"""The tokenizer of a published model, from its `tokenizer.json`: WordPiece, BPE or Unigram. Special
tokens come from the tokenizer itself: no name of one is needed here.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.text.encoder import TextIds, encode_subwords

Ids = NDArray[np.int64]


class TokenPair(NamedTuple):
    """The ids and types of two texts as one sequence."""

    ids: Ids  # (L,)
    types: Ids  # (L,)


class Token(NamedTuple):
    """A token and its (start, stop) in the text; None for special tokens."""

    text: str
    goes_on: bool
    """Whether it continues the word of the token before it."""
    start: int | None = None
    stop: int | None = None


class PublishedTokenizer:
    """Encodes texts with the special tokens of the model."""

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
        return encode_subwords(self._tokenizer, texts, around, longest, most_words)

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
