"""The manifest: one JSON file that says which segments make up the index.

Everything it names never changes, and it is replaced by one atomic rename: a reader sees the index
as it was before a change or as it is after, whatever happens to the writer.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glassrank.checked import parse_records, read_checked, whole, write_checked
from glassrank.errors import CorruptError, InputError
from glassrank.folders import Folder
from glassrank.retrieve.segment import (
    ARRAYS,
    SegmentRecord,
    is_deleted_file,
    is_segment_name,
)

FILE_NAME = "manifest.json"
FORMAT = 2
"""1 had postings and document vectors as they are, not packed."""
_KEY = "index"
_MOST_DOCS = (1 << 32) - 1
"""In a segment: documents are numbered in 32 bits."""


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
        return manifest_in(folder)


def manifest_in(folder: Folder) -> Manifest:
    """Of an open index; what is damaged is named."""
    try:
        body = read_checked(folder, FILE_NAME, "build the index again", _KEY)
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
            _text(body["analyzer"]), whole(body["generation"]), segments, _text(body.get("id", ""))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"{folder.path / FILE_NAME} is damaged ({error}); "
            "restore it from a copy or build the index again"
        ) from None


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """The commit: until the rename nothing has happened, after it everything has."""
    write_checked(folder, FILE_NAME, {"format": FORMAT, **asdict(manifest)}, _KEY)


def _no_index(path: Path) -> InputError:
    return InputError(
        f"{path} is not an index (it has no {FILE_NAME}); "
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
    docs, tokens = whole(stored["docs"], _MOST_DOCS), whole(stored["tokens"])
    return SegmentRecord(name, docs, tokens, files, deleted)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ValueError(f"expected a short text, found {str(value)[:40]}")
    return value
