"""Texts of a run as its model reads them: tokenizers, passages, and split texts on disk."""

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from glassrank.errors import InputError
from glassrank.models.doc_reader import PassageReader
from glassrank.models.model import SubwordText
from glassrank.models.pretrained import read_pretrained
from glassrank.models.text_batches import make_text_encoder
from glassrank.research.train.build import load_start_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import find_model_class
from glassrank.research.train.prepared import PassageOffsets
from glassrank.settings import from_plain
from glassrank.text import split_words
from glassrank.text.english import remove_function_words
from glassrank.text.subwords import WordPieceEncoder
from glassrank.text.words import TextEncoder, Vocabulary, WordEncoder
from glassrank.types import Doc

_SEPARATOR = "\n"  # words have no white space
_BLOCK_BYTES = 1 << 22


class TextsOnDisk(Sequence[list[str]]):
    """A list of split texts on disk: eight bytes of memory for each text, where a list of lists has
    an object for each word.

    >>> texts = TextsOnDisk()
    >>> texts.append(["red", "cat"])
    >>> texts.append([])
    >>> texts[0], list(texts)
    (['red', 'cat'], [['red', 'cat'], []])
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def append(self, words: Sequence[str]) -> None:
        """Add a text."""
        text = _SEPARATOR.join(words).encode("utf-8", "surrogatepass")
        self._waiting.append(text)
        self._waiting_bytes += len(text)
        self._ends.append(self._ends[-1] + len(text))
        if self._waiting_bytes > _BLOCK_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(b"".join(self._waiting))
        self._file.flush()
        self._waiting, self._waiting_bytes = [], 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> list[str]: ...
    @overload
    def __getitem__(self, number: slice) -> list[list[str]]: ...
    def __getitem__(self, number: int | slice) -> list[str] | list[list[str]]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self._waiting:
            self._write()
        start, end = self._ends[number], self._ends[number + 1]
        return _decode_words(os.pread(self._file.fileno(), end - start, start))

    def __iter__(self) -> Iterator[list[str]]:
        if self._waiting:
            self._write()
        number = 0
        while number < len(self):  # in blocks: one read for each text would be slow
            start, first = self._ends[number], number
            while number < len(self) and self._ends[number + 1] - start <= _BLOCK_BYTES:
                number += 1
            number = max(number, first + 1)
            block = os.pread(self._file.fileno(), self._ends[number] - start, start)
            for i in range(first, number):
                yield _decode_words(block[self._ends[i] - start : self._ends[i + 1] - start])


def _decode_words(text: bytes) -> list[str]:
    return text.decode("utf-8", "surrogatepass").split(_SEPARATOR) if text else []


Splitter = Callable[[str], list[str]]


def make_splitters(config: TrainConfig, base: Path) -> tuple[Splitter, Splitter]:
    """Functions that split and cut queries and documents. Models on subwords without a limit in
    words get texts split at white space. A checkpoint keeps its own limits."""
    lengths = config.query_length, config.doc_length
    text = subword_text(config, base)
    if text is None:
        query, doc = (partial(_split_and_cut, word_splitter(config), length) for length in lengths)
        return query, doc
    # A word is at least one subword, so this many words always fill the length.
    query, doc = (
        partial(_split_and_cut, str.split, length)
        if words is None
        else partial(_split_and_cut, split_words, words)
        for words, length in zip((text.query_words, text.doc_words), lengths, strict=True)
    )
    return query, doc


def word_splitter(config: TrainConfig) -> Splitter:
    """Split into words, without stop words if the config says so."""
    if not config.remove_stop_words:
        return split_words
    return lambda text: remove_function_words(split_words(text))


def _split_and_cut(split: Splitter, longest: int, text: str) -> list[str]:
    return split(text)[:longest]


def load_tokenizer(config: TrainConfig, base: Path) -> tuple[list[str], TextEncoder] | None:
    """The vocabulary and tokenizer of a pretrained model; None if the texts make the vocabulary."""
    if config.start.model is not None:
        saved = load_start_model(config, base)
        return saved.vocabulary, make_text_encoder(saved, unseen=False)
    if not find_model_class(config).info.uses_subwords:
        return None
    if config.start.bert is None:
        raise InputError(
            f"a {config.model} reads subwords: name their source with start.bert or start.model"
        )
    bert = read_pretrained(config.start.bert, base)
    return bert.vocabulary, WordPieceEncoder(bert.vocabulary, bert.lowercase)


def subword_text(config: TrainConfig, base: Path) -> SubwordText | None:
    """What a model on subwords reads, by its checkpoint if it has one. None for models on words."""
    family = find_model_class(config)
    if not family.info.uses_subwords:
        return None
    settings: Any = (
        from_plain(family.info.config_type, config.config, "config")
        if config.start.model is None
        else load_start_model(config, base).model.config
    )
    text: SubwordText = settings.text
    return text


class PassageDivider:
    """Divides documents into the texts of their passages."""

    def __init__(self, config: TrainConfig, base: Path) -> None:
        known, subwords = load_tokenizer(config, base), subword_text(config, base)
        # Word ids are not known yet; each word takes one position.
        words = WordEncoder(Vocabulary([]), remove_stop_words=config.remove_stop_words)
        self._reader = PassageReader(
            words if known is None else known[1],
            config.doc_length,
            None if subwords is None else subwords.doc_words,
            config.passages,
        )
        self._how = config.passages
        self._offsets = [0]

    def __len__(self) -> int:
        """Number of documents so far."""
        return len(self._offsets) - 1

    def add(self, doc: Doc) -> list[str]:
        """Add a document, and return its texts."""
        texts = self._reader.read([doc])[0].all().texts
        self._offsets.append(self._offsets[-1] + len(texts))
        return texts

    def passages(self) -> PassageOffsets:
        """The passages of all documents added."""
        return PassageOffsets(np.array(self._offsets, np.int64), self._how.best, self._how.first)
