"""Texts of a run as its model reads them: tokenizers, passages, and split texts on disk."""

import os
import tempfile
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.models.doc_reader import PassageReader, join_title
from glassrank.models.model import SubwordText
from glassrank.models.pretrained import read_pretrained
from glassrank.models.text_batches import make_text_encoder
from glassrank.research.train.build import load_start_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import find_model_class
from glassrank.settings import from_plain
from glassrank.text import split_words
from glassrank.text.english import remove_function_words
from glassrank.text.subwords import WordPieceEncoder
from glassrank.text.words import TextEncoder, Vocabulary, WordEncoder
from glassrank.types import Doc

_SEPARATOR = "\n"  # words have no white space
_BLOCK_BYTES = 1 << 22
_BATCH_SIZE = 1024


class TextsOnDisk:
    """Split texts on disk: eight bytes of memory for each text, where a list of lists has an object
    for each word."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=_BLOCK_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])

    def append(self, words: Sequence[str]) -> None:
        """Add a text."""
        size = self._file.write(_SEPARATOR.join(words).encode("utf-8", "surrogatepass"))
        self._ends.append(self._ends[-1] + size)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[list[str]]:
        self._file.flush()
        number = 0
        while number < len(self):  # in blocks: one read for each text would be slow
            first, start = number, self._ends[number]
            number = max(first + 1, bisect_right(self._ends, start + _BLOCK_BYTES) - 1)
            block = os.pread(self._file.fileno(), self._ends[number] - start, start)
            for begin, end in pairwise(self._ends[first : number + 1]):
                text = block[begin - start : end - start].decode("utf-8", "surrogatepass")
                yield text.split(_SEPARATOR) if text else []


Splitter = Callable[[str], list[str]]


class Tokenizer(NamedTuple):
    """What a pretrained model reads texts with."""

    vocabulary: list[str]
    encoder: TextEncoder
    text: SubwordText | None
    """None for a model on words."""

    def read(self, texts: Iterable[Sequence[str]], longest: int) -> Iterator[NDArray[np.int32]]:
        """Token ids of split texts, cut to a length."""
        waiting = iter(texts)
        while some := [" ".join(words) for words in islice(waiting, _BATCH_SIZE)]:
            yield from (text.ids for text in self.encoder.encode(some, longest))


def load_tokenizer(config: TrainConfig, base: Path) -> Tokenizer | None:
    """None if the texts make the vocabulary."""
    if config.start.model is not None:
        saved = load_start_model(config, base)
        encoder = make_text_encoder(saved, unseen=False)
        return Tokenizer(saved.vocabulary, encoder, saved.model.subword_text)
    family = find_model_class(config)
    if not family.info.uses_subwords:
        return None
    if config.start.bert is None:
        raise InputError(
            f"a {config.model} reads subwords: name their source with start.bert or start.model"
        )
    bert = read_pretrained(config.start.bert, base)
    settings: Any = from_plain(family.info.config_type, config.config, "config")
    encoder = WordPieceEncoder(bert.vocabulary, bert.lowercase)
    return Tokenizer(bert.vocabulary, encoder, settings.text)


def make_splitters(config: TrainConfig, known: Tokenizer | None) -> tuple[Splitter, Splitter]:
    """Functions that split and cut queries and documents. Models on subwords without a limit in
    words get texts split at white space. A checkpoint keeps its own limits."""
    text = None if known is None else known.text
    limits = (None, None) if text is None else (text.query_words, text.doc_words)
    # A word is at least one subword, so this many words always fill the length.
    usual = word_splitter(config) if text is None else str.split

    def make(words: int | None, length: int) -> Splitter:
        split, longest = (usual, length) if words is None else (split_words, words)
        return lambda text: split(text)[:longest]

    query, doc = map(make, limits, config.lengths)
    return query, doc


def word_splitter(config: TrainConfig) -> Splitter:
    """Split into words, without stop words if the config says so."""
    if not config.remove_stop_words:
        return split_words
    return lambda text: remove_function_words(split_words(text))


def make_divider(config: TrainConfig, known: Tokenizer | None) -> Callable[[Doc], list[str]]:
    """A function that divides a document into the texts that training reads."""
    if config.train_on == "beginnings":
        return lambda doc: [join_title(doc)]
    # Word ids are not known yet; each word takes one position.
    words = WordEncoder(Vocabulary([]), remove_stop_words=config.remove_stop_words)
    reader = PassageReader(
        words if known is None else known.encoder,
        config.doc_length,
        None if known is None or known.text is None else known.text.doc_words,
        config.passages,
    )
    return lambda doc: reader.read([doc])[0].all().texts
