"""The index at one moment: its segments with the statistics they share.

Never changes, so any number of threads may search it while the index itself moves on.
"""

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import GlassrankError, explained
from glassrank.retrieve.manifest import Manifest, manifest_in, open_index, read_manifest
from glassrank.retrieve.scoring import BM25, QL, CollectionStatistics, Floats, TermStatistics
from glassrank.retrieve.segment import Segment, SegmentRecord
from glassrank.retrieve.where import Columns, Where, columns, masks
from glassrank.types import Doc

_FILTERS_KEPT = 8
_TERMS_KEPT = 50_000
"""About 20 megabytes, whatever strangers search for."""


class IndexTerm(NamedTuple):
    """A term's number in each segment (-1: not there), and its statistics over all of them."""

    numbers: tuple[int, ...]
    statistics: TermStatistics


class Snapshot:
    """Segments that do not change any more, with the statistics of all of them together."""

    def __init__(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        self.manifest = manifest
        self.segments = tuple(segments)
        # Documents of all segments are numbered through; these are each segment's first numbers.
        self.bases = [0]
        for segment in self.segments:
            self.bases.append(self.bases[-1] + len(segment))
        self.collection = CollectionStatistics(
            docs=sum(len(segment) - len(segment.deleted) for segment in self.segments),
            tokens=sum(
                segment.record.tokens - segment.deleted_statistics[0] for segment in self.segments
            ),
        )
        # Queries repeat their words, and a method its parameters. Neither refers to the snapshot,
        # so that its files are closed as soon as nobody searches it, and not some time later.
        self.term: Callable[[str], IndexTerm] = lru_cache(maxsize=_TERMS_KEPT)(
            partial(_term, self.segments)
        )
        self._lengths = lru_cache(maxsize=4)(partial(_lengths, self.segments))
        self.live = tuple(segment.live for segment in self.segments)
        """What may be found in each segment: a mask, or empty for all of it."""
        self._columns = lru_cache(maxsize=1)(partial(_columns, self.segments))
        self._masks = lru_cache(maxsize=_FILTERS_KEPT)(partial(_masks, self._columns))

    @classmethod
    def open(
        cls, path: Path, *, verify: bool, seen: Sequence[SegmentRecord] | None = None
    ) -> "Snapshot":
        """`verify` and `seen` as in `Segment`."""
        with explained(f"read the index {path}"):
            while True:
                with open_index(path) as folder:
                    manifest = manifest_in(folder)
                    try:
                        return cls(
                            manifest,
                            [
                                Segment(folder, record, verify=verify, seen=seen)
                                for record in manifest.segments
                            ],
                        )
                    except (OSError, GlassrankError):
                        # A writer may have replaced these segments meanwhile: begin again.
                        if read_manifest(path).state == manifest.state:
                            raise

    def part_of(
        self, collection: CollectionStatistics, terms: Mapping[str, TermStatistics]
    ) -> "Snapshot":
        """The same documents as a part of a larger collection: scores are what they are there. Of
        terms that are not given nothing is found."""
        part = copy.copy(self)
        part.collection = collection
        nowhere = TermStatistics(0, 0)
        part.term = lambda term: IndexTerm(self.term(term).numbers, terms.get(term, nowhere))
        return part

    def lengths(self, method: BM25 | QL) -> tuple[Floats, ...]:
        """The part of every document's score that its length decides, for each segment."""
        return self._lengths(method, self.collection)

    def filtered(self, where: Where) -> "Snapshot":
        """The same, where nothing but what fits these conditions may be found. Statistics stay
        those of all documents, and so do scores."""
        return self.masked(self._masks(where))

    def masked(self, masks: Sequence[NDArray[np.bool_]]) -> "Snapshot":
        """The same with a mask for each segment."""
        chosen = copy.copy(self)
        chosen.live = tuple(
            mask & live if len(live) else mask for mask, live in zip(masks, self.live, strict=True)
        )
        return chosen

    def prepare_filters(self) -> None:
        """What the first filter would otherwise wait for."""
        self._columns()

    @property
    def records(self) -> list[SegmentRecord]:
        """Of its segments, as the manifest has them."""
        return [segment.record for segment in self.segments]

    def place(self, number: int) -> tuple[Segment, int]:
        """The segment of a document, and its number there."""
        position = bisect_right(self.bases, number) - 1
        return self.segments[position], number - self.bases[position]

    def doc_id(self, number: int) -> str:
        """Of a document's number."""
        segment, local = self.place(number)
        return segment.ids[local]

    def doc(self, number: int, characters: int | None = None) -> Doc:
        """With all of its text, or its first so many characters."""
        segment, local = self.place(number)
        return segment.doc(local, characters)

    def find(self, doc_id: str) -> int:
        """The number of a document; -1 if there is none of this id."""
        for base, segment in zip(self.bases, self.segments, strict=False):
            if (local := segment.find(doc_id)) >= 0:
                return base + local
        return -1

    def docs(self) -> Iterator[Doc]:
        """All documents, by segment and id."""
        for segment in self.segments:
            for local in range(len(segment)):
                if not len(segment.live) or segment.live[local]:
                    yield segment.doc(local)


def _term(segments: Sequence[Segment], term: str) -> IndexTerm:
    numbers = tuple(segment.terms.find(term) for segment in segments)
    docs = occurrences = 0
    for segment, number in zip(segments, numbers, strict=True):
        if number >= 0:
            gone_docs, gone = segment.deleted_statistics[1].get(number, (0, 0))
            docs += int(segment.postings.sizes[number]) - gone_docs
            occurrences += int(segment.term_totals[number]) - gone
    return IndexTerm(numbers, TermStatistics(docs, occurrences))


def _columns(segments: Sequence[Segment]) -> list[tuple[Columns, int]]:
    return [(columns(segment), len(segment)) for segment in segments]


def _masks(parts: Callable[[], list[tuple[Columns, int]]], where: Where) -> list[NDArray[np.bool_]]:
    return masks(where, parts())


def _lengths(
    segments: Sequence[Segment], method: BM25 | QL, collection: CollectionStatistics
) -> tuple[Floats, ...]:
    return tuple(method.lengths(segment.lengths, collection) for segment in segments)
