"""Dense retrieval with FAISS: one vector for each text, from a model of ours (`MeanVectors`), or
from any function such as `SentenceTransformer(…).encode`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, needs_extra
from glassrank.index.first_stage import ScoredIds
from glassrank.models.model import TokenEmbeddings, make_batch, to_array
from glassrank.models.text_batches import map_batches
from glassrank.rerank.reranker import TOKENS_AT_ONCE, Reranker
from glassrank.types import Doc

with needs_extra("engines"):
    import faiss

Encode = Callable[[list[str]], Any]
"""Texts to an array of floats: (n, d)."""


class MeanVectors:
    """The mean token embedding of a pretrained encoder, of a long text's first passage."""

    def __init__(self, reranker: Reranker) -> None:
        # Means of TK's embeddings were tried, and find almost nothing: all texts are alike.
        if reranker.model.info.is_cross_encoder or not reranker.model.info.uses_subwords:
            raise InputError(
                f"a {reranker.model.name} model has no vector for a text; use a model with a "
                "pretrained encoder, such as 'default' or a single_vector"
            )
        self._reranker = reranker

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d)."""
        read = self._reranker.read([Doc("", text) for text in texts])
        ids = [doc.passages[0].ids for doc in read]
        vectors: dict[int, NDArray[np.float32]] = {}

        def encode(part: NDArray[np.int64]) -> None:
            batch = make_batch([ids[i] for i in part], self._reranker.device)
            means = _mean_embeddings(self._reranker.encode_doc(batch))
            vectors.update(zip(part.tolist(), means, strict=True))

        sizes = np.array([len(text) for text in ids], np.int64)
        for _ in map_batches(encode, sizes, TOKENS_AT_ONCE, self._reranker.fast_model):
            pass
        return np.stack([vectors[place] for place in range(len(texts))])

    def encode_query(self, query: str) -> NDArray[np.float32]:
        """(1, d); with the prompt that the model has for queries."""
        return _mean_embeddings(self._reranker.encode_query(query))


class VectorIndex:
    """Finds the nearest texts by the inner product of their vectors."""

    def __init__(self, index: Any, ids: Sequence[Any], encode: Encode) -> None:
        """`index` is a FAISS index with METRIC_INNER_PRODUCT, filled in the order of `ids`."""
        if index.ntotal != len(ids):
            raise InputError(f"the index has {index.ntotal} vectors, but there are {len(ids)} ids")
        if index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise InputError("expected a FAISS index with METRIC_INNER_PRODUCT")
        self.index = index
        self.ids = list(ids)
        self._encode = encode

    @classmethod
    def build(cls, texts: Mapping[Any, str] | Iterable[Doc], encode: Encode) -> "VectorIndex":
        """Encodes a dict of texts by id, or documents, and keeps the vectors in memory."""
        if not isinstance(texts, Mapping):
            texts = {doc.doc_id: f"{doc.title} {doc.text}".strip() for doc in texts}
        if not texts:
            raise InputError("there are no texts to encode; check the input")
        vectors = _to_float32(encode(list(texts.values())))
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return cls(index, list(texts), encode)

    def search(self, query: str, k: int) -> ScoredIds:
        """The k nearest texts."""
        if isinstance(self._encode, MeanVectors):
            vector = self._encode.encode_query(query)
        else:
            vector = self._encode([query])
        scores, places = self.index.search(_to_float32(vector), min(k, len(self.ids)))
        known = places[0] >= 0  # an approximate index may return fewer than k
        return ScoredIds(
            [self.ids[place] for place in places[0][known].tolist()], scores[0][known].tolist()
        )


def _mean_embeddings(tokens: TokenEmbeddings) -> NDArray[np.float32]:
    mask = to_array(tokens.mask).astype(np.float32)  # (B, L)
    means = np.einsum("bld,bl->bd", to_array(tokens.vectors).astype(np.float32), mask)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)  # (B, 1)
    return np.asarray(means / np.maximum(lengths, 1e-9), np.float32)


def _to_float32(vectors: Any) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, np.float32)
