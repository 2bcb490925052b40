"""The index at one moment: the manifest that says which segments there are, and these segments with
the statistics they share.

Everything that the manifest names never changes, and it is replaced by one atomic rename: a reader
sees the index as it was before a change or as it is after, whatever happens to the writer. So any
number of threads may search a snapshot while the index itself moves on.
"""

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import CorruptError, GlassrankError, InputError, wrap_os_errors
from glassrank.index.filters import Columns, Filter, columns, masks
from glassrank.index.scoring import BM25, QL, CollectionStatistics, Floats, TermStatistics
from glassrank.index.segment import (
    ARRAYS,
    Segment,
    SegmentRecord,
    is_deleted_file,
    is_segment_name,
)
from glassrank.storage.checksummed_json import check_integer, parse_records, read_json, write_json
from glassrank.storage.folders import Folder
from glassrank.types import Doc

MANIFEST_FILE = "manifest.json"
FORMAT = 2
"""1 had postings and document vectors as they are, not packed."""
_KEY = "index"
_MOST_DOCS = (1 << 32) - 1
"""In a segment: documents are numbered in 32 bits."""
_FILTERS_KEPT = 8
_TERMS_KEPT = 50_000
"""About 20 megabytes, whatever strangers search for."""


@dataclass(frozen=True)
class Manifest:
    """Which segments an index has."""

    analyzer: str
    generation: int = 0
    """Counts the changes since the index was made."""
    segments: tuple[SegmentRecord, ...] = ()
    id: str = ""
    """Random, new with every change: an index that was removed and built again counts from 1
    again, yet is another. Indexes of older versions have none until they are changed."""

    @property
    def state(self) -> tuple[str, int]:
        """Differs between any two states of any index."""
        return self.id, self.generation


def open_index(path: Path) -> Folder:
    """An index's folder; what is no index is said so."""
    try:
        return Folder.open(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_index(path) from None


def read_manifest(path: Path) -> Manifest:
    """Of the index at this path."""
    with open_index(path) as folder:
        return load_manifest(folder)


def load_manifest(folder: Folder) -> Manifest:
    """Of an open index; what is damaged is named."""
    try:
        body = read_json(folder, MANIFEST_FILE, "build the index again", _KEY)
    except FileNotFoundError:
        raise _no_index(folder.path) from None
    try:
        if body["format"] != FORMAT:
            raise InputError(
                f"{folder.path} has index format {str(body['format'])[:20]}, this version reads "
                f"{FORMAT}; build it again: glassrank index DOCS --out {folder.path} --overwrite"
            )
        segments = tuple(map(_segment, body["segments"]))
        if len({segment.name for segment in segments}) < len(segments):
            raise ValueError("a segment is named twice")
        return Manifest(
            _text(body["analyzer"]),
            check_integer(body["generation"]),
            segments,
            _text(body.get("id", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"{folder.path / MANIFEST_FILE} is damaged ({error}); "
            "restore it from a copy or build the index again"
        ) from None


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """The commit: until the rename nothing has happened, after it everything has."""
    write_json(folder, MANIFEST_FILE, {"format": FORMAT, **asdict(manifest)}, _KEY)


def _no_index(path: Path) -> InputError:
    return InputError(
        f"{path} is not an index (it has no {MANIFEST_FILE}); "
        f"make one with: glassrank index DOCS --out {path}"
    )


def _segment(stored: dict[str, Any]) -> SegmentRecord:
    name, deleted = _text(stored["name"]), stored["deleted"]
    if not is_segment_name(name):
        raise ValueError(f"{name[:40]!r} is no name of a segment")
    if deleted is not None and not is_deleted_file(_text(deleted)):
        raise ValueError(f"{deleted[:40]!r} is no list of deleted documents")
    files = parse_records(stored["files"])
    expected = {f"{name}.npy" for name in ARRAYS} | ({deleted} if deleted else set())
    if files.keys() != expected:
        raise ValueError(f"the files of {name} are not those of a segment")
    docs, tokens = check_integer(stored["docs"], _MOST_DOCS), check_integer(stored["tokens"])
    return SegmentRecord(name, docs, tokens, files, deleted)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ValueError(f"expected a short text, found {str(value)[:40]}")
    return value


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
        with wrap_os_errors(f"read the index {path}"):
            while True:
                with open_index(path) as folder:
                    manifest = load_manifest(folder)
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

    def with_statistics(
        self, collection: CollectionStatistics, terms: Mapping[str, TermStatistics]
    ) -> "Snapshot":
        """The same documents as a part of a larger collection: scores are what they are there. Of
        terms that are not given nothing is found."""
        part = copy.copy(self)
        part.collection = collection
        nowhere = TermStatistics(0, 0)
        part.term = lambda term: IndexTerm(self.term(term).numbers, terms.get(term, nowhere))
        return part

    def length_norms(self, method: BM25 | QL) -> tuple[Floats, ...]:
        """The part of every document's score that its length decides, for each segment."""
        return self._lengths(method, self.collection)

    def with_filter(self, where: Filter) -> "Snapshot":
        """The same, where nothing but what fits these conditions may be found. Statistics stay
        those of all documents, and so do scores."""
        return self.with_masks(self._masks(where))

    def with_masks(self, masks: Sequence[NDArray[np.bool_]]) -> "Snapshot":
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

    def locate(self, number: int) -> tuple[Segment, int]:
        """The segment of a document, and its number there."""
        position = bisect_right(self.bases, number) - 1
        return self.segments[position], number - self.bases[position]

    def doc_id(self, number: int) -> str:
        """Of a document's number."""
        segment, local = self.locate(number)
        return segment.ids[local]

    def doc(self, number: int, characters: int | None = None) -> Doc:
        """With all of its text, or its first so many characters."""
        segment, local = self.locate(number)
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


def _masks(
    parts: Callable[[], list[tuple[Columns, int]]], where: Filter
) -> list[NDArray[np.bool_]]:
    return masks(where, parts())


def _lengths(
    segments: Sequence[Segment], method: BM25 | QL, collection: CollectionStatistics
) -> tuple[Floats, ...]:
    return tuple(method.length_norms(segment.lengths, collection) for segment in segments)
