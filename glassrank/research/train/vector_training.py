"""Makes word vectors: word2vec and fastText from texts, from a sentence encoder, or random ones.

T. Mikolov, I. Sutskever, K. Chen, G. Corrado, J. Dean, "Distributed Representations of Words and
Phrases and their Compositionality", NIPS 2013: negative sampling. A sentence encoder was trained on
far more text: each word is encoded by itself, and reduced to its principal components.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, needs_extra
from glassrank.models.published_files import check_folder
from glassrank.progress import say_progress
from glassrank.research.papers.word_vectors import SubwordVectors, WordVectors
from glassrank.text.words import PADDING, UNKNOWN, Vocabulary

_GENSIM_MAX_WORDS = 10_000  # gensim silently truncates longer texts
_BLOCK, _WORDS_AT_ONCE = 1 << 16, 1024
_DEVIATION = 0.4
"""Of random vectors: about that of GloVe's values."""


def _import(module: str) -> Any:
    with needs_extra("train"):
        return import_module(module)


def train_word2vec(
    texts: Iterable[Sequence[str]],
    vocabulary: Vocabulary,
    size: int,
    *,
    window: int = 5,
    seed: int = 0,
) -> WordVectors:
    """Trains a continuous bag of words with negative sampling. `texts` are split into words, and
    read several times; words that do not occur get random vectors."""
    vectors = _train("Word2Vec", texts, vocabulary, vector_size=size, window=window, seed=seed)
    numbers = vectors.key_to_index
    rows = np.array([numbers.get(word, -1) for word in vocabulary.words], np.int64)  # (V,)
    matrix = np.zeros((len(vocabulary), size), np.float32)  # (V, E)
    matrix[rows >= 0] = vectors.vectors[rows[rows >= 0]]
    return WordVectors.complete(matrix, rows >= 0, seed)


def train_fasttext(
    texts: Iterable[Sequence[str]],
    vocabulary: Vocabulary,
    size: int,
    *,
    buckets: int = 200_000,
    window: int = 5,
    seed: int = 0,
) -> SubwordVectors:
    """Trains fastText in the same way, with n-grams of 3 to 6 letters in `buckets`."""
    sizes = {"vector_size": size, "min_n": 3, "max_n": 6, "bucket": buckets}
    vectors = _train("FastText", texts, vocabulary, window=window, seed=seed, **sizes)
    table = np.concatenate([vectors.vectors_vocab, vectors.vectors_ngrams])  # (W + buckets, E)
    return SubwordVectors(
        vectors.index_to_key, table.astype(np.float32, copy=False), vectors.min_n, vectors.max_n
    )


def _train(
    name: str, texts: Iterable[Sequence[str]], vocabulary: Vocabulary, **options: int
) -> Any:
    keep, discard = (getattr(_import("gensim.utils"), f"RULE_{r}") for r in ("KEEP", "DISCARD"))
    chunks = _Chunks(texts)
    kind = getattr(_import("gensim.models"), name)
    # One worker gives the same vectors for the same seed.
    model = kind(sg=0, hs=0, min_count=1, negative=5, epochs=5, workers=1, **options)
    model.build_vocab(chunks, trim_rule=lambda word, *_: keep if word in vocabulary else discard)
    if not len(model.wv):
        raise InputError("none of the vocabulary's words occurs in the training texts")
    model.train(chunks, total_examples=model.corpus_count, epochs=model.epochs)
    return model.wv


class _Chunks:
    """Texts in chunks that gensim reads to their end."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[list[str]]:
        for text in self.texts:
            for start in range(0, len(text), _GENSIM_MAX_WORDS):
                yield list(text[start : start + _GENSIM_MAX_WORDS])


def from_encoder(
    vocabulary: Vocabulary,
    encode: Callable[[list[str]], NDArray[Any]],  # texts to vectors (N, F)
    size: int,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> WordVectors:
    """Encodes every word by itself, and reduces the vectors to `size` principal components."""
    words = list(vocabulary.words[UNKNOWN + 1 :])
    if not words:
        raise InputError("the vocabulary has no words")
    width = encode(words[:1]).shape[1]  # checked before the long work starts
    if not 1 <= size <= width:
        raise InputError(
            f"vectors of size {size} cannot be made from an encoder of size {width}; "
            f"the largest size is {width}"
        )
    encoded = np.empty((len(words), width), np.float32)  # (N, F)
    starts = range(0, len(words), _WORDS_AT_ONCE)
    for start in say_progress(starts, "words", len(words), say, at_once=_WORDS_AT_ONCE):
        some = slice(start, start + _WORDS_AT_ONCE)
        encoded[some] = encode(words[some])
    matrix = np.zeros((len(vocabulary), size), np.float32)  # (V, E)
    matrix[UNKNOWN + 1 :] = principal_components(encoded, size)
    known = np.arange(len(vocabulary)) > UNKNOWN
    return WordVectors.complete(matrix, known, seed)


def principal_components(vectors: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Projects centred rows (N, F) on the `size` directions of largest variance, in that order."""
    mean = vectors.mean(0, dtype=np.float64)  # (F,)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))  # (F, F)
    for start in range(0, len(vectors), _BLOCK):  # float64 of all rows would need much memory
        block = vectors[start : start + _BLOCK] - mean
        covariance += block.T @ block
    directions = np.linalg.eigh(covariance)[1][:, ::-1][:, :size]  # (F, E)
    # The sign of a direction is arbitrary: fix it, so that every machine agrees.
    largest = np.abs(directions).argmax(0)
    directions = directions * np.sign(directions[largest, np.arange(size)])
    reduced = np.empty((len(vectors), size), np.float32)  # (N, E)
    for start in range(0, len(vectors), _BLOCK):
        reduced[start : start + _BLOCK] = (vectors[start : start + _BLOCK] - mean) @ directions
    return reduced


def random_vectors(vocabulary: Vocabulary, size: int, *, seed: int = 0) -> WordVectors:
    """Random vectors, as a baseline."""
    values = np.random.default_rng(seed).standard_normal((len(vocabulary), size), np.float32)
    values *= np.float32(_DEVIATION)
    values[PADDING] = 0
    return WordVectors(values, found=0)


def load_sentence_transformer(folder: str | Path) -> Any:
    """Loads a local folder; nothing is downloaded or unpickled."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; expected one with a sentence-transformer")
    package = _import("sentence_transformers")
    check_folder(folder)
    try:
        return package.SentenceTransformer(
            str(folder),
            device=None,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # the package raises many kinds of errors
        raise InputError(
            f"{folder} could not be loaded as a sentence-transformer: {type(error).__name__}: "
            f"{' '.join(str(error).split())}"
        ) from None
