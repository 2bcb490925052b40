"""A segment: a part of the collection that never changes, as plain arrays in a folder.

Documents are numbered in the order of their ids and terms in the order of their bytes, so numbers
compare as ids do, and either is found by bisection.

| arrays | what they hold |
|---|---|
| `ids`, `texts`, `fields` | each document's id, text, and title, source and metadata as JSON |
| `terms`, `term_totals` | each term, and how often it occurs in the segment |
| `vectors` | for each document its terms and how often they occur: the document vectors |
| `postings` | the same turned round: for each term its documents and how often they have it |
| `lengths` | tokens in each document |
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import FileRecord, Strings, check_files, open_array
from glassrank.errors import InputError
from glassrank.types import Doc


@dataclass(frozen=True)
class SegmentRecord:
    """What the manifest says of a segment."""

    name: str
    docs: int
    tokens: int
    files: dict[str, FileRecord]
    deleted: str | None = None
    """The file of `files` that lists deleted documents."""

    @property
    def deleted_docs(self) -> int:
        # 128 bytes of header, then four for each document
        return 0 if self.deleted is None else (self.files[self.deleted].size - 128) // 4


class Segment:
    """The open arrays of a segment; safe to read from any number of threads."""

    def __init__(self, folder: Path, record: SegmentRecord, *, verify: bool) -> None:
        self.folder = folder / record.name
        self.record = record
        check_files(self.folder, record.files, deep=verify)
        self.ids = self._strings("ids")
        self.terms = self._strings("terms")
        self.texts = self._strings("texts")
        self.fields = self._strings("fields")
        self.lengths: NDArray[np.uint32] = self._array("lengths")  # (N,)
        self.term_totals: NDArray[np.int64] = self._array("term_totals")  # (T,)
        self.vector_offsets: NDArray[np.int64] = self._array("vectors.offsets")  # (N + 1,)
        self.vector_terms: NDArray[np.uint32] = self._array("vectors.terms")  # (P,)
        self.vector_counts: NDArray[Any] = self._array("vectors.counts")  # (P,)
        self.posting_offsets: NDArray[np.int64] = self._array("postings.offsets")  # (T + 1,)
        self.posting_docs: NDArray[np.uint32] = self._array("postings.docs")  # (P,)
        self.posting_counts: NDArray[Any] = self._array("postings.counts")  # (P,)
        self.deleted: NDArray[np.uint32] = (
            np.empty(0, np.uint32)
            if record.deleted is None
            else open_array(self.folder / record.deleted)
        )

    def _array(self, name: str) -> NDArray[Any]:
        return open_array(self.folder / f"{name}.npy")

    def _strings(self, name: str) -> Strings:
        return Strings(self._array(f"{name}.offsets"), self._array(f"{name}.data"))

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
        terms: dict[int, tuple[int, int]] = {}
        for doc in self.deleted.tolist():
            for term, count in zip(*self.vector(doc), strict=True):
                docs, occurrences = terms.get(term, (0, 0))
                terms[term] = (docs + 1, occurrences + count)
        return int(self.lengths[self.deleted].sum(dtype=np.int64)), terms

    def vector(self, doc: int) -> tuple[list[int], list[int]]:
        """Terms of a document and how often each occurs."""
        part = slice(int(self.vector_offsets[doc]), int(self.vector_offsets[doc + 1]))
        return self.vector_terms[part].tolist(), self.vector_counts[part].tolist()

    def find(self, doc_id: str) -> int:
        """The number of a document that is not deleted; -1 if there is none of this id."""
        doc = self.ids.find(doc_id)
        return -1 if doc < 0 or (len(self.live) and not self.live[doc]) else doc

    def doc(self, number: int, characters: int | None = None) -> Doc:
        """With all of its text, or its first so many characters."""
        fields = json.loads(self.fields.encoded(number) or b"{}")
        if characters is None:
            return Doc(self.ids[number], self.texts[number], **fields)
        return Doc(self.ids[number], self.texts.beginning(number, characters), **fields)


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
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the metadata of document {doc.doc_id!r} cannot be kept as JSON: {error}"
        ) from None
