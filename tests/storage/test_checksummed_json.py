"""JSON with a checksum comes back as it was written, or not at all."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.errors import CorruptError
from glassrank.storage.checksummed_json import (
    MAX_JSON_BYTES,
    FileRecord,
    checksum_file,
    parse_json,
    parse_records,
    read_json,
    write_json,
)
from glassrank.storage.folders import Folder

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(body=plain)
def test_what_is_written_is_read(body: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Folder.open(tmp_path_factory.mktemp("json")) as folder:
        write_json(folder, "a.json", body)
        assert read_json(folder, "a.json", "write it again") == body


@given(content=st.binary(max_size=60) | plain.map(lambda body: json.dumps(body).encode()))
def test_anything_else_is_damaged(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Folder.open(tmp_path_factory.mktemp("json")) as folder:
        folder.write("a.json", content)
        with pytest.raises(CorruptError, match=r"a\.json is damaged; .* or write it again$"):
            read_json(folder, "a.json", "write it again")


HOSTILE = {
    "deep": b'{"body":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep tables": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "twice": b'{"body": 1, "body": 2}',
    "nan": b'{"body": NaN}',
    "infinity": b'{"body": -Infinity}',
    "large": b'{"body": 1e999}',
    "digits": b'{"body": ' + b"9" * 100_000 + b"}",
    "utf-16": '{"body": 1}'.encode("utf-16"),
    "half a pair": b'{"body": "\xed\xa0\x80"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError):
        parse_json(HOSTILE[name])


@pytest.mark.parametrize("depth", [50, 400, 900, 100_000])
def test_deep_json_with_a_right_checksum(tmp_path: Path, depth: int) -> None:
    text = "[" * depth + "]" * depth
    content = f'{{"body": {text}, "crc32": {zlib.crc32(text.encode())}}}'
    with Folder.open(tmp_path) as folder:
        folder.write("a.json", content.encode())
        with pytest.raises(CorruptError, match=r"a\.json is damaged"):
            read_json(folder, "a.json", "write it again")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(1 << 40)
    with (
        Folder.open(tmp_path) as folder,
        pytest.raises(CorruptError, match=f"{MAX_JSON_BYTES:,} bytes"),
    ):
        read_json(folder, "a.json", "write it again")


def test_records_come_back_and_describe_the_file(tmp_path: Path) -> None:
    with Folder.open(tmp_path) as folder:
        folder.write("a", b"12345")
        records = {"a": checksum_file(folder, "a")}
        assert records == {"a": FileRecord(5, zlib.crc32(b"12345"))}
        assert parse_records(json.loads(json.dumps(records))) == records


@pytest.mark.parametrize(
    "stored",
    [
        *([], "x", None, 3, {"../a": [1, 2]}, {"a": 1}, {"a": [1]}, {"a": [1, 2, 3]}),
        *({"a": [-1, 2]}, {"a": [1.0, 2]}, {"a": [True, 2]}, {"a": ["1", 2]}, {"a": [1, 2**32]}),
        *({"a": [2**63, 2]}, {"a": {"size": 1}}, {"a": None}),
    ],
)  # fmt: skip
def test_other_records_are_refused(stored: Any) -> None:
    with pytest.raises(ValueError):
        parse_records(stored)
