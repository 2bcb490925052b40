"""The manifest: one JSON file that says which segments make up the index.

Everything it names never changes, and it is replaced by one atomic rename: a reader sees the index
as it was before a change or as it is after, whatever happens to the writer.
"""

import json
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glassrank.arrays import FileRecord, sync_folder
from glassrank.errors import CorruptError, InputError
from glassrank.retrieve.segment import SegmentRecord

FILE_NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    analyzer: str
    generation: int = 0
    """Counts the changes since the index was made."""
    segments: tuple[SegmentRecord, ...] = ()


def read_manifest(folder: Path) -> Manifest:
    path = folder / FILE_NAME
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder} is not an index (it has no {FILE_NAME}); "
            f"make one with: glassrank index DOCS --out {folder}"
        ) from None
    damaged = CorruptError(f"{path} is damaged; restore it from a copy or build the index again")
    try:
        stored = json.loads(content)
        body = stored["index"]
        # Written again from what was read, it must be the same to the last byte.
        if _serialise(body) != content:
            raise damaged
        if body["format"] != FORMAT:
            raise InputError(
                f"{folder} has index format {body['format']}, this version reads {FORMAT}; "
                "build the index again"
            )
        return Manifest(
            body["analyzer"], body["generation"], tuple(map(_segment, body["segments"]))
        )
    except (ValueError, KeyError, TypeError):
        raise damaged from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The commit: until the rename nothing has happened, after it everything has."""
    part = folder / f".{FILE_NAME}.part"
    try:
        with part.open("wb") as file:
            file.write(_serialise({"format": FORMAT, **asdict(manifest)}))
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / FILE_NAME)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(folder)


def _serialise(body: Any) -> bytes:
    text = json.dumps(body, sort_keys=True)
    stored = {"crc32": zlib.crc32(text.encode()), "index": body}
    return (json.dumps(stored, indent=1, sort_keys=True) + "\n").encode()


def _segment(stored: dict[str, Any]) -> SegmentRecord:
    files = {name: FileRecord(*record) for name, record in stored.pop("files").items()}
    return SegmentRecord(**stored, files=files)
