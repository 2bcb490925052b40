"""The manifest: one JSON file that says what a store holds, and of which model.

It is replaced by one atomic rename, and nothing that it names ever changes: a reader sees the store
as it was before a part was added or as it is after.
"""

import hashlib
import json
import math
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glassrank.arrays import FileRecord, sync_folder
from glassrank.errors import CorruptError, InputError
from glassrank.retrieve.segment import SegmentRecord
from glassrank.settings import from_plain

FILE_NAME = "store.json"
FORMAT = 1
IDS = "ids"
"""The dtype of a store that keeps word ids, for models whose words have no context."""
_ROW_MULTIPLE = 32
"""Rows are filled up with zeros to a multiple of this many values: a processor's tiles want it."""


@dataclass(frozen=True)
class Layout:
    """What a row is: one word, or piece of a word, of a document, as one model encodes it."""

    model: str
    fingerprint: str
    vocabulary: str
    """A digest: the same weights with another vocabulary would read other words."""
    doc_length: int
    """How many words of each document were read."""
    dtype: str
    axes: tuple[int, ...]
    """Of one word's vector: one axis, or several that lie one after another in its row."""
    idf_axes: tuple[int, ...]
    """What an ensemble has behind the axes of a word's idf; nothing otherwise."""
    stride: int
    """Values in a row, the zeros at its end included."""
    reuse: str = ""
    """Of a MORES: s1, its document module's output, or s2, each block's keys and values."""

    @property
    def name(self) -> str:
        """What a store is called unless it is given a name."""
        return "-".join(filter(None, (self.model, self.reuse, self.dtype)))

    @property
    def width(self) -> int:
        return math.prod(self.axes)

    @property
    def scales(self) -> int:
        """How many scales an int8 row has. Keys and values differ in size, as blocks do: each of
        them has its own. All else is one vector, or is read as one."""
        return math.prod(self.axes[:-1]) if self.reuse == "s2" else 1

    @property
    def described(self) -> str:
        """What a row holds, for a person."""
        return f"{self.reuse.upper()} in {self.dtype}" if self.reuse else self.dtype

    @property
    def rows_name(self) -> str:
        """The array that holds the rows."""
        return IDS if self.dtype == IDS else "vectors"


def store_folder(index: Path, name: str) -> Path:
    """Where the stores of an index are."""
    return index / "stores" / name


def stride(width: int) -> int:
    """
    >>> stride(300), stride(384)
    (320, 384)
    """
    return -(-width // _ROW_MULTIPLE) * _ROW_MULTIPLE


@dataclass(frozen=True)
class PartRecord:
    """The documents of one segment of the index, deleted ones included."""

    segment: str
    source: str
    """Which texts were encoded: see `source_of`."""
    docs: int
    rows: int
    files: dict[str, FileRecord]

    @property
    def name(self) -> str:
        """Of its folder. No other texts ever have the same."""
        return part_name(self.segment, self.source)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files.values())


def part_name(segment: str, source: str) -> str:
    return f"{segment}-{source}"


def source_of(segment: SegmentRecord) -> str:
    """Stands for the texts of a segment: another index may have a segment of the same name."""
    files = {
        name: record
        for name, record in sorted(segment.files.items())
        if name.startswith(("texts.", "fields."))
    }
    return hashlib.blake2b(json.dumps(files).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Manifest:
    layout: Layout
    generation: int = 0
    """Counts the changes since the store was begun."""
    parts: tuple[PartRecord, ...] = ()


def read_manifest(folder: Path) -> Manifest:
    try:
        body = read_checked(folder / FILE_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder} is not a document store (it has no {FILE_NAME}); "
            "make one with: glassrank encode INDEX --model M"
        ) from None
    if body["format"] != FORMAT:
        raise InputError(
            f"{folder} has store format {body['format']}, this version reads {FORMAT}; "
            "remove it and run glassrank encode again"
        )
    layout = from_plain(Layout, body["layout"], "layout")
    return Manifest(layout, body["generation"], tuple(map(_part, body["parts"])))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The commit: until the rename nothing has happened, after it everything has."""
    write_checked(folder / FILE_NAME, {"format": FORMAT, **asdict(manifest)})


def write_checked(path: Path, body: Any) -> None:
    """JSON with a checksum, durable, and there whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(_serialise(body))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_checked(path: Path) -> Any:
    content = path.read_bytes()
    try:
        body = json.loads(content)["body"]
        # Written again from what was read, it must be the same to the last byte.
        if _serialise(body) == content:
            return body
    except (ValueError, KeyError, TypeError):
        pass
    raise CorruptError(
        f"{path} is damaged; restore it from a copy, or encode the index again under another name"
    )


def _serialise(body: Any) -> bytes:
    text = json.dumps(body, sort_keys=True)
    stored = {"body": body, "crc32": zlib.crc32(text.encode())}
    return (json.dumps(stored, indent=1, sort_keys=True) + "\n").encode()


def _part(stored: dict[str, Any]) -> PartRecord:
    files = {name: FileRecord(*record) for name, record in stored["files"].items()}
    return PartRecord(**{**stored, "files": files})
