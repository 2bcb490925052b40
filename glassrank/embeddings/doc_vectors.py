"""One vector for each document, to find it by: the embedding of its first token and the mean of
all, in equal parts, as int8.

The first token of a pretrained encoder is [CLS], which stands for the whole text; with the mean it
finds more than either alone (docs/decisions/0033-what-terms-miss.md). Products of int8 are exact
integers, in any order of additions: all machines find the same documents.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled
from glassrank.backends.threads import num_threads, run_parallel
from glassrank.embeddings.manifest import DOC_VECTORS, Layout, PartRecord
from glassrank.embeddings.part import Part
from glassrank.embeddings.rows import quantize_int8, unpack
from glassrank.models.model import TokenEmbeddings, to_array
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import Bools, Floats, Ints, as_readonly, replace_array

_DOCS_AT_ONCE = 1024
_ROWS_PER_THREAD = 1 << 14  # fewer are searched sooner than a second thread wakes up
_NO_MASK = np.empty(0, np.bool_)
_LOWEST = np.finfo(np.float32).min


def write_doc_vectors(parent: Folder, record: PartRecord, layout: Layout) -> PartRecord:
    """Writes them beside the rows of a finished part; gives its record with both files."""
    part = Part(parent, record, layout, verify=False)
    blocks = [_read_vectors(part, first, layout) for first in range(0, len(part), _DOCS_AT_ONCE)]
    files = dict(record.files)
    with parent.child(record.name) as folder:
        for name, arrays in zip(DOC_VECTORS, zip(*blocks, strict=True), strict=True):
            file = f"{name}.npy"
            files[file] = replace_array(folder, file, np.concatenate(arrays).reshape(-1))
        folder.sync()
    return replace(record, files=files)


def _read_vectors(part: Part, first: int, layout: Layout) -> tuple[NDArray[np.int8], Floats]:
    """Of the documents from `first` on, as many as are read at once: (n, E), (n,)."""
    ends, rows = part.doc_rows(first, min(first + _DOCS_AT_ONCE, len(part)))
    filled = ends[1:] > ends[:-1]  # a document may have no tokens
    vectors = np.zeros((len(filled), layout.width), np.float32)
    if filled.any():
        tokens, starts = unpack(rows, layout), ends[:-1][filled]
        vectors[filled] = _pool(tokens[starts], np.add.reduceat(tokens, starts))
    return quantize_int8(vectors)


def get_query_vector(query: TokenEmbeddings) -> Floats:
    """(E,): the same of a query, whose tokens count by their weights."""
    tokens = to_array(query.vectors[0]).astype(np.float32)  # (Q, E)
    weights = (to_array(query.mask[0]) * to_array(query.idf[0])).astype(np.float32)
    first = tokens[0] if len(tokens) else np.zeros(tokens.shape[1], np.float32)
    return _pool(first, weights @ tokens)


def _pool(first: Floats, total: Floats) -> Floats:
    return _normalize(_normalize(first) + _normalize(total))


def _normalize(vectors: Floats) -> Floats:
    lengths = np.sqrt((vectors * vectors).sum(-1, keepdims=True))
    normalized: Floats = vectors / np.maximum(lengths, np.float32(1e-9))
    return normalized


def nearest(part: Part, query: Floats, k: int, mask: Bools = _NO_MASK) -> tuple[Ints, Floats]:
    """The k documents of a part with the largest cosines, best first, by their numbers there; of
    equals, the first. With a `mask` of all documents, only of those where it is set."""
    assert part.doc_vectors is not None and part.doc_scales is not None
    (values,), (scale,) = quantize_int8(query[None])
    count = max(1, min(num_threads(), len(part) // _ROWS_PER_THREAD))
    bounds = np.linspace(0, len(part), count + 1).astype(np.int64).tolist()
    vectors, scales, wanted = part.doc_vectors, part.doc_scales, as_readonly(values)
    scores = np.empty(len(part), np.float32)

    def search(number: int) -> None:
        rows = slice(bounds[number], bounds[number + 1])
        scan(vectors[rows], scales[rows], wanted, as_readonly(mask[rows]), scores[rows])

    run_parallel(search, count)
    floor = np.partition(scores, -k)[-k] if len(scores) > k else _LOWEST
    docs = np.flatnonzero(scores >= max(floor, _LOWEST))
    best = np.argsort(-scores[docs], kind="stable")[:k]
    return docs[best], scores[docs[best]] * scale


@compiled
def scan(vectors: Any, scales: Any, query: Any, mask: Any, scores: Any) -> None:
    """The products of all vectors (N, E) with the query, to `scores` (N,); less than all numbers
    where the mask is not set."""
    for row in range(len(vectors)):
        if len(mask) and not mask[row]:
            scores[row] = -np.inf
            continue
        total = np.int32(0)
        for i in range(len(query)):
            total = np.int32(total + np.int32(vectors[row, i]) * np.int32(query[i]))
        scores[row] = np.float32(total) * scales[row]
