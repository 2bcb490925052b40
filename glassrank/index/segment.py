"""A segment: a part of the collection that never changes, as plain arrays in a folder.

Documents are numbered in the order of their ids and terms in the order of their bytes, so numbers
compare as ids do, and either is found by bisection.

| arrays | what they hold |
|---|---|
| `ids`, `texts`, `fields` | each document's id, text, and title, source and metadata as JSON |
| `terms`, `term_totals` | each term, and how often it occurs in the segment |
| `vectors` | for each document its terms and how often they occur: the document vectors, packed |
| `postings` | the same turned round: for each term its documents and how often, packed |
| `lengths` | tokens in each document |

Vectors have terms by how many documents have them, the most frequent first: such numbers are small
and near each other, and take fewer bits (`terms_by_frequency`).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import CorruptError, InputError
from glassrank.index.packed_postings import SMALL_DTYPES, PackedPostings
from glassrank.index.segment_checks import check_deleted, check_shapes, check_values
from glassrank.index.topk import POSTINGS_BLOCK
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import ArrayDtypes, as_readonly, open_array, open_arrays
from glassrank.storage.ragged_arrays import Strings
from glassrank.types import Doc

VECTORS_BLOCK = 16
_OFFSETS = (*SMALL_DTYPES, np.int64)
ARRAYS: ArrayDtypes = {
    **{f"{name}.offsets": _OFFSETS for name in ("ids", "terms", "texts", "fields")},
    **{f"{name}.data": [np.uint8] for name in ("ids", "terms", "texts", "fields")},
    "lengths": SMALL_DTYPES,
    "term_totals": _OFFSETS,
    **{f"{name}.sizes": SMALL_DTYPES for name in ("vectors", "postings")},
    **{f"{name}.starts": _OFFSETS for name in ("vectors", "postings")},
    **{f"{name}.words": [np.uint32] for name in ("vectors", "postings")},
}
_FIELDS = {"title": str, "source": str, "metadata": dict}
FIELDS_BYTES = 256 << 10
"""Title, source and metadata of a document, as JSON: hits show them, so they are read in time."""
_NAME = re.compile(r"segment-\d{6,18}-\d{1,9}(-[0-9a-f]{8})?", re.ASCII)
_DELETED = re.compile(r"deleted-\d{1,18}-\d{1,10}\.npy", re.ASCII)


def is_segment_name(name: str) -> bool:
    """Whether a writer gives such names."""
    return _NAME.fullmatch(name) is not None


def is_segment_file(name: str) -> bool:
    """Whether a segment's folder may hold it."""
    return name.removesuffix(".npy") in ARRAYS or is_deleted_file(name)


def is_deleted_file(name: str) -> bool:
    """Whether it is a list of deleted documents, by its name."""
    return _DELETED.fullmatch(name) is not None


@dataclass(frozen=True)
class SegmentRecord:
    """What the manifest says of a segment."""

    name: str
    docs: int
    tokens: int
    files: dict[str, FileRecord]
    deleted: str | None = None
    """The file of `files` that lists deleted documents."""

    def has_arrays_of(self, other: "SegmentRecord") -> bool:
        """Whether it is the same segment, whatever is deleted of it."""
        mine, others = (
            {name: file for name, file in record.files.items() if name != record.deleted}
            for record in (self, other)
        )
        return mine == others and (self.name, self.docs, self.tokens) == (
            other.name,
            other.docs,
            other.tokens,
        )


class Segment:
    """The open arrays of a segment; safe to read from any number of threads."""

    def __init__(
        self,
        parent: Folder,
        record: SegmentRecord,
        *,
        verify: bool,
        seen: Sequence[SegmentRecord] | None = None,
    ) -> None:
        """`verify` reads every byte, compares checksums, and looks at the numbers; with `seen`, the
        numbers of what is not among it are looked at."""
        self.folder = parent.path / record.name
        self.record = record
        try:
            with parent.child(record.name) as folder:
                arrays = open_arrays(folder, record.files, ARRAYS, verify=verify)
                self.deleted: NDArray[np.uint32] = (
                    np.empty(0, np.uint32)
                    if record.deleted is None
                    else open_array(
                        folder,
                        record.deleted,
                        record.files[record.deleted],
                        [np.uint32],
                        verify=verify,
                    )
                )
        except FileNotFoundError:
            raise CorruptError(
                f"{self.folder}/ is missing; restore it from a copy or build the index again"
            ) from None
        self.ids, self.terms, self.texts, self.fields = (
            Strings(arrays[f"{name}.offsets"], arrays[f"{name}.data"])
            for name in ("ids", "terms", "texts", "fields")
        )
        self.lengths: NDArray[np.uint32] = as_readonly(arrays["lengths"].astype(np.uint32))  # (N,)
        self.term_totals: NDArray[Any] = arrays["term_totals"]  # (T,)
        self.vectors, self.postings = (
            PackedPostings(
                arrays[f"{name}.sizes"], arrays[f"{name}.starts"], arrays[f"{name}.words"], block
            )
            for name, block in (("vectors", VECTORS_BLOCK), ("postings", POSTINGS_BLOCK))
        )
        check_shapes(self)
        check_deleted(self)
        if verify or (seen is not None and not any(map(record.has_arrays_of, seen))):
            check_values(self)

    def __len__(self) -> int:
        """Documents, deleted ones included."""
        return self.record.docs

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """True for documents that are not deleted; empty when none is."""
        if not len(self.deleted):
            return np.empty(0, np.bool_)
        live = np.ones(len(self), np.bool_)
        live[self.deleted] = False
        return live

    @cached_property
    def deleted_statistics(self) -> tuple[int, dict[int, tuple[int, int]]]:
        """Tokens, and term -> (documents, occurrences), that went with the deleted documents.

        Taken off the collection's statistics, so that a deletion leaves no trace in any score.
        """
        rows = self.vectors.unpack(self.deleted)
        terms, which = np.unique(self.by_frequency[rows.values], return_inverse=True)
        occurrences = np.bincount(which, rows.counts).astype(np.int64)
        numbers = zip(np.bincount(which).tolist(), occurrences.tolist(), strict=True)
        tokens = int(self.lengths[self.deleted].sum(dtype=np.int64))
        return tokens, dict(zip(terms.tolist(), numbers, strict=True))

    @cached_property
    def by_frequency(self) -> NDArray[np.int64]:
        """Numbers of its terms, in the order in which document vectors number them."""
        return terms_by_frequency(self.postings.sizes)

    def vector(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """A document's terms, in no order, and how often they occur in it."""
        row = self.vectors.unpack(slice(number, number + 1))
        return self.by_frequency[row.values], row.counts

    def find(self, doc_id: str) -> int:
        """The number of a document that is not deleted; -1 if there is none of this id."""
        doc = self.ids.find(doc_id)
        return -1 if doc < 0 or (len(self.live) and not self.live[doc]) else doc

    def doc(self, number: int, characters: int | None = None) -> Doc:
        """With all of its text, or its first so many characters."""
        text = self.texts[number] if characters is None else self.texts.prefix(number, characters)
        most = None if characters is None else FIELDS_BYTES
        return Doc(self.ids[number], text, **self._fields(number, most))

    def metadata(self, number: int) -> Mapping[str, object]:
        """Fields of a document that are neither title, text nor source."""
        fields: Mapping[str, object] = self._fields(number).get("metadata", {})
        return fields

    def _fields(self, number: int, most: int | None = None) -> dict[str, Any]:
        """Title, source and metadata; of more than so many bytes, those at the beginning."""
        size = self.fields.num_bytes(number)
        if not size:
            return {}
        if most is not None and size > most:
            beginning = self.fields.prefix(number, most // 4)
            return {**_decode_beginning(beginning), "fields_cut": True}
        try:
            stored = self.fields.get_bytes(number)
            fields = _FIELDS_DECODER.decode(stored.decode("utf-8", "surrogatepass"))
            known = isinstance(fields, dict) and fields.keys() <= _FIELDS.keys()
            if known and all(isinstance(value, _FIELDS[name]) for name, value in fields.items()):
                return dict(fields)
        except (ValueError, RecursionError):
            pass
        raise CorruptError(
            f"{self.folder / 'fields.data.npy'} is damaged: what it has of document "
            f"{self.ids[number]!r} cannot be read; build the index again from its texts"
        )


def terms_by_frequency(frequencies: NDArray[Any]) -> NDArray[np.int64]:
    """The most frequent term first; those that 65,535 documents or more have, in their order.

    >>> terms_by_frequency(np.array([1, 3, 2, 3])).tolist()
    [1, 3, 2, 0]
    """
    clipped = np.minimum(frequencies.astype(np.int64), 65_535).astype(np.uint16)
    return np.argsort(~clipped, kind="stable")  # numbers of 16 bits are sorted in linear time


def _finite(text: str) -> float | None:
    """Metadata may hold what is not a number, which JSON cannot say again."""
    return number if math.isfinite(number := float(text)) else None


def _nothing(_: str) -> None:
    return None


# Made once: making it takes longer than reading what a document has.
_FIELDS_DECODER = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)


def _decode_beginning(text: str) -> dict[str, Any]:
    """Of an object in JSON that was cut off, the entries that are whole.

    >>> _decode_beginning('{"title": "Owls", "metadata": {"year": 1999, "text": "They ho')
    {'title': 'Owls', 'metadata': {'year': 1999}}
    """
    known: dict[str, Any] = {}
    inside, place = known, 1
    with suppress(ValueError, RecursionError, IndexError):
        while True:
            name, place = _FIELDS_DECODER.raw_decode(text, place)
            place += len(": ")
            if inside is known and name == "metadata":
                inside = known["metadata"] = {}
                place += len("{")
            else:
                value, place = _FIELDS_DECODER.raw_decode(text, place)
                if isinstance(value, str) or inside is not known:
                    inside[str(name)] = value
                place += len(", ")
    return {name: value for name, value in known.items() if name in _FIELDS}


def encode_fields(doc: Doc) -> bytes:
    """What `fields` keeps of a document: nothing, in most collections."""
    fields = {
        name: value
        for name, value in (
            ("title", doc.title),
            ("source", doc.source),
            ("metadata", dict(doc.metadata)),
        )
        if value
    }
    if not fields:
        return b""
    try:
        encoded = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the metadata of document {doc.doc_id!r} cannot be kept as JSON: {error}"
        ) from None
    if len(encoded) > FIELDS_BYTES:
        raise InputError(
            f"document {doc.doc_id!r} has {len(encoded):,} bytes of title, source and metadata; "
            f"at most {FIELDS_BYTES:,} are kept, so leave out what need not be shown with a hit"
        )
    return encoded
