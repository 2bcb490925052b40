"""A snapshot of an index: the manifest, its segments, and the statistics of all of them.

What a manifest names never changes, and one atomic rename replaces the manifest: a reader sees the
index before a change or after it, whatever happens to the writer. Any number of threads may search
a snapshot while the index changes.

*Live* documents are those that are not deleted, as in Lucene.
"""

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassrank.errors import CorruptError, GlassrankError, InputError, wrap_os_errors
from glassrank.index.filters import (
    Columns,
    Filter,
    FilterSpec,
    build_columns,
    compute_masks,
    parse_filter,
)
from glassrank.index.scoring import BM25, QL, CollectionStatistics, TermStatistics
from glassrank.index.segment import ARRAYS, Segment, SegmentRecord, is_deleted_file, is_segment_name
from glassrank.storage.checksummed_json import check_integer, parse_records, read_json, write_json
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import Bools, Floats, Ints
from glassrank.types import Doc

MANIFEST_FILE = "manifest.json"
FORMAT = 2  # format 1 had unpacked postings and term vectors
_KEY = "index"
_MOST_DOCS = (1 << 32) - 1  # of a segment: documents have 32-bit numbers
_FILTERS_KEPT = 8
_TERMS_KEPT = 50_000  # about 20 MB, whatever the queries are


@dataclass(frozen=True)
class Manifest:
    """The segments of an index."""

    analyzer: str
    generation: int = 0  # the number of changes since the index was made
    segments: tuple[SegmentRecord, ...] = ()
    id: str = ""
    """Random, new with every change: an index that is built again has the same generations. Indexes
    of older versions have none until they are changed."""

    @property
    def state(self) -> tuple[str, int]:
        """Differs between any two states of any index."""
        return self.id, self.generation


def open_index(path: Path) -> Folder:
    """Opens the folder of an index; the caller closes it."""
    try:
        return Folder.open(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _not_an_index(path) from None


def read_manifest(path: Path) -> Manifest:
    """The manifest of the index at this path."""
    with open_index(path) as folder:
        return load_manifest(folder)


def load_manifest(folder: Folder) -> Manifest:
    """The manifest of an open index."""
    try:
        body = read_json(folder, MANIFEST_FILE, "build the index again", _KEY)
    except FileNotFoundError:
        raise _not_an_index(folder.path) from None
    try:
        if body["format"] != FORMAT:
            raise InputError(
                f"{folder.path} has index format {str(body['format'])[:20]}, this version reads "
                f"{FORMAT}; build it again: glassrank index DOCS --out {folder.path} --overwrite",
                code="wrong_version",
            )
        segments = tuple(map(_segment, body["segments"]))
        if len({segment.name for segment in segments}) < len(segments):
            raise ValueError("a segment appears twice")
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
    """Commits a change by one rename."""
    write_json(folder, MANIFEST_FILE, {"format": FORMAT, **asdict(manifest)}, _KEY)


def _not_an_index(path: Path) -> InputError:
    if path.is_file():
        made = path.with_suffix(".index")
        return InputError(
            f"{path} is not an index (it is a file); "
            f"make one with: glassrank index {path} --out {made}",
            code="not_found",
        )
    return InputError(
        f"{path} is not an index (it has no {MANIFEST_FILE}); "
        f"make one with: glassrank index DOCS --out {path}",
        code="not_found",
    )


def _segment(stored: dict[str, Any]) -> SegmentRecord:
    name, deleted = _text(stored["name"]), stored["deleted"]
    if not is_segment_name(name):
        raise ValueError(f"{name[:40]!r} is not the name of a segment")
    if deleted is not None and not is_deleted_file(_text(deleted)):
        raise ValueError(f"{deleted[:40]!r} is not a list of deleted documents")
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
    """The number of a term in each segment (-1: absent), and its statistics over all."""

    numbers: tuple[int, ...]
    statistics: TermStatistics


class Snapshot:
    """Immutable segments with their common statistics."""

    def __init__(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        self.manifest = manifest
        self.segments = tuple(segments)
        # Documents are numbered over all segments; these are the first numbers of each.
        self.bases = [0, *accumulate(map(len, self.segments))]
        self.collection = CollectionStatistics(
            docs=sum(len(segment) - len(segment.deleted) for segment in self.segments),
            tokens=sum(
                segment.record.tokens - segment.deleted_statistics[0] for segment in self.segments
            ),
        )
        # Queries repeat terms and methods. The caches do not refer to the snapshot, so that its
        # files are closed as soon as nobody searches it.
        self.term: Callable[[str], IndexTerm] = lru_cache(maxsize=_TERMS_KEPT)(
            partial(_term, self.segments)
        )
        self._lengths = lru_cache(maxsize=4)(partial(_lengths, self.segments))
        self.live = tuple(segment.live for segment in self.segments)
        """For each segment the documents that a search may return: a mask, or empty for all."""
        self._columns = lru_cache(maxsize=1)(partial(_columns, self.segments))
        self._masks = lru_cache(maxsize=_FILTERS_KEPT)(partial(_masks, self._columns))

    @classmethod
    def open(
        cls, path: Path, *, verify: bool, checked: Sequence[SegmentRecord] | None = None
    ) -> "Snapshot":
        """`verify` and `checked` as in `Segment`."""
        with wrap_os_errors(f"read the index {path}"):
            while True:
                with open_index(path) as folder:
                    manifest = load_manifest(folder)
                    try:
                        segments = [
                            Segment(folder, record, verify=verify, checked=checked)
                            for record in manifest.segments
                        ]
                        return cls(manifest, segments)
                    except (OSError, GlassrankError):
                        # A writer may have replaced these segments meanwhile: start again.
                        if read_manifest(path).state == manifest.state:
                            raise

    def with_statistics(
        self, collection: CollectionStatistics, terms: Mapping[str, TermStatistics]
    ) -> "Snapshot":
        """The same documents with the statistics of a larger collection."""
        part = copy.copy(self)
        part.collection = collection
        nowhere = TermStatistics(0, 0)
        part.term = lambda term: IndexTerm(self.term(term).numbers, terms.get(term, nowhere))
        return part

    def length_norms(self, method: BM25 | QL) -> tuple[Floats, ...]:
        """The length norms of all documents, for each segment."""
        return self._lengths(method, self.collection)

    def with_filter(self, where: FilterSpec | None) -> "Snapshot":
        """A snapshot whose searches return only matching documents, with the same scores."""
        conditions = None if where is None else parse_filter(where)
        return self.with_masks(self._masks(conditions)) if conditions else self

    def with_masks(self, masks: Sequence[Bools]) -> "Snapshot":
        """A snapshot whose searches return only these documents, given as a mask per segment."""
        chosen = copy.copy(self)
        chosen.live = tuple(
            mask & live if len(live) else mask for mask, live in zip(masks, self.live, strict=True)
        )
        return chosen

    def with_docs(self, docs: Ints) -> "Snapshot":
        """A snapshot whose searches return only these documents, by their numbers."""
        chosen = np.zeros(self.bases[-1], np.bool_)
        chosen[docs] = True
        return self.with_masks(np.split(chosen, self.bases[1:-1]))

    def are_live(self, docs: Ints) -> Bools:
        """Of each document, whether searches may return it."""
        positions = np.searchsorted(self.bases, docs, side="right") - 1
        answers = np.ones(len(docs), np.bool_)
        for position, live in enumerate(self.live):
            if len(live):
                here = positions == position
                answers[here] = live[docs[here] - self.bases[position]]
        return answers

    def prepare_filters(self) -> None:
        """Builds the columns that the first filter would wait for."""
        self._columns()

    @property
    def records(self) -> list[SegmentRecord]:
        """The manifest entries of its segments."""
        return [segment.record for segment in self.segments]

    def locate(self, number: int) -> tuple[Segment, int]:
        """The segment of a document, and its number there."""
        position = bisect_right(self.bases, number) - 1
        return self.segments[position], number - self.bases[position]

    def doc_id(self, number: int) -> str:
        """The id of a document."""
        segment, local = self.locate(number)
        return segment.ids[local]

    def doc(self, number: int, characters: int | None = None) -> Doc:
        """The document, with its whole text or the first `characters` of it."""
        segment, local = self.locate(number)
        return segment.doc(local, characters)

    def find(self, doc_id: str) -> int:
        """The number of the document with this id; -1 if there is none."""
        for base, segment in zip(self.bases, self.segments, strict=False):
            if (local := segment.find(doc_id)) >= 0:
                return base + local
        return -1

    def docs(self) -> Iterator[Doc]:
        """All live documents, by segment and id."""
        for segment in self.segments:
            for local in range(len(segment)):
                if not len(segment.live) or segment.live[local]:
                    yield segment.doc(local)


def _term(segments: Sequence[Segment], term: str) -> IndexTerm:
    numbers = tuple(segment.terms.find(term) for segment in segments)
    docs = occurrences = 0
    for segment, number in zip(segments, numbers, strict=True):
        if number >= 0:
            deleted_docs, deleted = segment.deleted_statistics[1].get(number, (0, 0))
            docs += int(segment.postings.sizes[number]) - deleted_docs
            occurrences += int(segment.term_totals[number]) - deleted
    return IndexTerm(numbers, TermStatistics(docs, occurrences))


def _columns(segments: Sequence[Segment]) -> list[tuple[Columns, int]]:
    return [(build_columns(segment), len(segment)) for segment in segments]


def _masks(parts: Callable[[], list[tuple[Columns, int]]], where: Filter) -> list[Bools]:
    return compute_masks(where, parts())


def _lengths(
    segments: Sequence[Segment], method: BM25 | QL, collection: CollectionStatistics
) -> tuple[Floats, ...]:
    return tuple(method.length_norms(segment.lengths, collection) for segment in segments)
