"""Documents' texts to rows: split into words, batched with others of like length, encoded."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.errors import InputError
from glassrank.models import TokenBatch, Words
from glassrank.models.checkpoint import SavedModel, fingerprint
from glassrank.models.fast import fast_form
from glassrank.store.manifest import IDS, Layout, stride
from glassrank.store.reuse import Piece
from glassrank.store.rows import DTYPES, pack
from glassrank.text import Vocabulary, pad, split_words

_TOKENS_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""A batch holds so many words with padding: on a CPU few enough for its caches, on a GPU enough to
keep it busy."""


class DocEncoder:
    """A model with its vocabulary, and the rows that it makes."""

    def __init__(self, saved: SavedModel, dtype: str, device: str = "cpu") -> None:
        if dtype not in DTYPES:
            raise InputError(f"unknown dtype {dtype!r}; expected {', '.join(DTYPES)}")
        try:
            self._device = torch.device(device)
            self._model = saved.model.to(self._device).eval()
            # Whoever stores float32 wants the model's own numbers.
            self._encoder = self._model if dtype == "float32" else fast_form(self._model)
        except (AssertionError, RuntimeError) as error:  # torch's ways to say that there is none
            reason = str(error).partition("\n")[0]
            raise InputError(f"the device {device!r} cannot be used: {reason}") from None
        self._vocabulary = Vocabulary(saved.vocabulary[2:], saved.unknown_buckets)
        self._doc_length = saved.usage.doc_length
        self.layout = self._layout(saved, dtype)

    def _layout(self, saved: SavedModel, dtype: str) -> Layout:
        axes: tuple[int, ...] = ()
        idf_axes: tuple[int, ...] = ()
        if self._model.stores_words:  # one word, to see what the model makes of it
            words = self._encode([np.ones(1, np.int32)])
            axes, idf_axes = tuple(words.vectors.shape[2:]), tuple(words.idf.shape[2:])
        words_digest = hashlib.blake2b("\n".join(saved.vocabulary).encode(), digest_size=8)
        return Layout(
            model=self._model.name,
            fingerprint=fingerprint(self._model),
            vocabulary=words_digest.hexdigest(),
            doc_length=self._doc_length,
            dtype=dtype if axes else IDS,
            axes=axes,
            idf_axes=idf_axes,
            stride=stride(int(np.prod(axes))) if axes else 1,
        )

    def encode(self, texts: Sequence[str], docs: NDArray[np.int64]) -> Iterator[Piece]:
        """Rows of those texts of a block whose places are given."""
        ids = [self._words(texts[i]) for i in docs]
        lengths = np.array([len(words) for words in ids], np.int64)
        if self.layout.dtype == IDS:
            rows = np.concatenate([np.empty(0, np.int32), *ids])[:, None]  # (T, 1)
            yield Piece(docs, lengths, {IDS: rows})
            return
        for batch in _like_length(lengths, self._at_once):
            words = self._encode([ids[i] for i in batch])
            # By the model's own mask: it may read fewer words than it was given, or add some.
            vectors: Tensor = words.vectors.flatten(2)[words.mask.bool()]  # (T, E)
            counts = words.mask.sum(1).long().cpu().numpy()
            yield Piece(docs[batch], counts, pack(vectors, self.layout))

    def _words(self, text: str) -> NDArray[np.int32]:
        """Ids of the words that the model reads."""
        return self._vocabulary.ids(split_words(text))[: self._doc_length]

    @property
    def _at_once(self) -> int:
        return _TOKENS_AT_ONCE["cpu" if self._device.type == "cpu" else "cuda"]

    @torch.no_grad()
    def _encode(self, ids: Sequence[NDArray[np.int32]]) -> Words:
        padded = pad(ids, min_length=1)
        return self._encoder.encode_doc(
            TokenBatch(
                torch.from_numpy(padded.ids).to(self._device),
                torch.from_numpy(padded.mask).float().to(self._device),
            )
        )


def _like_length(lengths: NDArray[np.int64], at_once: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of texts, shortest first, in batches of about as many words with padding."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        # A text is as long as its batch's longest, which stands last.
        cost = lengths[order[start:]].clip(min=1) * np.arange(1, len(order) - start + 1)
        size = max(1, int(np.searchsorted(cost, at_once, side="right")))
        yield order[start : start + size]
        start += size
