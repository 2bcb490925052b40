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
    Ints,
    Ragged,
    Uints,
    as_readonly,
    pack_strings,
)

POSTINGS_AT_ONCE = 1 << 23
_DOCS_AT_ONCE = 1 << 15


class DocBlock(NamedTuple):
    """Documents: their ids, texts and fields as bytes, term vectors as terms and tfs."""

    strings: dict[str, Ragged]  # `ids`, `texts` and `fields`
    terms: Ragged  # in any order within a document
    tfs: Uints  # of the values of `terms`


class TermStatisticsTable(NamedTuple):
    """The terms of a segment, known before its documents are written."""

    terms: Sequence[bytes]  # sorted
    frequencies: Ints  # (T,) documents that contain each
    totals: Ints  # (T,) occurrences of each


def _compact(numbers: NDArray[Any]) -> NDArray[Any]:
    """In the smallest dtype that holds them."""
    return numbers.astype(smallest_dtype(int(numbers.max(initial=0))))


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, np.uint8), *parts])


def _offsets(sizes: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Of rows of these sizes."""
    return _compact(np.concatenate([[0], np.cumsum(_join(sizes), dtype=np.int64)]))


class _StringsWriter:
    """Writes strings one after another, and the offset of each."""

    def __init__(self, out: ArrayFolder, name: str) -> None:
        self._out, self._name = out, name
        self._sizes: list[NDArray[Any]] = []
        self._data = out.writer(f"{name}.data", np.uint8)

    def append(self, rows: Ragged) -> None:
        self._sizes.append(_compact(np.diff(rows.offsets)))
        self._data.append(rows.values)

    def finish(self) -> None:
        self._out.write(f"{self._name}.offsets", _offsets(self._sizes))


class _PostingsWriter:
    """Packs and writes postings or term vectors."""

    def __init__(self, out: ArrayFolder, name: str, block: int) -> None:
        self._out, self._name, self._block = out, name, block
        self._sizes: list[NDArray[Any]] = []
        self._words_of_rows: list[NDArray[Any]] = []
        self._words = out.writer(f"{name}.words", np.uint32)

    def append(self, rows: UnpackedPostings) -> None:
        words_of_rows, words = pack_postings(*(as_readonly(array) for array in rows), self._block)
        self._sizes.append(_compact(np.diff(rows.offsets)))
        self._words_of_rows.append(_compact(words_of_rows))
        self._words.append(words)

    def finish(self) -> PackedPostings:
        self._words.append(np.zeros(SPARE_WORDS, np.uint32))
        return PackedPostings(
            self._out.write(f"{self._name}.sizes", _join(self._sizes)),
            self._out.write(f"{self._name}.starts", _offsets(self._words_of_rows)),
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
        lengths = []
        for block in blocks:
            for part, writer in strings.items():
                writer.append(block.strings[part])
            offsets = block.terms.offsets - block.terms.offsets[0]
            vectors.append(_sort(offsets, ranks[block.terms.values], block.tfs))
            # (n,) sums of ragged rows, empty ones included
            running = np.concatenate([[0], np.cumsum(block.tfs, dtype=np.int64)])
            lengths.append(_compact(running[offsets[1:]] - running[offsets[:-1]]))
            docs += len(offsets) - 1
            tokens += int(running[-1])
        for writer in (terms, *strings.values()):
            writer.finish()
        out.write("lengths", _join(lengths))
        out.write("term_totals", _compact(known.totals))
        _write_postings(out, known.frequencies, terms_by_df, vectors.finish())
    return SegmentRecord(name, docs, tokens, out.records)


def _sort(offsets: Ints, ids: Uints, tfs: Uints) -> UnpackedPostings:
    """Sorts each row by id."""
    both = ids.astype(np.uint64) << np.uint64(32) | tfs
    _sort_rows(offsets, both)
    ids, tfs = ((part & 0xFFFFFFFF).astype(np.uint32) for part in (both >> np.uint64(32), both))
    return UnpackedPostings(offsets, ids, tfs)


def _write_postings(
    out: ArrayFolder, frequencies: Ints, terms_by_df: Ints, vectors: PackedPostings
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


def _term_ranges(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of terms with at most `POSTINGS_AT_ONCE` postings, or of a single term."""
    first, terms = 0, len(offsets) - 1
    while first < terms:
        fits = np.searchsorted(offsets, offsets[first] + POSTINGS_AT_ONCE, side="right") - 1
        last = max(first + 1, int(fits))
        yield first, last
        first = last


@compiled
def _sort_rows(offsets: Ints, values: NDArray[np.uint64]) -> None:
    for row in range(len(offsets) - 1):
        values[offsets[row] : offsets[row + 1]].sort()


@compiled
def _invert(
    vector_offsets: Ints,
    vector_terms: Ints,
    vector_tfs: Uints,
    first_doc: int,
    first: int,
    cursors: Ints,
    docs: Uints,
    tfs: Uints,
) -> None:
    """Appends documents to the postings of their terms; both stay in order."""
    for doc in range(len(vector_offsets) - 1):
        for i in range(vector_offsets[doc], vector_offsets[doc + 1]):
            term = vector_terms[i] - first
            if 0 <= term < len(cursors):
                docs[cursors[term]] = first_doc + doc
                tfs[cursors[term]] = vector_tfs[i]
                cursors[term] += 1
