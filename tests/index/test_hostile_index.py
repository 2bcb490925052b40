"""An index from a stranger leads nowhere outside, and its numbers are not taken for granted."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_processes import run_script
from hostile_index import build, change_array, change_manifest, segment, use
from index_files import contents

from glassrank.errors import CorruptError, GlassrankError, InputError
from glassrank.index import Index
from glassrank.index.segment import ARRAYS
from glassrank.types import Doc


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build(tmp_path_factory.mktemp("hostile") / "index")
    return tmp_path_factory.getbasetemp() / "hostile0" / "index"


@pytest.fixture
def path(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "index"))


def test_the_index_itself_is_fine(path: Path) -> None:
    use(path)


# Manifests


def first(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["segments"][0]
    return found


NUMBERS = [-1, "x", 1.5, True, None, [], {}, 10**30, -(10**30), 2**32]
NAMES = [
    *("../elsewhere", "/etc", "a/b", "..", ".", "", "segment-000001-1/../../x", 7, None, []),
    *(
        "segment-1-1",
        "segment-000001-1\n",
        "segment-\u0660\u0660\u0660\u0660\u0660\u0661-1",
        "segment-000001-1 ",
        "x" * 10**5,
    ),
]
TEXTS = [1, [], None, "x" * 999]


def each(
    what: str, values: list[Any], change: Callable[[dict[str, Any], Any], object]
) -> dict[str, Callable[[Any], object]]:
    """One manifest for each of these values, named by it."""
    return {f"{what} {v!r:.20}": lambda body, v=v: change(body, v) and None for v in values}


MANIFESTS: dict[str, Callable[[Any], object]] = {
    **each("docs", NUMBERS, lambda body, n: first(body).update(docs=n)),
    **each("tokens", NUMBERS[:-1], lambda body, n: first(body).update(tokens=n)),
    **each("generation", NUMBERS[:-1], lambda body, n: body.update(generation=n)),
    **each("name", NAMES, lambda body, n: first(body).update(name=n)),
    **each("deleted", NAMES, lambda body, n: first(body).update(deleted=n)),
    **each("file", NAMES, lambda body, n: first(body)["files"].update({str(n): [128, 0]})),
    **each("size", NUMBERS[:-1], lambda b, n: first(b)["files"].update({"lengths.npy": [n, 0]})),
    **each("files", [1, "x", [], None, {}], lambda body, n: first(body).update(files=n)),
    **each("segments", [1, "x", [1], [[]], None], lambda body, n: body.update(segments=n)),
    **each("analyzer", TEXTS, lambda body, n: body.update(analyzer=n)),
    **each("id", TEXTS, lambda body, n: body.update(id=n)),
    **{f"body {n!r}": lambda body, n=n: n for n in (1, "x", [1], [], {})},
    "a segment twice": lambda body: body["segments"].append(first(body)),
    "no name": lambda body: first(body).pop("name") and None,
    "no files": lambda body: first(body).pop("files") and None,
    "a file left out": lambda body: first(body)["files"].pop("lengths.npy") and None,
    "a file too many": lambda body: first(body)["files"].update({"more.npy": [128, 0]}),
    "deep": lambda body: body.update(id=json.loads("[" * 300 + "]" * 300)),
}


@pytest.mark.tried("Files", "an index whose manifest lies", "refused in one sentence", tries=2)
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_hostile_manifest_is_one_sentence(path: Path, name: str) -> None:
    (path.parent / "elsewhere").mkdir()
    (path.parent / "elsewhere" / "lengths.npy").write_text("precious")
    change_manifest(path, MANIFESTS[name])
    before = contents(path.parent)
    for change in (
        lambda: Index(path),
        lambda: Index(path, verify=False),
    ):
        with pytest.raises(CorruptError, match=r"is damaged") as raised:
            change()
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 1000
    assert contents(path.parent) == before
    Index.build([Doc("a", "new")], path, overwrite=True)  # what stands there may be replaced
    assert (path.parent / "elsewhere" / "lengths.npy").read_text() == "precious"


@pytest.mark.tried("Files", "an index whose manifest lies", "refused in one sentence")
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 10**5, b'{"index":' * 10**5, b'{"index": NaN}', b"\xff" * 99]
)
def test_what_is_no_manifest(path: Path, content: bytes) -> None:
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(CorruptError, match=r"manifest\.json is damaged"):
        Index(path)


def test_an_index_of_another_format_must_be_built_again(path: Path) -> None:
    change_manifest(path, lambda body: body.update(format=99))
    with pytest.raises(
        InputError, match="index format 99, this version reads 2; build it again: gl"
    ):
        Index(path)


def test_an_index_without_an_id_is_read_and_changed(path: Path) -> None:
    """As versions before this one wrote them."""
    change_manifest(path, lambda body: body.pop("id") and None)
    index = Index(path)
    state = index.state
    index.add([Doc("new", "yak")])
    assert index.state != state
    assert Index(path).state == index.state


# Arrays


def put(place: int, value: int) -> Callable[[Any], None]:
    def changing(array: Any) -> None:
        array[place] = value

    return changing


def swap(one: int, other: int) -> Callable[[Any], None]:
    def changing(array: Any) -> None:
        array[[one, other]] = array[[other, one]]

    return changing


def wide(change: Callable[[Any], None]) -> Callable[[Any], Any]:
    """In the largest type that offsets may have."""

    def changing(array: Any) -> Any:
        array = array.astype(np.int64)
        change(array)
        return array

    return changing


OFFSETS = (
    ("beyond the data", put(-1, 255)),
    ("far beyond the data", wide(put(-1, 10**6))),
    ("in the middle beyond the data", wide(put(3, 10**9))),
    ("negative", wide(put(2, -5))),
    ("decreasing", swap(1, 5)),
    ("a late beginning", put(0, 1)),
    ("far away", wide(put(1, 2**62))),
)


VALUES: dict[str, tuple[str, Callable[[Any], object]]] = {
    **{
        f"{what} of {name}": (f"{name}.words.npy", change)
        for name in ("vectors", "postings")
        for what, change in (
            ("wider distances", put(0, 33)),
            ("wider counts", put(0, 32 << 6)),
            ("the widest of both", put(0, 2**32 - 1)),
            ("no bits", put(0, 0)),
            ("far numbers", lambda a: a.__setitem__(0, a[0] | 0xFFFFF000)),
            ("all ones", lambda a: a.__setitem__(slice(None), 2**32 - 1)),
            ("other rows", lambda a: a.__setitem__(slice(-2), a[-3::-1].copy())),
        )
    },
    **{
        f"{what} of {name}": (f"{name}.sizes.npy", change)
        for name in ("vectors", "postings")
        for what, change in (
            ("one more number", lambda a: a.__setitem__(1, a[1] + 1)),
            ("one number less", lambda a: a.__setitem__(1, a[1] - 1)),
            ("a row of very many", put(2, 255)),
            ("an empty row", put(0, 0)),
        )
    },
    "lengths": ("lengths.npy", put(5, 255)),
    "totals": ("term_totals.npy", wide(put(1, -1))),
    "too large totals": ("term_totals.npy", wide(put(1, 2**62))),
    "deleted beyond the documents": ("deleted-*.npy", put(0, 10**9)),
    "deleted twice": ("deleted-*.npy", put(0, 17)),
    "deleted out of order": ("deleted-*.npy", swap(0, 1)),
    "unsorted ids": ("ids.data.npy", put(2, ord("9"))),
    "unsorted terms": ("terms.data.npy", put(0, ord("z"))),
    **{
        f"{what} in {name}": (f"{name}.offsets.npy", change)
        for name in ("ids", "terms", "texts", "fields")
        for what, change in OFFSETS
    },
    **{
        f"{what} in {name}": (f"{name}.starts.npy", change)
        for name in ("vectors", "postings")
        for what, change in OFFSETS
    },
}


@pytest.mark.tried(
    "Files", "an index whose numbers lie, with right checksums", "refused, the file named"
)
@pytest.mark.parametrize("name", VALUES)
def test_a_hostile_number_is_found_and_its_file_named(path: Path, name: str) -> None:
    pattern, change = VALUES[name]
    change_array(path, pattern, change)
    with pytest.raises(CorruptError, match=r"segment-[^/]*/[\w.-]+\.npy is damaged: ") as raised:
        Index(path)
    assert "\n" not in str(raised.value)


@pytest.mark.tried("Files", "an index changed to numbers that lie, as it is served", "not taken up")
@pytest.mark.parametrize("name", VALUES)
def test_a_reader_does_not_move_on_to_hostile_numbers(path: Path, name: str) -> None:
    """Checksums are not compared then, but what compiled code relies on is looked at."""
    reader = Index(path)
    expected = reader.search("ant bee cat", 50).hits
    old = path.rename(path.with_name("old"))  # what is mapped does not change
    shutil.copytree(old, path)
    change_array(path, *VALUES[name])
    change_manifest(path, lambda body: body.update(generation=body["generation"] + 1))
    with pytest.raises(CorruptError, match=r"segment-[^/]*/[\w.-]+\.npy is damaged: "):
        reader.refresh()
    assert reader.search("ant bee cat", 50).hits == expected


def test_only_numbers_of_new_segments_are_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = Index(path), Index(path)
    looked: list[int] = []
    monkeypatch.setattr("glassrank.index.segment.check_values", lambda s: looked.append(len(s)))
    writer.delete(["d05"])
    assert reader.refresh() and looked == []
    writer.add([Doc("new", "ant"), Doc("newer", "ant")])
    assert reader.refresh() and looked == [4]  # with those of the small segment, merged


@pytest.mark.tried(
    "Files", "an index whose arrays have another type or length", "refused, the file named", tries=3
)
@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in ARRAYS), "deleted-*.npy"])
@pytest.mark.parametrize("verify", [False, True])
def test_another_dtype_or_length_is_found_without_verifying(
    path: Path, name: str, verify: bool
) -> None:
    changes: list[Callable[[Any], Any]] = [
        lambda array: array.astype(np.float64),
        lambda array: array.astype(">i8"),
        lambda array: array.astype(np.int8).reshape(1, -1),
    ]
    if not name.endswith(".data.npy") and not name.startswith("deleted"):
        changes += [lambda array: array[:-1], lambda array: np.append(array, array[-1:])]
    good = contents(path)
    for change in changes:
        change_array(path, name, change)
        with pytest.raises(CorruptError, match=r"\.npy is damaged: expected"):
            Index(path, verify=verify)
        for file, content in good.items():
            (path / file).write_bytes(content)


@pytest.mark.tried("Files", "an index whose stored fields are none", "refused in one sentence")
@pytest.mark.parametrize(
    "stored",
    [
        *(b"{", b"[]", b"1", b'{"title": 1}', b'{"metadata": []}', b'{"other": 1}', b"[" * 20_000),
        *(b'{"doc_id": "x"}', b"\xff\xfe", b'{"title": null}'),
    ],
)  # fmt: skip
def test_fields_that_are_no_fields_are_one_sentence(path: Path, stored: bytes) -> None:
    def offsets(array: Any) -> None:
        array[1:] = len(stored)

    change_array(path, "fields.data.npy", lambda _: np.frombuffer(stored, np.uint8))
    change_array(path, "fields.offsets.npy", offsets)
    index = Index(path)
    with pytest.raises(CorruptError, match=r"fields\.data\.npy is damaged: .* 'd00' cannot be"):
        index.doc("d00")


def test_what_is_not_a_number_in_metadata_becomes_nothing(tmp_path: Path) -> None:
    metadata = {"a": float("nan"), "b": [float("inf"), 1.5], "c": 10**400}
    index = Index.build([Doc("a", "text", metadata=metadata)], tmp_path / "index")
    assert index.doc("a").metadata == {"a": None, "b": [None, 1.5], "c": 10**400}


def test_texts_that_are_no_texts_are_shown_as_far_as_they_go(path: Path) -> None:
    change_array(path, "texts.data.npy", lambda array: array | 0x80)
    change_array(path, "ids.data.npy", lambda array: array | 0x80)
    index = Index(path)
    assert "\ufffd" in next(iter(index.docs())).text
    assert len(index.search("ant", 50)) > 3


@pytest.mark.tried(
    "Files",
    "random numbers in an index, with right checksums",
    "refused, or strange rankings; no signal",
    tries=40,
)
@pytest.mark.long
def test_random_numbers_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    assert int(run_script("index/fuzzed_index.py", tmp_path, "40", "1")) > 20


@pytest.mark.tried(
    "Files",
    "random numbers in an index, with right checksums",
    "refused, or strange rankings; no signal",
    tries=1000,
)
@pytest.mark.slow
def test_many_random_numbers_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    assert int(run_script("index/fuzzed_index.py", tmp_path, "1000", "3")) > 500


# Links, pipes, and folders where files should be

HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, victim: path.symlink_to(victim / "file"),
    "link to nowhere": lambda path, victim: path.symlink_to(victim / "new"),
    "link to a folder": lambda path, victim: path.symlink_to(victim),
    "link to zeros": lambda path, victim: path.symlink_to("/dev/zero"),
    "second name": lambda path, victim: path.hardlink_to(victim / "file"),
    "pipe": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
}
CHANGES: dict[str, Callable[[Path], object]] = {
    "open": Index,
    "add": lambda path: Index(path).add([Doc("new", "ant")]),
    "replace": lambda path: Index(path).add([Doc("d01", "ant")], replace=True),
    "delete": lambda path: Index(path).delete(["d01", "e1"]),
    "merge": lambda path: Index(path).merge(),
    "overwrite": lambda path: Index.build([Doc("new", "ant")], path, overwrite=True),
}
PLACES = [
    *("write.lock", ".manifest.json.part", "manifest.json", "segment", "segment/lengths.npy"),
    *("segment/deleted-9-9.npy", "segment-000009-1-01234567", "stores"),
]


@pytest.mark.tried(
    "Files",
    "links, pipes and folders in an index's folder, read and changed",
    "nothing outside was touched",
    tries=6,
)
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_outside_is_touched(path: Path, kind: str, place: str) -> None:
    victim = path.with_name("victim")
    victim.mkdir()
    for name in ("file", "lengths.npy", "manifest.json", "deleted-1-1.npy"):
        (victim / name).write_text("precious")
    where = segment(path) if place == "segment" else path / place
    if place.startswith("segment/"):
        where = segment(path) / place.removeprefix("segment/")
    if where.is_dir():
        shutil.rmtree(where)
    where.unlink(missing_ok=True)
    HOSTILE[kind](where, victim)
    good, before = path.with_name("good"), contents(victim)
    path.rename(good)
    for name, change in CHANGES.items():
        os.system(f"cp -a {good} {path}")
        try:
            change(path)
        except GlassrankError as error:
            assert "\n" not in str(error), name
        assert contents(victim) == before, name
        assert (victim / "file").stat().st_nlink <= 3
        shutil.rmtree(path)


def test_a_segment_elsewhere_is_not_opened(path: Path) -> None:
    """A whole segment, with every checksum right, behind a link."""
    inside = segment(path)
    outside = inside.rename(path.with_name(inside.name))
    inside.symlink_to(outside)
    before = contents(outside)
    with pytest.raises(CorruptError, match="is a link or a file, expected a folder"):
        Index(path)
    Index.build([Doc("a", "new")], path, overwrite=True)
    assert contents(outside) == before


def test_only_what_a_writer_made_is_removed(path: Path) -> None:
    own = segment(path)
    letters = [path / "letter.txt", own / "letter.txt", path / "segment-mine" / "letter.txt"]
    letters.append(path / "segment-000077-1" / "letter.txt")  # where a killed writer's would be
    for letter in letters:
        letter.parent.mkdir(exist_ok=True)
        letter.write_text("Dear Ada")
    (path / "segment-000077-1" / "lengths.npy").write_text("half")
    index = Index(path)
    index.merge()
    index.delete(["d01"])
    assert all(letter.read_text() == "Dear Ada" for letter in letters)
    assert [file.name for file in own.iterdir()] == ["letter.txt"]
    assert not (path / "segment-000077-1" / "lengths.npy").exists()


def test_a_folder_that_only_sounds_like_an_index_is_left_alone(tmp_path: Path) -> None:
    for name in ("my_manifesto.txt", "segment-of-a-letter"):
        folder = tmp_path / name.split(".")[0]
        folder.mkdir()
        (folder / name).write_text("Dear Ada")
        with pytest.raises(InputError, match="is not an index"):
            Index.build([Doc("a", "new")], folder, overwrite=True)
        assert contents(folder) == {name: b"Dear Ada"}


def test_no_lock_is_left_in_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ada")
    index = Index.build([Doc("a", "b")], tmp_path / "index")
    shutil.rmtree(index.path)
    index.path.symlink_to(tmp_path)
    with pytest.raises(InputError, match="is not an index"):
        index.delete(["a"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "letter.txt"]
