"""Checks what compiled code relies on when a segment is opened.

A checksum says that a file is as its writer left it, not who that was. These checks make sure that
postings and term vectors are sorted, stay within their arrays, and agree with each other and with
the statistics. Whatever else is wrong with an untrusted segment can only lead to odd rankings.
"""

from collections.abc import Sized
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled, is_worth_compiling
from glassrank.errors import CorruptError
from glassrank.index.packed_postings import SPARE_WORDS
from glassrank.storage.mapped_arrays import Ints, Uints, is_partition

if TYPE_CHECKING:
    from glassrank.index.segment import Segment

_DOCS_AT_ONCE = 1 << 15


def check_shapes(segment: "Segment") -> None:
    """Checks that the lengths of arrays agree with the manifest and with each other; fast."""
    docs, terms = segment.record.docs, len(segment.term_totals)
    counts = {"terms": terms, "postings": terms}  # all others have a row for each document
    _require_length(segment, "lengths", segment.lengths, docs)
    for name, strings in segment.strings.items():
        _require_length(segment, f"{name}.offsets", strings.offsets, counts.get(name, docs) + 1)
    for name, rows in segment.packed.items():
        count = counts.get(name, docs)
        _require_length(segment, f"{name}.sizes", rows.sizes, count)
        _require_length(segment, f"{name}.starts", rows.starts, count + 1)
        _require_length(segment, f"{name}.words", rows.words, int(rows.starts[-1]) + SPARE_WORDS)


def check_values(segment: "Segment") -> None:
    """Reads all numbers, but not the texts."""
    docs, terms = len(segment), len(segment.terms)
    is_large = is_worth_compiling(10 * (docs + terms))
    ascend, count = (_ascend, _count) if is_large else (_ascend_numpy, _count_numpy)
    for name, strings in segment.strings.items():
        _require(segment, f"{name}.offsets", is_partition(strings.offsets, len(strings.data)))
    for name, strings in (("ids", segment.ids), ("terms", segment.terms)):
        offsets = strings.offsets.astype(np.int64)
        _require(segment, f"{name}.data", ascend(offsets, strings.data))
    for name, rows, limit in (
        ("vectors", segment.vectors, terms),
        ("postings", segment.postings, docs),
    ):
        words = len(rows.words) - SPARE_WORDS
        _require(segment, f"{name}.starts", is_partition(rows.starts, words))
        _require(segment, f"{name}.words", rows.is_valid(limit))
    frequencies, totals = np.zeros(terms, np.int64), np.zeros(terms, np.int64)
    lengths_agree = True
    for first in range(0, docs, _DOCS_AT_ONCE):
        part = slice(first, first + _DOCS_AT_ONCE)
        vectors = segment.vectors.unpack(part)
        lengths_agree &= count(*vectors, segment.lengths[part], frequencies, totals)
    _require(segment, "lengths", lengths_agree)
    order = segment.terms_by_df
    _require(segment, "postings.sizes", np.array_equal(frequencies, segment.postings.sizes[order]))
    _require(segment, "term_totals", np.array_equal(totals, segment.term_totals[order]))
    _require(segment, "lengths", int(totals.sum()) == segment.record.tokens)


def check_deleted(segment: "Segment") -> None:
    """Checks the list of deleted documents; fast."""
    deleted = segment.deleted
    ascend = (deleted[1:] > deleted[:-1]).all() and deleted.max(initial=0) < max(len(segment), 1)
    _require(segment, "deleted", ascend)


def _require_length(segment: "Segment", name: str, array: Sized, length: int) -> None:
    problem = f"expected {length} values, found {len(array)}"
    _require(segment, name, len(array) == length, problem)


def _require(
    segment: "Segment",
    name: str,
    is_valid: bool | np.bool_,
    problem: str = "its values are not valid",
) -> None:
    if not is_valid:
        file = segment.record.deleted if name == "deleted" else f"{name}.npy"
        raise CorruptError(
            f"{segment.folder / str(file)} is damaged: {problem}; "
            "build the index again from its texts"
        )


@compiled
def _ascend(offsets: Ints, data: NDArray[np.uint8]) -> bool:
    """Whether each string is greater than the one before, by its bytes."""
    for i in range(1, len(offsets) - 1):
        before, start, end = offsets[i - 1], offsets[i], offsets[i + 1]
        shared = min(start - before, end - start)
        at = 0
        while at < shared and data[before + at] == data[start + at]:
            at += 1
        if at < shared:
            if data[before + at] > data[start + at]:
                return False
        elif start - before >= end - start:
            return False
    return True


@compiled
def _count(
    offsets: Ints, terms: Uints, tfs: Uints, lengths: Uints, frequencies: Ints, totals: Ints
) -> bool:
    """Counts the terms of term vectors; whether the length of each document is its sum of tfs."""
    for doc in range(len(offsets) - 1):
        row, row_tfs = terms[offsets[doc] : offsets[doc + 1]], tfs[offsets[doc] :]
        length = 0
        for i in range(len(row)):
            frequencies[row[i]] += 1
            totals[row[i]] += row_tfs[i]
            length += row_tfs[i]
        if length != lengths[doc]:
            return False
    return True


def _ascend_numpy(offsets: Ints, data: NDArray[np.uint8]) -> bool:
    content = data.tobytes()
    strings = (content[start:end] for start, end in pairwise(offsets.tolist()))
    return all(before < after for before, after in pairwise(strings))


def _count_numpy(
    offsets: Ints, terms: Uints, tfs: Uints, lengths: Uints, frequencies: Ints, totals: Ints
) -> bool:
    frequencies += np.bincount(terms, minlength=len(frequencies))
    totals += np.bincount(terms, tfs, len(totals)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(tfs, dtype=np.int64)])[offsets]
    return bool((np.diff(ends) == lengths).all())
