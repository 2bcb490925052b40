"""Documents' texts to rows: as ids, batched with others of like length, encoded."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.errors import InputError
from glassrank.models import Ranker, Words
from glassrank.models.checkpoint import SavedModel, fingerprint
from glassrank.models.fast import fast_form
from glassrank.models.mores import MORES
from glassrank.models.text_batches import TextReader, batch_of, in_batches
from glassrank.nn.devices import device_named
from glassrank.store.manifest import DTYPES, IDS, Layout, stride
from glassrank.store.rows import EncodedDocs, pack

_TOKENS_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""A batch holds so many words with padding: on a CPU few enough for its caches, on a GPU enough to
keep it busy."""


class DocEncoder:
    """A model with its vocabulary, and the rows that it makes."""

    def __init__(
        self, saved: SavedModel, dtype: str, device: str = "cpu", reuse: str = "s2"
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"unknown dtype {dtype!r}; expected {', '.join(DTYPES)}")
        if saved.model.one_text:
            raise InputError(
                f"a {saved.model.name} reads query and document as one text, so there is nothing "
                "of a document to store; it ranks without a store"
            )
        self._device = device_named(device)
        self._model = saved.model.to(self._device).eval()
        # Whoever stores float32 wants the model's own numbers.
        self._encoder = self._model if dtype == "float32" else fast_form(self._model)
        if isinstance(self._encoder, MORES):
            self._encoder = self._encoder.reusing(reuse)
        self._reader = TextReader(saved)
        self.layout = self._layout(saved, dtype)

    def _layout(self, saved: SavedModel, dtype: str) -> Layout:
        axes: tuple[int, ...] = ()
        idf_axes: tuple[int, ...] = ()
        if self._model.stores_words:
            axes, idf_axes = word_axes(self._encoder, self._device)
        words_digest = hashlib.blake2b("\n".join(saved.vocabulary).encode(), digest_size=8)
        return Layout(
            model=self._model.name,
            fingerprint=fingerprint(self._model),
            vocabulary=words_digest.hexdigest(),
            doc_length=saved.usage.doc_length,
            dtype=dtype if axes else IDS,
            axes=axes,
            idf_axes=idf_axes,
            stride=stride(int(np.prod(axes)), dtype) if axes else 1,
            reuse=_reuse(self._encoder),
        )

    def encode(self, texts: Sequence[str], docs: NDArray[np.int64]) -> Iterator[EncodedDocs]:
        """Rows of those texts of a block whose places are given."""
        read = self._reader.docs([texts[i] for i in docs])
        ids = [text.ids for text in read]
        lengths = np.array([len(text_ids) for text_ids in ids], np.int64)
        cut = np.array([text.cut > 0 for text in read], np.bool_)
        if self.layout.dtype == IDS:
            rows = np.concatenate([np.empty(0, np.int32), *ids])[:, None]  # (T, 1)
            yield EncodedDocs(docs, lengths, {IDS: rows}, int(cut.sum()))
            return

        def encoded(batch: NDArray[np.int64]) -> EncodedDocs:
            words = self._encode([ids[i] for i in batch])
            # By the model's own mask: it may read fewer words than it was given, or add some.
            vectors: Tensor = words.vectors.flatten(2)[words.mask.bool()]  # (T, E)
            counts = words.mask.sum(1).long().cpu().numpy()
            rows = pack(vectors, self.layout)
            return EncodedDocs(docs[batch], counts, rows, int(cut[batch].sum()))

        yield from in_batches(encoded, lengths, self._at_once, self._encoder)

    @property
    def _at_once(self) -> int:
        return _TOKENS_AT_ONCE["cpu" if self._device.type == "cpu" else "cuda"]

    @torch.no_grad()
    def _encode(self, ids: Sequence[NDArray[np.int32]]) -> Words:
        return self._encoder.encode_doc(batch_of(ids, self._device))


@torch.no_grad()
def word_axes(encoder: Ranker, device: torch.device) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a word's vector and of its idf: one word, to see what the model makes of it."""
    words = encoder.encode_doc(batch_of([np.ones(1, np.int32)], device))
    return tuple(words.vectors.shape[2:]), tuple(words.idf.shape[2:])


def _reuse(encoder: Ranker) -> str:
    return encoder.config.reuse if isinstance(encoder, MORES) else ""
