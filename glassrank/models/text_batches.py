"""Texts as a model reads them: token ids, cut to its lengths, in batches of similar length; and a
filter of tokens that a store can do without."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.threads import map_parallel, num_threads
from glassrank.errors import InputError
from glassrank.models.doc_reader import PassageReader
from glassrank.models.io.model_folder import SavedModel
from glassrank.models.model import Model, TokenEmbeddings
from glassrank.text import Vocabulary
from glassrank.text.english import is_function_word
from glassrank.text.subwords import WordPieceEncoder
from glassrank.text.words import SubwordVocabulary, TextEncoder, WordEncoder

Result = TypeVar("Result")


def make_passage_reader(saved: SavedModel) -> PassageReader:
    """How a model reads documents: as passages where they are longer than what it reads."""
    usage, subwords = saved.usage, saved.model.subword_text
    most_words = None if subwords is None else subwords.doc_words
    return PassageReader(make_text_encoder(saved), usage.doc_length, most_words, usage.passages)


def make_text_encoder(saved: SavedModel, *, unseen: bool = True) -> TextEncoder:
    """The tokenizer of a model: words, or subwords. Without `unseen`, words of n-grams that are not
    in the vocabulary get no ids of their own, which would not outlast the process."""
    if saved.tokenizer is not None:
        return saved.tokenizer
    subwords = saved.model.subword_text
    if subwords is not None:
        return WordPieceEncoder(saved.vocabulary, subwords.lowercase)
    words, buckets = saved.vocabulary[2:], saved.unknown_buckets
    removed = saved.usage.remove_stop_words
    if saved.model.device is None or not unseen:  # the former has no PyTorch
        return WordEncoder(Vocabulary(words, buckets), remove_stop_words=removed)
    tables = [ranker.words for ranker in saved.model.rankers()]
    grow = all(table is not None and table.has_ngrams for table in tables)
    vocabulary = SubwordVocabulary(words, tables) if grow else Vocabulary(words, buckets)
    return WordEncoder(vocabulary, remove_stop_words=removed)


def batch_by_length(lengths: NDArray[np.int64], at_once: int) -> Iterator[NDArray[np.int64]]:
    """Indices of texts, shortest first, in batches of about `at_once` tokens with padding.

    >>> [batch.tolist() for batch in batch_by_length(np.array([3, 1, 2, 9]), at_once=6)]
    [[1, 2], [0], [3]]
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        # A text is as long as its batch's longest, which stands last.
        cost = lengths[order[start:]].clip(min=1) * np.arange(1, len(order) - start + 1)
        size = max(1, int(np.searchsorted(cost, at_once, side="right")))
        yield order[start : start + size]
        start += size


def map_batches(
    work: Callable[[NDArray[np.int64]], Result],
    lengths: NDArray[np.int64],
    at_once: int,
    model: Model,
    *,
    alone: bool = False,
) -> Iterator[Result]:
    """Calls `work` with the batches of `batch_by_length`. On a CPU each thread takes a batch,
    unless the model uses intra-op threads; a GPU takes one batch at a time. With `alone` every text
    is a batch of its own in one thread: its result depends neither on other texts nor on the
    threads."""
    on_cpu = model.device is None or model.device.type == "cpu"
    small = on_cpu and (alone or not model.info.uses_intra_op_threads)
    threads = num_threads() if small else 1
    order = np.argsort(lengths, kind="stable")
    # Every thread gets short and long texts, so that all end at the same time.
    shares = [order[thread::threads] for thread in range(min(threads, len(order)))]
    batches = [
        [share[batch] for batch in batch_by_length(lengths[share], 1 if alone else at_once)]
        for share in shares
    ]
    for group in zip_longest(*batches):
        some = [batch for batch in group if batch is not None]
        if small:
            yield from map_parallel(work, some)
        else:
            yield work(some[0])


KINDS: dict[str, Callable[[str], bool]] = {
    "punctuation": lambda word: not any(map(str.isalnum, word)),
    "function-words": is_function_word,
}
"""Kinds of tokens that can be left out; function words include punctuation."""


class TokenFilter:
    """Leaves a kind of tokens out of documents."""

    def __init__(self, kind: str, model: Model, vocabulary: Sequence[str]) -> None:
        if kind not in KINDS:
            raise InputError(f"what is left out is {' or '.join(KINDS)}, not {kind!r}")
        if not model.scoring_heads():
            raise InputError(
                f"a {model.name} cannot do without some words of a document; only models can that "
                "count matches word by word, such as tk"
            )
        is_left_out = KINDS[kind]
        # The first ids are special tokens, which no text has.
        self._ids = np.array(
            [
                number > 1 and word not in ("[CLS]", "[SEP]", "[UNK]") and is_left_out(word)
                for number, word in enumerate(vocabulary)
            ]
        )

    def kept(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which ids stay, in any shape; ids of unknown words do."""
        known = np.minimum(ids, len(self._ids) - 1)
        stays: NDArray[np.bool_] = ~self._ids[known] | (ids >= len(self._ids))
        return stays

    def without(self, words: TokenEmbeddings, ids: NDArray[np.integer]) -> TokenEmbeddings:
        """Token embeddings (B, L) with those tokens masked."""
        kept = self.kept(ids)  # (B, L)
        if not isinstance(words.mask, np.ndarray):
            kept = words.mask.new_tensor(kept)
        idf = kept[(..., *(None for _ in words.idf.shape[2:]))]
        return words._replace(mask=words.mask * kept, idf=words.idf * idf)
