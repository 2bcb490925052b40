"""What compiled code relies on in a segment, looked at once when it is opened.

A right checksum says that a file is as its writer left it, not who that was. After this, postings
and document vectors are sorted, stay within their arrays, and agree with each other and with the
statistics: whatever else is wrong with a stranger's segment gives strange rankings, no more.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import divides
from glassrank.compiled import compiled, worth_loading
from glassrank.errors import CorruptError
from glassrank.retrieve.plain import ascend, count, rows_ascend

if TYPE_CHECKING:
    from glassrank.retrieve.segment import Segment


def check_shapes(segment: "Segment") -> None:
    """That arrays have the lengths which the manifest and the other arrays say; takes no time."""
    docs, terms = segment.record.docs, len(segment.term_totals)
    postings = len(segment.posting_docs)
    for name, array, length in (
        ("ids.offsets", segment.ids.offsets, docs + 1),
        ("texts.offsets", segment.texts.offsets, docs + 1),
        ("fields.offsets", segment.fields.offsets, docs + 1),
        ("lengths", segment.lengths, docs),
        ("terms.offsets", segment.terms.offsets, terms + 1),
        ("vectors.offsets", segment.vector_offsets, docs + 1),
        ("vectors.terms", segment.vector_terms, postings),
        ("vectors.counts", segment.vector_counts, postings),
        ("postings.offsets", segment.posting_offsets, terms + 1),
        ("postings.counts", segment.posting_counts, postings),
    ):
        if len(array) != length:
            raise _damaged(segment, name, f"expected {length} values, found {len(array)}")


def check_values(segment: "Segment") -> None:
    """Reads the numbers, not the texts."""
    numbers = 2 * len(segment.posting_docs) + 10 * (len(segment.ids) + len(segment.terms))
    forms = _COMPILED if worth_loading(numbers) else _PLAIN
    for name, strings in (
        ("ids", segment.ids),
        ("terms", segment.terms),
        ("texts", segment.texts),
        ("fields", segment.fields),
    ):
        _expect(segment, f"{name}.offsets", divides(strings.offsets, len(strings.data)))
    postings = len(segment.posting_docs)
    _expect(segment, "vectors.offsets", divides(segment.vector_offsets, postings))
    _expect(segment, "postings.offsets", divides(segment.posting_offsets, postings))
    for name, strings in (("ids", segment.ids), ("terms", segment.terms)):
        _expect(segment, f"{name}.data", forms.ascend(strings.offsets, strings.data))
    docs, terms = len(segment), len(segment.terms)
    for name, offsets, values, limit in (
        ("vectors.terms", segment.vector_offsets, segment.vector_terms, terms),
        ("postings.docs", segment.posting_offsets, segment.posting_docs, docs),
    ):
        _expect(segment, name, forms.rows_ascend(offsets, values, limit))
    _expect(segment, "postings.counts", not postings or segment.posting_counts.min() > 0)
    frequencies, totals = np.zeros(terms, np.int64), np.zeros(terms, np.int64)
    lengths_agree = forms.count(
        segment.vector_offsets,
        segment.vector_terms,
        segment.vector_counts,
        segment.lengths,
        frequencies,
        totals,
    )
    _expect(segment, "lengths", lengths_agree)
    _expect(
        segment, "postings.offsets", np.array_equal(frequencies, np.diff(segment.posting_offsets))
    )
    _expect(segment, "term_totals", np.array_equal(totals, segment.term_totals))
    _expect(segment, "lengths", int(totals.sum()) == segment.record.tokens)


def check_deleted(segment: "Segment") -> None:
    """Apart from the rest, because a deletion changes nothing else; takes no time."""
    ends = np.array([0, len(segment.deleted)])
    _expect(segment, "deleted", rows_ascend(ends, segment.deleted, len(segment)))


def _expect(segment: "Segment", name: str, true: bool | np.bool_) -> None:
    if not true:
        raise _damaged(segment, name, "its numbers are not those of an index")


def _damaged(segment: "Segment", name: str, problem: str) -> CorruptError:
    file = segment.record.deleted if name == "deleted" else f"{name}.npy"
    return CorruptError(
        f"{segment.folder / str(file)} is damaged: {problem}; build the index again from its texts"
    )


@compiled
def _ascend(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> bool:
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
def _rows_ascend(offsets: NDArray[np.int64], values: NDArray[np.uint32], limit: int) -> bool:
    """Whether the values of each row ascend, and stay below a limit."""
    for number in range(len(offsets) - 1):
        row = values[offsets[number] : offsets[number + 1]]
        wrong = np.uint32(0)  # without a branch for each: several are compared at once
        for i in range(1, len(row)):
            wrong |= np.uint32(row[i] <= row[i - 1])
        if wrong or (len(row) and row[-1] >= limit):
            return False
    return True


@compiled
def _count(
    offsets: NDArray[np.int64],
    terms: NDArray[np.uint32],
    counts: Any,
    lengths: NDArray[np.uint32],
    frequencies: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> bool:
    """Counts terms in document vectors; whether each document is as long as its vector says."""
    for doc in range(len(offsets) - 1):
        row, row_counts = terms[offsets[doc] : offsets[doc + 1]], counts[offsets[doc] :]
        length = 0
        for i in range(len(row)):
            frequencies[row[i]] += 1
            totals[row[i]] += row_counts[i]
            length += row_counts[i]
        if length != lengths[doc]:
            return False
    return True


class _Forms(NamedTuple):
    ascend: Callable[..., bool]
    rows_ascend: Callable[..., bool]
    count: Callable[..., bool]


_COMPILED = _Forms(_ascend, _rows_ascend, _count)
_PLAIN = _Forms(ascend, rows_ascend, count)
