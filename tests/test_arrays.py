"""Arrays in files: what is written is read, and damage is found and named."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.arrays import ArrayFolder, ArrayWriter, Strings, check_files, open_array, pack
from glassrank.errors import CorruptError

DTYPES = ["uint8", "uint32", "int64", "float32"]


@given(
    parts=st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=4),
    dtype=st.sampled_from(DTYPES),
)
def test_rows_appended_are_rows_read(
    parts: list[list[int]], dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "a.npy"
    writer = ArrayWriter(path, dtype)
    for part in parts:
        writer.append(np.array(part, dtype))
    record = writer.close()
    expected = np.array([value for part in parts for value in part], dtype)
    for array in (open_array(path), np.load(path)):  # a plain .npy, for anyone to read
        assert array.dtype == dtype
        assert array.tolist() == expected.tolist()
    assert record.size == path.stat().st_size
    check_files(path.parent, {path.name: record}, deep=True)


@given(
    parts=st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=4),
    lost=st.binary(max_size=20),
    dtype=st.sampled_from(DTYPES),
)
def test_a_writer_goes_on_where_another_was_killed(
    parts: list[list[int]], lost: bytes, dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole, path = (tmp_path_factory.mktemp("arrays") / name for name in ("a.npy", "b.npy"))
    writer, done = ArrayWriter(whole, dtype), None
    for part in parts:
        writer.append(np.array(part, dtype))
        killed = ArrayWriter(path, dtype, done)
        killed.append(np.array(part, dtype))
        done = killed.sync()
        assert path.stat().st_size == 128 + done.rows * killed.dtype.itemsize
        killed._file.write(lost)  # of the next part, which is not finished
        killed.abandon()
    record = writer.close()
    assert ArrayWriter(path, dtype, done).close() == record
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("kept", [None, 0, 127, 130])
def test_a_file_that_lost_rows_is_not_gone_on_with(tmp_path: Path, kept: int | None) -> None:
    path = tmp_path / "a.npy"
    writer = ArrayWriter(path, np.uint8)
    writer.append(np.arange(3, dtype=np.uint8))
    done = writer.sync()
    writer.close()
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptError, match=r"a\.npy is damaged: expected 131 bytes or more"):
        ArrayWriter(path, np.uint8, done)


@pytest.mark.parametrize("rows", [0, 3])
def test_an_open_array_cannot_be_changed(tmp_path: Path, rows: int) -> None:
    with ArrayFolder(tmp_path / "new") as out:
        out.write("a", np.arange(rows))
    assert not open_array(tmp_path / "new" / "a.npy").flags.writeable


def folder_of_two(tmp_path: Path) -> ArrayFolder:
    with ArrayFolder(tmp_path / "new") as out:
        out.write("small", np.arange(3, dtype=np.uint8))
        out.writer("large", np.int64).append(np.arange(100))
    return out


def test_a_folder_knows_its_files(tmp_path: Path) -> None:
    out = folder_of_two(tmp_path)
    assert out.records.keys() == {path.name for path in out.folder.iterdir()}
    check_files(out.folder, out.records, deep=True)


@pytest.mark.parametrize("name", ["small.npy", "large.npy"])
@pytest.mark.parametrize("position", [0, 5, 127, 128, -1])
def test_a_flipped_byte_is_found_and_named(tmp_path: Path, name: str, position: int) -> None:
    out = folder_of_two(tmp_path)
    content = bytearray((out.folder / name).read_bytes())
    content[position] ^= 1
    (out.folder / name).write_bytes(content)
    with pytest.raises(CorruptError, match=f"{name} is damaged: its checksum"):
        check_files(out.folder, out.records, deep=True)


def test_a_cut_file_is_found_without_reading_it(tmp_path: Path) -> None:
    out = folder_of_two(tmp_path)
    path = out.folder / "large.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptError, match=r"large\.npy .* expected 928 bytes, found 927"):
        check_files(out.folder, out.records, deep=False)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    out = folder_of_two(tmp_path)
    (out.folder / "small.npy").unlink()
    with pytest.raises(CorruptError, match=r"small\.npy is missing"):
        check_files(out.folder, out.records, deep=False)


def test_failed_work_closes_its_files_and_records_only_what_was_finished(tmp_path: Path) -> None:
    with pytest.raises(KeyError), ArrayFolder(tmp_path / "new") as out:
        out.write("done", np.arange(3))
        unfinished = out.writer("unfinished", np.int64)
        raise KeyError
    assert unfinished._file.closed
    assert out.records.keys() == {"done.npy"}


@given(strings=st.lists(st.text(max_size=5)))
def test_packed_strings_come_back(strings: list[str]) -> None:
    packed = Strings(*pack([string.encode() for string in strings]))
    assert list(packed) == packed[:] == strings
    assert [packed[i] for i in range(len(packed))] == strings
    assert packed[1:-1] == strings[1:-1]
    with pytest.raises(IndexError):
        packed[len(strings)]


@given(strings=st.sets(st.text(max_size=3)), wanted=st.text(max_size=3))
def test_bisection_finds_what_is_there_and_nothing_else(strings: set[str], wanted: str) -> None:
    ordered = sorted(strings)  # by code points, which is the order of their bytes
    packed = Strings(*pack([string.encode() for string in ordered]))
    assert [packed.find(string) for string in ordered] == list(range(len(ordered)))
    assert packed.find(wanted) == (ordered.index(wanted) if wanted in strings else -1)


def test_half_a_surrogate_pair_is_nowhere() -> None:
    assert Strings(*pack([b"?", b"a"])).find("\ud800") == -1


@given(st.lists(st.text(), min_size=1), st.integers(0, 20))
def test_a_string_begins_as_the_whole_does(strings: list[str], characters: int) -> None:
    encoded = [text.encode("utf-8", "replace") for text in strings]
    found = Strings(*pack(encoded))
    for number, text in enumerate(encoded):
        assert found.beginning(number, characters) == text.decode()[:characters]
