"""Where word vectors come from: a file, one's own texts, a sentence encoder, or chance.

    vectors = read_vectors("glove.42B.300d.txt.gz", vocabulary)
    print(vectors)     # how many words were found, how many drawn

All give `WordVectors`, a row for each word of a vocabulary. `subword_vectors` and `read_subwords`
give `SubwordVectors`, which have a vector for any word.
"""

import numpy as np

from glassrank.text.vector_files import read_subwords, read_vectors
from glassrank.text.vector_training import (
    from_sentence_transformer,
    subword_vectors,
    train_word2vec,
)
from glassrank.text.vocabulary import PADDING, Vocabulary
from glassrank.text.word_vectors import SubwordVectors, WordVectors

__all__ = [
    "SubwordVectors",
    "WordVectors",
    "from_sentence_transformer",
    "random_vectors",
    "read_subwords",
    "read_vectors",
    "subword_vectors",
    "train_word2vec",
]


def random_vectors(
    vocabulary: Vocabulary, size: int = 300, *, deviation: float = 0.4, seed: int = 0
) -> WordVectors:
    """For training from nothing, and to know what vectors are worth. GloVe's values deviate by
    about as much.

    >>> random_vectors(Vocabulary(["cat", "mat"]), 50)
    WordVectors(2 words of 50 values, 0 found, 2 drawn)
    """
    values = np.random.default_rng(seed).standard_normal((len(vocabulary), size), np.float32)
    values *= np.float32(deviation)
    values[PADDING] = 0
    return WordVectors(values, found=0)
