"""Words of documents that a store may do without: what says little by itself is much of a text."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.models.ranker import AnyRanker, Words
from glassrank.text.function_words import is_function_word

KINDS: dict[str, Callable[[str], bool]] = {
    "punctuation": lambda word: not any(map(str.isalnum, word)),
    "function-words": is_function_word,
}
"""What can be left out; function words have punctuation among them."""


class LeftOut:
    """Which ids of a vocabulary are left out."""

    def __init__(self, kind: str, model: AnyRanker, vocabulary: Sequence[str]) -> None:
        if kind not in KINDS:
            raise InputError(f"what is left out is {' or '.join(KINDS)}, not {kind!r}")
        if not model.readouts():
            raise InputError(
                f"a {model.name} cannot do without some words of a document; only models can that "
                "count matches word by word, such as tk"
            )
        is_left_out = KINDS[kind]
        # The first ids are padding and the unknown word, or pieces that no text has.
        self._ids = np.array(
            [
                number > 1 and word not in ("[CLS]", "[SEP]", "[UNK]") and is_left_out(word)
                for number, word in enumerate(vocabulary)
            ]
        )

    def kept(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Of ids of any shape, those that stay; one behind the vocabulary is of an unknown word."""
        known = np.minimum(ids, len(self._ids) - 1)
        stays: NDArray[np.bool_] = ~self._ids[known] | (ids >= len(self._ids))
        return stays

    def without(self, words: Words, ids: NDArray[np.integer]) -> Words:
        """Encoded texts (B, L) with these words out of sight."""
        kept = self.kept(ids)  # (B, L)
        if not isinstance(words.mask, np.ndarray):
            kept = words.mask.new_tensor(kept)
        idf = kept[(..., *(None for _ in words.idf.shape[2:]))]
        return words._replace(mask=words.mask * kept, idf=words.idf * idf)
