"""JSON with a checksum, and the records (size, checksum) of a folder's files. `write_json` commits
a change of a folder: the file is durable, and replaced at once.
"""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from glassrank.errors import CorruptError
from glassrank.storage.folders import Folder, is_plain_name

MAX_JSON_BYTES = 4 << 20
"""The most that is read of a JSON file: a manifest has a few thousand bytes."""
_MAX_FILE_BYTES = 1 << 50
_READ_BYTES = 1 << 20


class FileRecord(NamedTuple):
    """A file's size and checksum."""

    size: int
    crc32: int


def write_json(folder: Folder, name: str, body: Any, key: str = "body") -> None:
    """Writes JSON with its checksum, and puts it in place by one rename."""
    folder.write(name, _serialize(body, key))


def read_json(folder: Folder, name: str, remedy: str, key: str = "body") -> Any:
    """Reads what `write_json` wrote; `remedy` says what to do if the file is damaged."""
    content = folder.read(name, MAX_JSON_BYTES)
    try:
        body = parse_json(content)[key]
        # Serialized again, it must be the same to the last byte.
        if _serialize(body, key) == content:
            return body
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CorruptError(f"{folder.path / name} is damaged; restore it from a copy, or {remedy}")


def _serialize(body: Any, key: str) -> bytes:
    text = json.dumps(body, sort_keys=True)
    stored = {"crc32": zlib.crc32(text.encode()), key: body}
    return (json.dumps(stored, indent=1, sort_keys=True) + "\n").encode()


def parse_json(content: bytes) -> Any:
    """Strict JSON: no duplicate keys, finite numbers, bounded depth; else a `ValueError`."""
    try:
        return json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key appears twice")
    return table


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def parse_records(plain: Any) -> dict[str, FileRecord]:
    """The file records of a manifest by name; a `ValueError` if they are not valid."""
    if not isinstance(plain, Mapping):
        raise ValueError("files are not a table")
    records = {}
    for name, stored in plain.items():
        if not is_plain_name(name):
            raise ValueError(f"{str(name)[:40]!r} is not a plain file name")
        if not isinstance(stored, list) or len(stored) != 2:
            raise ValueError(f"{name}: expected its size and checksum")
        size, crc32 = stored
        records[name] = FileRecord(check_integer(size), check_integer(crc32, 0xFFFF_FFFF))
    return records


def check_integer(value: Any, largest: int = _MAX_FILE_BYTES) -> int:
    """The value, if it is an integer from 0 to `largest`; else a `ValueError`."""
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"expected an integer from 0 to {largest}, found {str(value)[:40]}")
    return value


def checksum_file(folder: Folder, name: str) -> FileRecord:
    """The size and checksum of a file on disk."""
    size = crc32 = 0
    with folder.open_file(name) as file:
        while block := file.read(_READ_BYTES):
            size, crc32 = size + len(block), zlib.crc32(block, crc32)
    return FileRecord(size, crc32)
