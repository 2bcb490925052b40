"""A segment: an immutable part of the collection, as plain arrays in a folder.

Documents are numbered in the order of their ids and terms in the order of their bytes, so numbers
compare as ids do, and both are found by bisection.

| arrays | what they hold |
|---|---|
| `ids`, `texts`, `fields` | each document's id, text, and title, source and metadata as JSON |
| `terms`, `term_totals` | each term, and its occurrences in the segment |
| `vectors` | the term vectors, packed: for each document its terms and their tf |
| `postings` | the inverted index, packed: for each term its documents and their tf |
| `lengths` | tokens in each document |

Term vectors number terms by descending document frequency (`sort_terms_by_df`): such numbers are
small and close to each other, and take fewer bits.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import CorruptError, InputError
from glassrank.index.packed_postings import SMALL_DTYPES, PackedPostings
from glassrank.index.scoring import POSTINGS_BLOCK
from glassrank.index.segment_checks import check_deleted, check_shapes, check_values
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import (
    ArrayDtypes,
    Bools,
    Ints,
    Strings,
    Uints,
    as_readonly,
    open_array,
    open_arrays,
)
from glassrank.types import Doc

VECTORS_BLOCK = 16
_STRINGS = ("ids", "terms", "texts", "fields")
_PACKED = {"vectors": VECTORS_BLOCK, "postings": POSTINGS_BLOCK}
_OFFSETS = (*SMALL_DTYPES, np.int64)
ARRAYS: ArrayDtypes = {
    **{f"{name}.offsets": _OFFSETS for name in _STRINGS},
    **{f"{name}.data": [np.uint8] for name in _STRINGS},
    "lengths": SMALL_DTYPES,
    "term_totals": _OFFSETS,
    **{f"{name}.sizes": SMALL_DTYPES for name in _PACKED},
    **{f"{name}.starts": _OFFSETS for name in _PACKED},
    **{f"{name}.words": [np.uint32] for name in _PACKED},
}
_FIELDS = {"title": str, "source": str, "metadata": dict}
MAX_FIELDS_BYTES = 256 << 10
"""Limit of a document's title, source and metadata as JSON: a search reads them for its hits."""
_NAME = re.compile(r"segment-\d{6,18}-\d{1,9}(-[0-9a-f]{8})?", re.ASCII)
_DELETED = re.compile(r"deleted-\d{1,18}-\d{1,10}\.npy", re.ASCII)


def is_segment_name(name: str) -> bool:
    """Whether it is a name that a writer gives to a segment."""
    return _NAME.fullmatch(name) is not None


def is_segment_file(name: str) -> bool:
    """Whether it is the name of a file of a segment."""
    return name.removesuffix(".npy") in ARRAYS or is_deleted_file(name)


def is_deleted_file(name: str) -> bool:
    """Whether it is the name of a list of deleted documents."""
    return _DELETED.fullmatch(name) is not None


@dataclass(frozen=True)
class SegmentRecord:
    """The entry of a segment in the manifest."""

    name: str
    docs: int
    tokens: int
    files: dict[str, FileRecord]
    deleted: str | None = None  # the file of `files` that lists deleted documents

    def without_deletions(self) -> "SegmentRecord":
        """The record of the same segment with no document deleted."""
        files = {name: file for name, file in self.files.items() if name != self.deleted}
        return replace(self, files=files, deleted=None)


class Segment:
    """The open arrays of a segment; any number of threads may read it."""

    def __init__(
        self,
        parent: Folder,
        record: SegmentRecord,
        *,
        verify: bool,
        checked: Sequence[SegmentRecord] | None = None,
    ) -> None:
        """`verify` compares all checksums and values; `checked` segments are trusted."""
        self.folder = parent.path / record.name
        self.record = record
        try:
            with parent.child(record.name) as folder:
                arrays = open_arrays(folder, record.files, ARRAYS, verify=verify)
                self.deleted: Uints = np.empty(0, np.uint32)
                if name := record.deleted:
                    file = record.files[name]
                    self.deleted = open_array(folder, name, file, [np.uint32], verify=verify)
        except FileNotFoundError:
            raise CorruptError(
                f"{self.folder}/ is missing; restore it from a copy or build the index again"
            ) from None
        self.strings = {
            name: Strings(arrays[f"{name}.offsets"], arrays[f"{name}.data"]) for name in _STRINGS
        }
        self.ids, self.terms, self.texts, self.fields = self.strings.values()
        self.lengths: Uints = as_readonly(arrays["lengths"].astype(np.uint32))  # (N,)
        self.term_totals: NDArray[Any] = arrays["term_totals"]  # (T,)
        self.packed = {
            name: PackedPostings(
                arrays[f"{name}.sizes"], arrays[f"{name}.starts"], arrays[f"{name}.words"], block
            )
            for name, block in _PACKED.items()
        }
        self.vectors, self.postings = self.packed.values()
        check_shapes(self)
        check_deleted(self)
        same = record.without_deletions()
        is_new = checked is not None and all(same != other.without_deletions() for other in checked)
        if verify or is_new:
            check_values(self)

    def __len__(self) -> int:
        """The number of documents, deleted ones included."""
        return self.record.docs

    @cached_property
    def live(self) -> Bools:
        """Lucene's live docs: true for documents that are not deleted; empty if none is."""
        if not len(self.deleted):
            return np.empty(0, np.bool_)
        live = np.ones(len(self), np.bool_)
        live[self.deleted] = False
        return live

    @cached_property
    def deleted_statistics(self) -> tuple[int, dict[int, tuple[int, int]]]:
        """Tokens, and term -> (documents, occurrences), of the deleted documents. Subtracted from
        the collection's statistics, so that a deletion changes all scores at once."""
        rows = self.vectors.unpack(self.deleted)
        terms, which = np.unique(self.terms_by_df[rows.ids], return_inverse=True)
        occurrences = np.bincount(which, rows.tfs).astype(np.int64)
        numbers = zip(np.bincount(which).tolist(), occurrences.tolist(), strict=True)
        tokens = int(self.lengths[self.deleted].sum(dtype=np.int64))
        return tokens, dict(zip(terms.tolist(), numbers, strict=True))

    @cached_property
    def terms_by_df(self) -> Ints:
        """The terms in the order in which term vectors number them."""
        return sort_terms_by_df(self.postings.sizes)

    def term_vector(self, number: int) -> tuple[Ints, Uints]:
        """The terms of a document, in no order, and their tf."""
        row = self.vectors.unpack(slice(number, number + 1))
        return self.terms_by_df[row.ids], row.tfs

    def find(self, doc_id: str) -> int:
        """The number of the live document with this id; -1 if there is none."""
        doc = self.ids.find(doc_id)
        return -1 if doc < 0 or (len(self.live) and not self.live[doc]) else doc

    def doc(self, number: int, characters: int | None = None) -> Doc:
        """The document, with its whole text or the first `characters` of it."""
        text = self.texts[number] if characters is None else self.texts.prefix(number, characters)
        max_bytes = None if characters is None else MAX_FIELDS_BYTES
        return Doc(self.ids[number], text, **self._fields(number, max_bytes))

    def metadata(self, number: int) -> Mapping[str, object]:
        """The fields of a document except title, text and source."""
        fields: Mapping[str, object] = self._fields(number).get("metadata", {})
        return fields

    def _fields(self, number: int, max_bytes: int | None = None) -> dict[str, Any]:
        """Title, source and metadata; only those in the first part if there are too many bytes."""
        size = self.fields.num_bytes(number)
        if not size:
            return {}
        if max_bytes is not None and size > max_bytes:
            prefix = self.fields.prefix(number, max_bytes // 4)
            return {**_decode_truncated(prefix), "fields_cut": True}
        try:
            stored = self.fields.get_bytes(number)
            fields = _FIELDS_DECODER.decode(stored.decode("utf-8", "surrogatepass"))
            known = isinstance(fields, dict) and fields.keys() <= _FIELDS.keys()
            if known and all(isinstance(value, _FIELDS[name]) for name, value in fields.items()):
                return dict(fields)
        except (ValueError, RecursionError):
            pass
        raise CorruptError(
            f"{self.folder / 'fields.data.npy'} is damaged: the fields of document "
            f"{self.ids[number]!r} cannot be read; build the index again from its texts"
        )


def sort_terms_by_df(frequencies: NDArray[Any]) -> Ints:
    """By descending document frequency; frequencies above 65,535 count as equal.

    >>> sort_terms_by_df(np.array([1, 3, 2, 3])).tolist()
    [1, 3, 2, 0]
    """
    clipped = np.minimum(frequencies.astype(np.int64), 65_535).astype(np.uint16)
    return np.argsort(~clipped, kind="stable")  # 16-bit keys are sorted in linear time


def _finite_or_none(text: str) -> float | None:
    """Metadata may contain NaN and infinity, which JSON cannot write again."""
    return number if math.isfinite(number := float(text)) else None


# Made once: making a decoder takes longer than decoding the fields of a document.
_FIELDS_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite_or_none)


def _decode_truncated(text: str) -> dict[str, Any]:
    """The complete entries of a truncated JSON object.

    >>> _decode_truncated('{"title": "Owls", "metadata": {"year": 1999, "text": "They ho')
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
    """Title, source and metadata as JSON; empty if a document has none."""
    every = {"title": doc.title, "source": doc.source, "metadata": dict(doc.metadata)}
    fields = {name: value for name, value in every.items() if value}
    if not fields:
        return b""
    try:
        encoded = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the metadata of document {doc.doc_id!r} cannot be stored as JSON: {error}"
        ) from None
    if len(encoded) > MAX_FIELDS_BYTES:
        raise InputError(
            f"document {doc.doc_id!r} has {len(encoded):,} bytes of title, source and metadata; "
            f"the limit is {MAX_FIELDS_BYTES:,}; leave out what need not be shown with a hit",
            code="too_large",
        )
    return encoded
