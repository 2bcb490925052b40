"""Writes a segment from blocks of documents in the order of their ids.

Memory holds one block and a part of the postings, whatever the size of the segment.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled
from glassrank.index.packed_postings import (
    SPARE_WORDS,
    PackedPostings,
    UnpackedPostings,
    pack_postings,
    smallest_dtype,
)
from glassrank.index.scoring import POSTINGS_BLOCK
from glassrank.index.segment import VECTORS_BLOCK, SegmentRecord, sort_terms_by_df
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import (
    ArrayFolder,
    ArrayWriter,
    Ragged,
    as_readonly,
    pack_strings,
)

POSTINGS_AT_ONCE = 1 << 23
_DOCS_AT_ONCE = 1 << 15


class DocBlock(NamedTuple):
    """Documents: ids, texts and fields as bytes, term vectors as terms and tfs."""

    ids: Ragged
    texts: Ragged
    fields: Ragged
    terms: Ragged  # in any order within a document
    tfs: NDArray[np.uint32]  # of the values of `terms`


class TermStatisticsTable(NamedTuple):
    """The terms of a segment, known before its documents are written."""

    terms: Sequence[bytes]  # sorted
    frequencies: NDArray[np.int64]  # (T,) documents that contain each
    totals: NDArray[np.int64]  # (T,) occurrences of each


class _CompactArray:
    """Collects integers and writes them in the smallest dtype that holds them."""

    def __init__(self) -> None:
        self._parts: list[NDArray[Any]] = []

    def append(self, numbers: NDArray[Any]) -> None:
        self._parts.append(_compact(numbers))

    def write(self, out: ArrayFolder, name: str) -> NDArray[Any]:
        largest = max((int(part.max(initial=0)) for part in self._parts), default=0)
        writer = out.writer(name, smallest_dtype(largest))
        for part in self._parts:
            writer.append(part)
        return out.finish(name)

    def write_offsets(self, out: ArrayFolder, name: str) -> NDArray[Any]:
        """Writes 0 and the cumulative sums: the offsets of rows of these sizes."""
        total = sum(int(part.sum(dtype=np.int64)) for part in self._parts)
        writer = out.writer(name, smallest_dtype(total))
        end = 0
        writer.append(np.zeros(1, np.int64))
        for part in self._parts:
            ends = end + np.cumsum(part, dtype=np.int64)
            writer.append(ends)
            end = int(ends[-1]) if len(ends) else end
        return out.finish(name)


def _compact(numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers.astype(smallest_dtype(int(numbers.max(initial=0))))


class _StringsWriter:
    """Writes strings one after another, and the offset of each."""

    def __init__(self, out: ArrayFolder, name: str) -> None:
        self._out, self._name = out, name
        self._sizes = _CompactArray()
        self._data: ArrayWriter = out.writer(f"{name}.data", np.uint8)

    def append(self, rows: Ragged) -> None:
        self._sizes.append(np.diff(rows.offsets))
        self._data.append(rows.values)

    def finish(self) -> None:
        self._sizes.write_offsets(self._out, f"{self._name}.offsets")


class _PostingsWriter:
    """Packs and writes postings or term vectors."""

    def __init__(self, out: ArrayFolder, name: str, block: int) -> None:
        self._out, self._name, self._block = out, name, block
        self._sizes, self._words_of_rows = _CompactArray(), _CompactArray()
        self._words: ArrayWriter = out.writer(f"{name}.words", np.uint32)

    def append(self, rows: UnpackedPostings) -> None:
        words_of_rows, words = pack_postings(*(as_readonly(array) for array in rows), self._block)
        self._sizes.append(np.diff(rows.offsets))
        self._words_of_rows.append(words_of_rows)
        self._words.append(words)

    def finish(self) -> PackedPostings:
        self._words.append(np.zeros(SPARE_WORDS, np.uint32))
        return PackedPostings(
            self._sizes.write(self._out, f"{self._name}.sizes"),
            self._words_of_rows.write_offsets(self._out, f"{self._name}.starts"),
            self._out.finish(f"{self._name}.words"),
            self._block,
        )


def write_segment(
    folder: Folder, name: str, known: TermStatisticsTable, blocks: Iterable[DocBlock]
) -> SegmentRecord:
    """Writes the blocks, whose documents are in the order of their ids, as a segment."""
    docs = tokens = 0
    terms_by_df = sort_terms_by_df(known.frequencies)
    ranks = np.empty(len(terms_by_df), np.uint32)
    ranks[terms_by_df] = np.arange(len(terms_by_df))
    with ArrayFolder(folder, name) as out:
        terms = _StringsWriter(out, "terms")
        terms.append(pack_strings(known.terms))
        strings = {part: _StringsWriter(out, part) for part in ("ids", "texts", "fields")}
        vectors = _PostingsWriter(out, "vectors", VECTORS_BLOCK)
        lengths = _CompactArray()
        for block in blocks:
            for part, writer in strings.items():
                writer.append(getattr(block, part))
            offsets = block.terms.offsets - block.terms.offsets[0]
            vectors.append(_sort(offsets, ranks[block.terms.values], block.tfs))
            # (n,) sums of ragged rows, empty ones included
            running = np.concatenate([[0], np.cumsum(block.tfs, dtype=np.int64)])
            lengths.append(running[offsets[1:]] - running[offsets[:-1]])
            docs += len(offsets) - 1
            tokens += int(running[-1])
        for writer in (terms, *strings.values()):
            writer.finish()
        lengths.write(out, "lengths")
        out.write("term_totals", _compact(known.totals))
        _write_postings(out, known.frequencies, terms_by_df, vectors.finish())
    return SegmentRecord(name, docs, tokens, out.records)


def _sort(
    offsets: NDArray[np.int64], ids: NDArray[np.uint32], tfs: NDArray[np.uint32]
) -> UnpackedPostings:
    """Sorts each row by id."""
    both = ids.astype(np.uint64) << np.uint64(32) | tfs
    _sort_rows(offsets, both)
    ids, tfs = ((part & 0xFFFFFFFF).astype(np.uint32) for part in (both >> np.uint64(32), both))
    return UnpackedPostings(offsets, ids, tfs)


def _write_postings(
    out: ArrayFolder,
    frequencies: NDArray[np.int64],
    terms_by_df: NDArray[np.int64],
    vectors: PackedPostings,
) -> None:
    """Inverts the term vectors, for as many terms at a time as fit in memory."""
    postings = _PostingsWriter(out, "postings", POSTINGS_BLOCK)
    offsets = np.concatenate([[0], np.cumsum(frequencies)])  # (T + 1,)
    for first, last in _term_ranges(offsets):
        size = int(offsets[last] - offsets[first])
        docs, tfs = np.empty(size, np.uint32), np.empty(size, np.uint32)
        cursors = offsets[first:last] - offsets[first]
        for start in range(0, len(vectors.sizes), _DOCS_AT_ONCE):
            rows = vectors.unpack(slice(start, start + _DOCS_AT_ONCE))
            terms = terms_by_df[rows.ids]
            _invert(rows.offsets, terms, rows.tfs, start, first, cursors, docs, tfs)
        ends = offsets[first : last + 1] - offsets[first]
        postings.append(UnpackedPostings(ends, docs, tfs))
    postings.finish()


def _term_ranges(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of terms with at most `POSTINGS_AT_ONCE` postings, or of a single term."""
    first, terms = 0, len(offsets) - 1
    while first < terms:
        fits = np.searchsorted(offsets, offsets[first] + POSTINGS_AT_ONCE, side="right") - 1
        last = max(first + 1, int(fits))
        yield first, last
        first = last


@compiled
def _sort_rows(offsets: NDArray[np.int64], values: NDArray[np.uint64]) -> None:
    for row in range(len(offsets) - 1):
        values[offsets[row] : offsets[row + 1]].sort()


@compiled
def _invert(
    vector_offsets: NDArray[np.int64],
    vector_terms: NDArray[np.int64],
    vector_tfs: NDArray[np.uint32],
    first_doc: int,
    first: int,
    cursors: NDArray[np.int64],
    docs: NDArray[np.uint32],
    tfs: NDArray[np.uint32],
) -> None:
    """Appends documents to the postings of their terms; both stay in order."""
    for doc in range(len(vector_offsets) - 1):
        for i in range(vector_offsets[doc], vector_offsets[doc + 1]):
            term = vector_terms[i] - first
            if 0 <= term < len(cursors):
                docs[cursors[term]] = first_doc + doc
                tfs[cursors[term]] = vector_tfs[i]
                cursors[term] += 1
