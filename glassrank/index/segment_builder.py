"""Builds a segment from documents in memory, or merges segments without their deleted documents.

A merge copies documents in blocks from the arrays of the old segments; memory holds one block, the
terms, and four bytes for each document and term.
"""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled
from glassrank.errors import DuplicateIdError, InputError
from glassrank.index.segment import Segment, SegmentRecord, encode_fields
from glassrank.index.segment_writer import DocBlock, TermStatisticsTable, write_segment
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import (
    Ints,
    Ragged,
    Strings,
    Uints,
    concat_ranges,
    pack_strings,
)
from glassrank.text.analysis import Analyzer, WordAnalyzer
from glassrank.types import Doc

DOCS_AT_ONCE = 1 << 15  # documents in a block of a merge
_NOT_A_TERM = -1


class _TermNumbers(dict[str, int]):
    """Word -> number of its term, in the order of first occurrence. Stop words have none."""

    def __init__(self, analyzer: WordAnalyzer, terms: dict[str, int]) -> None:
        """All languages share `terms`."""
        self._analyzer = analyzer
        self.terms = terms

    def __missing__(self, word: str) -> int:
        term = self._analyzer.term(word)
        number = self.terms.setdefault(term, len(self.terms)) if term else _NOT_A_TERM
        self[word] = number
        return number


class SegmentBuilder:
    """Collects documents in memory and writes them as a segment."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._terms: dict[str, int] = {}
        self._numbers: dict[str, _TermNumbers] = {}  # by language
        self._ids: list[bytes] = []
        self._texts: list[bytes] = []
        self._fields: list[bytes] = []
        self._tokens = array("i")
        self._ends = array("q", [0])
        self.bytes = 0  # approximate memory of the documents

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def languages(self) -> Iterable[str]:
        """The languages of its documents."""
        return self._numbers.keys()

    def add(self, doc: Doc) -> None:
        """Adds a document."""
        if not doc.doc_id:
            raise InputError("a document has an empty id; give every document an id")
        content = f"{doc.title} {doc.text}" if doc.title else doc.text
        analyzer = self._analyzer.for_text(content)
        numbers = self._numbers.get(analyzer.language)
        if numbers is None:
            numbers = self._numbers[analyzer.language] = _TermNumbers(analyzer, self._terms)
        self._tokens.extend(map(numbers.__getitem__, analyzer.words(content)))
        self._ends.append(len(self._tokens))
        self._ids.append(doc.doc_id.encode("utf-8", "replace"))
        self._texts.append(doc.text.encode("utf-8", "replace"))
        self._fields.append(encode_fields(doc))
        self.bytes += 200 + len(self._texts[-1]) + len(self._fields[-1])
        self.bytes += 4 * (self._ends[-1] - self._ends[-2])

    def write(self, folder: Folder, name: str) -> SegmentRecord:
        """Sorts documents and terms, and writes the segment."""
        order = sorted(range(len(self)), key=self._ids.__getitem__)
        ids = [self._ids[i] for i in order]
        if len(set(ids)) < len(ids):
            twice = next(doc_id for doc_id, n in Counter(ids).items() if n > 1)
            raise DuplicateIdError(twice.decode())
        terms = sorted(self._terms)
        rank = np.empty(len(terms) + 1, np.int32)
        rank[_NOT_A_TERM] = _NOT_A_TERM
        rank[[self._terms[term] for term in terms]] = np.arange(len(terms))
        vector_offsets, vector_terms, vector_tfs = _count(
            rank[np.frombuffer(self._tokens, np.int32)],
            np.frombuffer(self._ends, np.int64),
            np.array(order, np.int64),
        )
        columns = {"ids": self._ids, "texts": self._texts, "fields": self._fields}
        strings = {name: pack_strings([rows[i] for i in order]) for name, rows in columns.items()}
        block = DocBlock(strings, Ragged(vector_offsets, vector_terms), vector_tfs)
        known = TermStatisticsTable(
            [term.encode("utf-8", "replace") for term in terms],
            np.bincount(vector_terms, minlength=len(terms)),
            np.bincount(vector_terms, vector_tfs, len(terms)).astype(np.int64),
        )
        return write_segment(folder, name, known, [block])


@compiled
def _count(tokens: NDArray[np.int32], ends: Ints, order: Ints) -> tuple[Ints, Uints, Uints]:
    """Term vectors: the sorted terms of each document, with their tf."""
    offsets = np.zeros(len(order) + 1, np.int64)
    terms = np.empty(len(tokens), np.uint32)
    counts = np.empty(len(tokens), np.uint32)
    at = 0
    for i in range(len(order)):
        words = np.sort(tokens[ends[order[i]] : ends[order[i] + 1]])
        previous = _NOT_A_TERM
        for word in words:
            if word == _NOT_A_TERM:
                continue
            if word == previous:
                counts[at - 1] += 1
            else:
                terms[at] = word
                counts[at] = 1
                at += 1
                previous = word
        offsets[i + 1] = at
    return offsets, terms[:at].copy(), counts[:at].copy()


def merge_segments(folder: Folder, name: str, segments: Sequence[Segment]) -> SegmentRecord:
    """Writes one segment with the live documents of several."""
    owners, docs = _document_order(segments)
    counts = [_count_live(segment) for segment in segments]
    terms = sorted(
        {
            term
            for segment, (frequencies, _) in zip(segments, counts, strict=True)
            for term, frequency in zip(_as_bytes(segment.terms), frequencies.tolist(), strict=True)
            if frequency
        }
    )
    numbers = {term: number for number, term in enumerate(terms)}
    renumber = [
        np.array([numbers.get(term, 0) for term in _as_bytes(segment.terms)], np.uint32)
        for segment in segments
    ]
    known = TermStatisticsTable(terms, *(np.zeros(len(terms), np.int64) for _ in range(2)))
    for mine, (frequencies, totals) in zip(renumber, counts, strict=True):
        is_live = frequencies > 0  # terms of deleted documents alone have no new number
        known.frequencies[mine[is_live]] += frequencies[is_live]
        known.totals[mine[is_live]] += totals[is_live]
    blocks = (
        _block(segments, renumber, owners[part], docs[part])
        for part in (slice(i, i + DOCS_AT_ONCE) for i in range(0, len(docs), DOCS_AT_ONCE))
    )
    return write_segment(folder, name, known, blocks)


def _count_live(segment: Segment) -> tuple[Ints, Ints]:
    """Live documents that contain each term, and its occurrences in them."""
    frequencies = segment.postings.sizes.astype(np.int64)
    totals = segment.term_totals.astype(np.int64)
    for term, (docs, occurrences) in segment.deleted_statistics[1].items():
        frequencies[term] -= docs
        totals[term] -= occurrences
    return frequencies, totals


def _document_order(segments: Sequence[Segment]) -> tuple[NDArray[np.int32], Ints]:
    """The segment of each document of the result, in the order of ids, and its number there."""

    def live(owner: int, segment: Segment) -> Iterator[tuple[bytes, int, int]]:
        deleted = frozenset(segment.deleted.tolist())
        for number, doc_id in enumerate(_as_bytes(segment.ids)):
            if number not in deleted:
                yield doc_id, owner, number

    size = sum(len(segment) - len(segment.deleted) for segment in segments)
    owners, docs = np.empty(size, np.int32), np.empty(size, np.int64)
    previous = None
    streams = (live(owner, segment) for owner, segment in enumerate(segments))
    for i, (doc_id, owner, number) in enumerate(heapq.merge(*streams)):
        if doc_id == previous:
            raise DuplicateIdError(doc_id.decode())
        owners[i], docs[i], previous = owner, number, doc_id
    return owners, docs


def _as_bytes(strings: Strings) -> Iterator[bytes]:
    return map(strings.get_bytes, range(len(strings)))


def _block(
    segments: Sequence[Segment], renumber: Sequence[Uints], owners: NDArray[np.int32], docs: Ints
) -> DocBlock:
    def gather(name: str) -> Ragged:
        columns = [segment.strings[name] for segment in segments]
        rows = zip(owners.tolist(), docs.tolist(), strict=True)
        return pack_strings([columns[owner].get_bytes(doc) for owner, doc in rows])

    places = [np.flatnonzero(owners == owner) for owner in range(len(segments))]
    vectors = [s.vectors.unpack(docs[mine]) for s, mine in zip(segments, places, strict=True)]
    sizes = np.zeros(len(docs), np.int64)
    for mine, rows in zip(places, vectors, strict=True):
        sizes[mine] = np.diff(rows.offsets)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    terms, tfs = (np.empty(offsets[-1], np.uint32) for _ in range(2))
    for segment, numbers, mine, rows in zip(segments, renumber, places, vectors, strict=True):
        into = concat_ranges(offsets[mine], sizes[mine])
        terms[into] = numbers[segment.terms_by_df[rows.ids]]
        tfs[into] = rows.tfs
    strings = {name: gather(name) for name in ("ids", "texts", "fields")}
    return DocBlock(strings, Ragged(offsets, terms), tfs)
