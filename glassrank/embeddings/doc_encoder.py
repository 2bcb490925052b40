"""Encodes documents to rows of a store: passages, in batches of like length."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.embeddings.manifest import DTYPES, IDS, Layout, stride
from glassrank.embeddings.rows import EncodedPassages, pack, pack_tensor
from glassrank.errors import InputError
from glassrank.models.doc_reader import ReadDoc
from glassrank.models.io.model_folder import SavedModel, fingerprint
from glassrank.models.model import Model, TokenEmbeddings, make_batch, no_gradients, to_array
from glassrank.models.text_batches import TokenFilter, make_passage_reader, map_batches
from glassrank.storage.mapped_arrays import Ints
from glassrank.types import Doc

_TOKENS_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""Tokens of a padded batch: on a CPU few enough for its caches, on a GPU enough to keep it busy."""


class DocEncoder:
    """A model with its tokenizer, and the rows that it makes."""

    def __init__(
        self,
        saved: SavedModel,
        dtype: str,
        device: str = "cpu",
        reuse: str = "s2",
        leave_out: str = "",
        graph: bool | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"unknown dtype {dtype!r}; expected {', '.join(DTYPES)}")
        if saved.model.info.is_cross_encoder:
            raise InputError(
                f"a {saved.model.name} reads query and document as one text, so there is nothing "
                "of a document to store; it ranks without a store"
            )
        if dtype == "float32" or device != "cpu":
            saved = saved.trained()
        self._model: Model = saved.model
        self._encoder = self._model
        if self._model.device is not None:
            from glassrank.models.torch_models import to_device

            # float32 means the model's own numbers.
            self._model, self._encoder = to_device(saved.model, device, exact=dtype == "float32")
        self._device = self._model.device
        self._encoder = reusing(self._encoder, reuse)
        self._reader = make_passage_reader(saved)
        self._left_out = (
            TokenFilter(leave_out, self._model, saved.vocabulary) if leave_out else None
        )
        self.layout = replace(self._layout(saved, dtype), left_out=leave_out)
        layout = self.layout
        has_vectors = len(layout.axes) == 1 and not layout.idf_axes and not layout.reuse
        if graph and not has_vectors:
            raise InputError(f"a {self._model.name} has no vector that stands for a text")
        # Of words without a pretrained encoder, the first does not stand for a text.
        self.graph = has_vectors and (self._model.info.uses_subwords if graph is None else graph)

    def _layout(self, saved: SavedModel, dtype: str) -> Layout:
        axes: tuple[int, ...] = ()
        idf_axes: tuple[int, ...] = ()
        if self._model.info.stores_embeddings:
            axes, idf_axes = get_embedding_axes(self._encoder)
        elif any(hasattr(ranker.words, "ids_of_unseen") for ranker in self._model.rankers()):
            raise InputError(
                f"of a {self._model.name} ids of words are stored, and words outside its "
                "vocabulary, made of n-grams, have none that last; it ranks without a store"
            )
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
            reuse=str(self._encoder.config.reuse) if hasattr(self._encoder, "reusing") else "",
            overlap=saved.usage.passages.overlap,
            most_passages=saved.usage.passages.most,
        )

    def read(self, docs: Sequence[Doc]) -> list[ReadDoc]:
        """Documents, with all their passages."""
        return [doc.all() for doc in self._reader.read(docs)]

    def encode(self, ids: Sequence[NDArray[np.int32]]) -> Iterator[EncodedPassages]:
        """Rows of passages; a passage's place is its number among these."""
        lengths = np.array([len(passage) for passage in ids], np.int64)
        if self.layout.dtype == IDS:
            rows = np.concatenate([np.empty(0, np.int32), *ids])[:, None]  # (T, 1)
            yield EncodedPassages(np.arange(len(ids)), lengths, {IDS: rows})
            return

        def encoded(places: Ints) -> EncodedPassages:
            with no_gradients(self._encoder):
                batch = make_batch([ids[i] for i in places], self._device)
                words: TokenEmbeddings = self._encoder.encode_doc(batch)
                if self._left_out is not None:
                    words = self._left_out.without(words, to_array(batch.ids))
            # By the model's own mask: it may read fewer words than it was given, or add some.
            vectors = words.vectors.reshape(*words.mask.shape, -1)[words.mask > 0]  # (T, E)
            counts = to_array(words.mask).sum(1).astype(np.int64)
            pack_rows = pack if isinstance(vectors, np.ndarray) else pack_tensor
            return EncodedPassages(places, counts, pack_rows(vectors, self.layout))

        on_gpu = self._device is not None and self._device.type == "cuda"
        at_once = _TOKENS_AT_ONCE["cuda" if on_gpu else "cpu"]
        yield from map_batches(encoded, lengths, at_once, self._encoder)

    def rows(self, ids: NDArray[np.int32]) -> int:
        """About how many rows a passage has."""
        return len(ids) if self._left_out is None else int(self._left_out.kept(ids).sum())


def get_embedding_axes(encoder: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a word's vector and of its idf: one word, to see what the model makes of it."""
    with no_gradients(encoder):
        words = encoder.encode_doc(make_batch([np.ones(1, np.int32)], encoder.device))
    return tuple(words.vectors.shape[2:]), tuple(words.idf.shape[2:])


def reusing(model: Any, reuse: str) -> Any:
    """Of a MORES, what is kept; other models have no choice."""
    return model.reusing(reuse) if reuse and hasattr(model, "reusing") else model
