"""Arrays in files: what is written is read, and damage is found and named."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.errors import CorruptError
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import (
    ArrayFolder,
    ArrayWriter,
    Strings,
    is_partition,
    open_array,
    open_arrays,
    pack_strings,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with Folder.open(tmp_path) as opened:
        yield opened


DTYPES = ["uint8", "uint32", "int64", "float32"]


@given(
    parts=st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=4),
    dtype=st.sampled_from(DTYPES),
)
def test_rows_appended_are_rows_read(
    parts: list[list[int]], dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder.open(tmp_path_factory.mktemp("arrays"))
    writer = ArrayWriter(folder, "a.npy", dtype)
    for part in parts:
        writer.append(np.array(part, dtype))
    record = writer.close()
    expected = np.array([value for part in parts for value in part], dtype)
    path = folder.path / "a.npy"
    opened = open_array(folder, "a.npy", record, [np.int8, dtype], verify=True)
    for array in (opened, np.load(path)):  # a plain .npy, for anyone to read
        assert array.dtype == dtype
        assert array.tolist() == expected.tolist()
    assert record.size == path.stat().st_size
    folder.close()


@given(
    parts=st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=4),
    lost=st.binary(max_size=20),
    dtype=st.sampled_from(DTYPES),
)
def test_a_writer_goes_on_where_another_was_killed(
    parts: list[list[int]], lost: bytes, dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder.open(tmp_path_factory.mktemp("arrays"))
    whole, path = (folder.path / name for name in ("a.npy", "b.npy"))
    writer, done = ArrayWriter(folder, "a.npy", dtype), None
    for part in parts:
        writer.append(np.array(part, dtype))
        killed = ArrayWriter(folder, "b.npy", dtype, done)
        killed.append(np.array(part, dtype))
        done = killed.sync()
        assert path.stat().st_size == 128 + done.rows * killed.dtype.itemsize
        killed._file.write(lost)  # of the next part, which is not finished
        killed.discard()
    record = writer.close()
    assert ArrayWriter(folder, "b.npy", dtype, done).close() == record
    assert path.read_bytes() == whole.read_bytes()
    folder.close()


@pytest.mark.parametrize("kept", [None, 0, 127, 130])
def test_a_file_that_lost_rows_is_not_gone_on_with(folder: Folder, kept: int | None) -> None:
    path = folder.path / "a.npy"
    writer = ArrayWriter(folder, "a.npy", np.uint8)
    writer.append(np.arange(3, dtype=np.uint8))
    done = writer.sync()
    writer.close()
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptError, match=r"a\.npy is damaged: expected 131 bytes or more"):
        ArrayWriter(folder, "a.npy", np.uint8, done)


@pytest.mark.parametrize("rows", [0, 3])
def test_an_open_array_cannot_be_changed(folder: Folder, rows: int) -> None:
    with ArrayFolder(folder, "new") as out:
        out.write("a", np.arange(rows))
    with folder.child("new") as new:
        (array,) = open_arrays(new, out.records, {"a": [np.int64]}, verify=False).values()
    assert not array.flags.writeable


KINDS = {"small": [np.uint8], "large": [np.int64]}


def folder_of_two(folder: Folder) -> ArrayFolder:
    with ArrayFolder(folder, "new") as out:
        out.write("small", np.arange(3, dtype=np.uint8))
        out.writer("large", np.int64).append(np.arange(100))
    return out


def opened(folder: Folder, out: ArrayFolder, *, verify: bool) -> dict[str, np.ndarray]:
    with folder.child("new") as new:
        return open_arrays(new, out.records, KINDS, verify=verify)


def test_a_folder_knows_its_files(folder: Folder) -> None:
    out = folder_of_two(folder)
    assert out.records.keys() == {path.name for path in out.path.iterdir()}
    assert opened(folder, out, verify=True)["large"].tolist() == list(range(100))


@pytest.mark.parametrize("name", ["small.npy", "large.npy"])
@pytest.mark.parametrize("position", [0, 5, 127, 128, -1])
def test_a_flipped_byte_is_found_and_named(folder: Folder, name: str, position: int) -> None:
    out = folder_of_two(folder)
    content = bytearray((out.path / name).read_bytes())
    content[position] ^= 1
    (out.path / name).write_bytes(content)
    with pytest.raises(CorruptError, match=f"{name} is damaged: its checksum"):
        opened(folder, out, verify=True)


def test_a_cut_file_is_found_without_reading_it(folder: Folder) -> None:
    out = folder_of_two(folder)
    path = out.path / "large.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptError, match=r"large\.npy .* expected 928 bytes, found 927"):
        opened(folder, out, verify=False)


def test_a_missing_file_is_named(folder: Folder) -> None:
    out = folder_of_two(folder)
    (out.path / "small.npy").unlink()
    with pytest.raises(CorruptError, match=r"small\.npy is missing"):
        opened(folder, out, verify=False)


HOSTILE = {
    "floats": np.arange(4.0),
    "unsigned": np.arange(4, dtype=np.uint64),
    "swapped": np.arange(4, dtype=">i8"),
    "a table": np.zeros((2, 2), np.int64),
    "a number": np.array(3),
    "records": np.zeros(4, [("a", np.int32), ("b", np.int32)]),
    "objects": np.array([{}, []], object),
    "texts": np.array(["abc", "def"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_another_array_is_refused_unread(folder: Folder, name: str) -> None:
    path = folder.path / "a.npy"
    np.save(path, HOSTILE[name])
    record = FileRecord(path.stat().st_size, 0)
    with pytest.raises(
        CorruptError, match=r"a\.npy is damaged: expected a one-dimensional array of int64"
    ):
        open_array(folder, "a.npy", record, [np.int64], verify=False)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 128, b"\x93NUMPY\1\0\xff\xff" * 30])
def test_another_file_is_refused(folder: Folder, content: bytes) -> None:
    folder.write("a.npy", content)
    with pytest.raises(
        CorruptError, match=r"a\.npy is damaged: expected a one-dimensional array of int64"
    ):
        open_array(folder, "a.npy", FileRecord(len(content), 0), [np.int64], verify=False)


@pytest.mark.parametrize(
    ("offsets", "true"),
    [
        *(([0], False), ([0, 3], True), ([0, 0, 3, 3], True), ([], False), ([1, 3], False)),
        *(([0, 4], False), ([0, 2, 1, 3], False), ([0, -1, 3], False), ([0, 2**62, 3], False)),
    ],
)  # fmt: skip
def test_offsets_divide_what_there_is(offsets: list[int], true: bool) -> None:
    assert is_partition(np.array(offsets, np.int64), 3) == true


def test_long_offsets_are_compared_to_the_end() -> None:
    offsets = np.arange(200_001)
    assert is_partition(offsets, 200_000)
    for place in (1, 65_536, 65_537, 199_999):
        wrong = offsets.copy()
        wrong[place] += 2
        assert not is_partition(wrong, 200_000)


def test_failed_work_closes_its_files_and_records_only_what_was_finished(folder: Folder) -> None:
    with pytest.raises(KeyError), ArrayFolder(folder, "new") as out:
        out.write("done", np.arange(3))
        unfinished = out.writer("unfinished", np.int64)
        raise KeyError
    assert unfinished._file.closed
    assert out.records.keys() == {"done.npy"}


def as_strings(encoded: list[bytes]) -> Strings:
    rows = pack_strings(encoded)
    return Strings(rows.offsets, rows.values)


@given(strings=st.lists(st.text(max_size=5)))
def test_packed_strings_come_back(strings: list[str]) -> None:
    packed = as_strings([string.encode() for string in strings])
    assert list(packed) == strings
    assert [packed[i] for i in range(len(packed))] == strings
    with pytest.raises(IndexError):
        packed[len(strings)]


@given(strings=st.sets(st.text(max_size=3)), wanted=st.text(max_size=3))
def test_bisection_finds_what_is_there_and_nothing_else(strings: set[str], wanted: str) -> None:
    ordered = sorted(strings)  # by code points, which is the order of their bytes
    packed = as_strings([string.encode() for string in ordered])
    assert [packed.find(string) for string in ordered] == list(range(len(ordered)))
    assert packed.find(wanted) == (ordered.index(wanted) if wanted in strings else -1)


def test_half_a_surrogate_pair_is_nowhere() -> None:
    assert as_strings([b"?", b"a"]).find("\ud800") == -1


@given(st.lists(st.text(), min_size=1), st.integers(0, 20))
def test_a_string_begins_as_the_whole_does(strings: list[str], characters: int) -> None:
    encoded = [text.encode("utf-8", "replace") for text in strings]
    found = as_strings(encoded)
    for number, text in enumerate(encoded):
        assert found.prefix(number, characters) == text.decode()[:characters]
