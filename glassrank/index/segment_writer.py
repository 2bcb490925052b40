"""Writes a segment from documents that come in the order of their ids, a block at a time.

Only one block and one part of the postings are in memory at once, whatever the segment's size.
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
from glassrank.index.segment import VECTORS_BLOCK, SegmentRecord, terms_by_frequency
from glassrank.index.topk import POSTINGS_BLOCK
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import ArrayFolder, ArrayWriter, as_readonly
from glassrank.storage.ragged_arrays import Ragged, pack_strings

POSTINGS_AT_ONCE = 1 << 23
_DOCS_AT_ONCE = 1 << 15


class DocBlock(NamedTuple):
    """Some documents: ids, texts and fields as bytes, document vectors as terms and counts."""

    ids: Ragged
    texts: Ragged
    fields: Ragged
    terms: Ragged  # in any order within a document
    counts: NDArray[np.uint32]  # beside the values of `terms`


class TermNumbers(NamedTuple):
    """What is known of a segment's terms before its documents are written."""

    terms: Sequence[bytes]  # sorted
    frequencies: NDArray[np.int64]  # (T,) documents that have each
    totals: NDArray[np.int64]  # (T,) how often each occurs


class _Small:
    """Numbers that come a part at a time, and are written in the smallest type that holds them."""

    def __init__(self) -> None:
        self._parts: list[NDArray[Any]] = []

    def append(self, numbers: NDArray[Any]) -> None:
        """More of them."""
        largest = int(numbers.max(initial=0))
        self._parts.append(numbers.astype(smallest_dtype(largest)))

    def write(self, out: ArrayFolder, name: str) -> NDArray[Any]:
        """The numbers."""
        largest = max((int(part.max(initial=0)) for part in self._parts), default=0)
        writer = out.writer(name, smallest_dtype(largest))
        for part in self._parts:
            writer.append(part)
        return out.finish(name)

    def write_ends(self, out: ArrayFolder, name: str) -> NDArray[Any]:
        """Their sums so far: where rows of so many values begin, and the last one ends."""
        total = sum(int(part.sum(dtype=np.int64)) for part in self._parts)
        writer = out.writer(name, smallest_dtype(total))
        end = 0
        writer.append(np.zeros(1, np.int64))
        for part in self._parts:
            ends = end + np.cumsum(part, dtype=np.int64)
            writer.append(ends)
            end = int(ends[-1]) if len(ends) else end
        return out.finish(name)


class _StringsWriter:
    """Strings one after another, and where each begins."""

    def __init__(self, out: ArrayFolder, name: str) -> None:
        self._out, self._name = out, name
        self._sizes = _Small()
        self._data: ArrayWriter = out.writer(f"{name}.data", np.uint8)

    def append(self, rows: Ragged) -> None:
        """More of them, behind those that were written."""
        self._sizes.append(np.diff(rows.offsets))
        self._data.append(rows.values)

    def finish(self) -> None:
        """Nothing more comes."""
        self._sizes.write_ends(self._out, f"{self._name}.offsets")


class _RowsWriter:
    """Rows of numbers with counts, packed."""

    def __init__(self, out: ArrayFolder, name: str, block: int) -> None:
        self._out, self._name, self._block = out, name, block
        self._sizes, self._words_of_rows = _Small(), _Small()
        self._words: ArrayWriter = out.writer(f"{name}.words", np.uint32)

    def append(self, rows: UnpackedPostings) -> None:
        """More of them, behind those that were written."""
        offsets, values, counts = rows
        words_of_rows, words = pack_postings(
            as_readonly(offsets), as_readonly(values), as_readonly(counts), self._block
        )
        self._sizes.append(np.diff(rows.offsets))
        self._words_of_rows.append(words_of_rows)
        self._words.append(words)

    def finish(self) -> PackedPostings:
        """Nothing more comes; all of them, as they can be read."""
        self._words.append(np.zeros(SPARE_WORDS, np.uint32))
        return PackedPostings(
            self._sizes.write(self._out, f"{self._name}.sizes"),
            self._words_of_rows.write_ends(self._out, f"{self._name}.starts"),
            self._out.finish(f"{self._name}.words"),
            self._block,
        )


def write_segment(
    folder: Folder, name: str, known: TermNumbers, blocks: Iterable[DocBlock]
) -> SegmentRecord:
    """Documents come in the order of their ids."""
    docs = tokens = 0
    by_frequency = terms_by_frequency(known.frequencies)
    ranks = np.empty(len(by_frequency), np.uint32)
    ranks[by_frequency] = np.arange(len(by_frequency))
    with ArrayFolder(folder, name) as out:
        terms = _StringsWriter(out, "terms")
        terms.append(pack_strings(known.terms))
        strings = {part: _StringsWriter(out, part) for part in ("ids", "texts", "fields")}
        vectors = _RowsWriter(out, "vectors", VECTORS_BLOCK)
        lengths, totals = _Small(), _Small()
        totals.append(known.totals)
        for block in blocks:
            for part, writer in strings.items():
                writer.append(getattr(block, part))
            offsets = block.terms.offsets - block.terms.offsets[0]
            vectors.append(_sorted_rows(offsets, ranks[block.terms.values], block.counts))
            # (n,) sums of ragged rows, empty ones included
            running = np.concatenate([[0], np.cumsum(block.counts, dtype=np.int64)])
            lengths.append(running[offsets[1:]] - running[offsets[:-1]])
            docs += len(offsets) - 1
            tokens += int(running[-1])
        for writer in (terms, *strings.values()):
            writer.finish()
        lengths.write(out, "lengths")
        totals.write(out, "term_totals")
        _write_postings(out, known.frequencies, by_frequency, vectors.finish())
    return SegmentRecord(name, docs, tokens, out.records)


def _sorted_rows(
    offsets: NDArray[np.int64], values: NDArray[np.uint32], counts: NDArray[np.uint32]
) -> UnpackedPostings:
    both = values.astype(np.uint64) << np.uint64(32) | counts
    _sort_rows(offsets, both)
    sorted_values, sorted_counts = both >> np.uint64(32), both & np.uint64(0xFFFFFFFF)
    return UnpackedPostings(
        offsets, sorted_values.astype(np.uint32), sorted_counts.astype(np.uint32)
    )


def _write_postings(
    out: ArrayFolder,
    frequencies: NDArray[np.int64],
    by_frequency: NDArray[np.int64],
    vectors: PackedPostings,
) -> None:
    """Turns the document vectors round, for as many terms at a time as fit in memory."""
    postings = _RowsWriter(out, "postings", POSTINGS_BLOCK)
    offsets = np.concatenate([[0], np.cumsum(frequencies)])  # (T + 1,)
    for first, last in _term_ranges(offsets):
        size = int(offsets[last] - offsets[first])
        docs, counts = np.empty(size, np.uint32), np.empty(size, np.uint32)
        cursors = offsets[first:last] - offsets[first]
        for start in range(0, len(vectors.sizes), _DOCS_AT_ONCE):
            rows = vectors.unpack(slice(start, start + _DOCS_AT_ONCE))
            terms = by_frequency[rows.values]
            _invert(rows.offsets, terms, rows.counts, start, first, cursors, docs, counts)
        ends = offsets[first : last + 1] - offsets[first]
        postings.append(UnpackedPostings(ends, docs, counts))
    postings.finish()


def _term_ranges(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbouring terms whose postings together are few enough, or one term alone."""
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
    vector_counts: NDArray[np.uint32],
    first_doc: int,
    first: int,
    cursors: NDArray[np.int64],
    docs: NDArray[np.uint32],
    counts: NDArray[np.uint32],
) -> None:
    """Documents come in order, so each term's postings do too."""
    for doc in range(len(vector_offsets) - 1):
        for i in range(vector_offsets[doc], vector_offsets[doc + 1]):
            term = vector_terms[i] - first
            if 0 <= term < len(cursors):
                docs[cursors[term]] = first_doc + doc
                counts[cursors[term]] = vector_counts[i]
                cursors[term] += 1
