"""Writes a segment from documents that come in the order of their ids, a block at a time.

Only one block and one part of the postings are in memory at once, whatever the segment's size.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.arrays import ArrayFolder, ArrayWriter
from glassrank.compiled import compiled
from glassrank.folders import Folder
from glassrank.ragged import Ragged, pack
from glassrank.retrieve.segment import SegmentRecord

POSTINGS_AT_ONCE = 1 << 23


class DocBlock(NamedTuple):
    """Some documents: ids, texts and fields as bytes, document vectors as terms and counts."""

    ids: Ragged
    texts: Ragged
    fields: Ragged
    terms: Ragged
    counts: NDArray[np.uint32]  # beside the values of `terms`


class _RaggedWriter:
    """Rows one after another, and where each begins."""

    def __init__(
        self, out: ArrayFolder, name: str, dtype: DTypeLike = np.uint8, values: str = "data"
    ) -> None:
        self._offsets: ArrayWriter = out.writer(f"{name}.offsets", np.int64)
        self._values: ArrayWriter = out.writer(f"{name}.{values}", dtype)
        self._offsets.append(np.zeros(1, np.int64))

    def append(self, rows: Ragged) -> None:
        """More rows, behind those that were written."""
        self._offsets.append(rows.offsets[1:] - rows.offsets[0] + self._values.rows)
        self._values.append(rows.values)


def write_segment(
    folder: Folder,
    name: str,
    terms: Sequence[bytes],
    blocks: Iterable[DocBlock],
    count_dtype: DTypeLike,
) -> SegmentRecord:
    """`terms` are sorted; `count_dtype` is the smallest that holds the largest count."""
    docs = tokens = 0
    with ArrayFolder(folder, name) as out:
        _RaggedWriter(out, "terms").append(pack(terms))
        ids, texts, fields = (_RaggedWriter(out, part) for part in ("ids", "texts", "fields"))
        vectors = _RaggedWriter(out, "vectors", np.uint32, "terms")
        counts = out.writer("vectors.counts", count_dtype)
        lengths = out.writer("lengths", np.uint32)
        for block in blocks:
            ids.append(block.ids)
            texts.append(block.texts)
            fields.append(block.fields)
            vectors.append(block.terms)
            counts.append(block.counts)
            # (n,) sums of ragged rows, empty ones included
            running = np.concatenate([[0], np.cumsum(block.counts, dtype=np.int64)])
            ends = block.terms.offsets - block.terms.offsets[0]
            block_lengths = running[ends[1:]] - running[ends[:-1]]
            lengths.append(block_lengths)
            docs += len(block_lengths)
            tokens += int(running[-1])
        _write_postings(
            out,
            len(terms),
            out.finish("vectors.offsets"),
            out.finish("vectors.terms"),
            out.finish("vectors.counts"),
        )
    return SegmentRecord(name, docs, tokens, out.records)


def _write_postings(
    out: ArrayFolder,
    terms: int,
    vector_offsets: NDArray[np.int64],
    vector_terms: NDArray[np.uint32],
    vector_counts: NDArray[Any],
) -> None:
    """Turns the document vectors round, for as many terms at a time as fit in memory."""
    doc_frequencies = np.zeros(terms, np.int64)
    totals = np.zeros(terms, np.int64)
    _count_terms(vector_terms, vector_counts, doc_frequencies, totals)
    offsets = np.concatenate([[0], np.cumsum(doc_frequencies)])  # (T + 1,)
    out.write("term_totals", totals)
    out.write("postings.offsets", offsets)
    docs_out = out.writer("postings.docs", np.uint32)
    counts_out = out.writer("postings.counts", vector_counts.dtype)
    for first, last in _term_ranges(offsets):
        size = int(offsets[last] - offsets[first])
        docs = np.empty(size, np.uint32)
        counts = np.empty(size, vector_counts.dtype)
        cursors = offsets[first:last] - offsets[first]
        _invert(vector_offsets, vector_terms, vector_counts, first, cursors, docs, counts)
        docs_out.append(docs)
        counts_out.append(counts)


def _term_ranges(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbouring terms whose postings together are few enough, or one term alone."""
    first, terms = 0, len(offsets) - 1
    while first < terms:
        fits = np.searchsorted(offsets, offsets[first] + POSTINGS_AT_ONCE, side="right") - 1
        last = max(first + 1, int(fits))
        yield first, last
        first = last


@compiled
def _count_terms(
    vector_terms: NDArray[np.uint32],
    vector_counts: NDArray[Any],
    doc_frequencies: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    for i in range(len(vector_terms)):
        doc_frequencies[vector_terms[i]] += 1
        totals[vector_terms[i]] += vector_counts[i]


@compiled
def _invert(
    vector_offsets: NDArray[np.int64],
    vector_terms: NDArray[np.uint32],
    vector_counts: NDArray[Any],
    first: int,
    cursors: NDArray[np.int64],
    docs: NDArray[np.uint32],
    counts: NDArray[Any],
) -> None:
    """Documents come in order, so each term's postings do too."""
    for doc in range(len(vector_offsets) - 1):
        for i in range(vector_offsets[doc], vector_offsets[doc + 1]):
            term = np.int64(vector_terms[i]) - first
            if 0 <= term < len(cursors):
                docs[cursors[term]] = doc
                counts[cursors[term]] = vector_counts[i]
                cursors[term] += 1
