"""A store from a stranger leads nowhere outside, and its numbers are not taken for granted."""

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import small_saved, some_docs
from store_changes import contents

from glassrank.embeddings import Store, encode_index
from glassrank.errors import CorruptError, GlassrankError
from glassrank.index import Index
from glassrank.storage.checksummed_json import _serialize

SAVED = {name: small_saved(name) for name in ("tk", "knrm")}
STORES = ["tk-bf16", "tk-int8", "tk-float16", "tk-float32", "tk-int3", "knrm-ids"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = Index.build(some_docs(1, list("abcdefghij")), tmp_path_factory.mktemp("s") / "index")
    for dtype in ("bf16", "int8", "float16", "float32", "int3"):
        encode_index(index, SAVED["tk"], dtype=dtype, graph=dtype in ("bf16", "int8"))
    encode_index(index, SAVED["knrm"])
    return index.path


@pytest.fixture
def index(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "index"))


def open_store(index: Path, name: str, *, verify: bool = True) -> Store:
    model = SAVED[name.split("-")[0]].model
    return Store.open(index / "stores" / name, model, Index(index).snapshot, verify=verify)


def change_manifest(store: Path, change: Callable[[Any], Any]) -> None:
    body = json.loads((store / "store.json").read_text())["body"]
    changed = change(body)
    (store / "store.json").write_bytes(_serialize(body if changed is None else changed, "body"))


def change_array(store: Path, name: str, change: Callable[[Any], Any]) -> None:
    (file,) = store.glob(f"**/{name}.npy")
    array = np.load(file)
    changed = change(array)
    np.save(file, array if changed is None else changed)
    content = file.read_bytes()
    crc32 = zlib.crc32(content[:128], zlib.crc32(content[128:]))

    def record(body: Any) -> None:
        if file.parent == store:
            body["graph"]["file"] = [len(content), crc32]
        else:
            body["parts"][0]["files"][file.name] = [len(content), crc32]

    change_manifest(store, record)


NUMBERS = [-1, "x", 1.5, True, None, [], 10**30]


def each(
    what: str, values: list[Any], change: Callable[[dict[str, Any], Any], object]
) -> dict[str, Callable[[Any], object]]:
    return {f"{what} {v!r:.20}": lambda body, v=v: change(body, v) and None for v in values}


MANIFESTS: dict[str, Callable[[Any], object]] = {
    **each("docs", NUMBERS, lambda body, n: body["parts"][0].update(docs=n)),
    **each("rows", NUMBERS, lambda body, n: body["parts"][0].update(rows=n)),
    **each("generation", NUMBERS, lambda body, n: body.update(generation=n)),
    **each("segment", ["../x", "/etc", 1, None], lambda b, n: b["parts"][0].update(segment=n)),
    **each("source", ["../x", "", "x" * 16, 1], lambda b, n: b["parts"][0].update(source=n)),
    **each("files", [1, [], {}, {"../x": [1, 2]}], lambda b, n: b["parts"][0].update(files=n)),
    **each("parts", [1, "x", [1], [[]], None], lambda body, n: body.update(parts=n)),
    **each("layout", [1, "x", [], {}, None], lambda body, n: body.update(layout=n)),
    **each("doc_length", [*NUMBERS, 0], lambda body, n: body["layout"].update(doc_length=n)),
    **each("stride", [*NUMBERS, 0, 33], lambda body, n: body["layout"].update(stride=n)),
    **each("dtype", ["x", 1, None, "ids"], lambda body, n: body["layout"].update(dtype=n)),
    **each("reuse", ["x", 1, "s1", "s2"], lambda body, n: body["layout"].update(reuse=n)),
    **each(
        "axes",
        [[], [0], [-12], [12.0], [10**9], [2, 6], [11], [1] * 99 + [12], "x", 12],
        lambda body, n: body["layout"].update(axes=n),
    ),
    **each("idf_axes", [[3], [0], [-1], "x"], lambda b, n: b["layout"].update(idf_axes=n)),
    **each("graph", [1, "x", [1], {}], lambda body, n: body.update(graph=n)),
    **each("neighbours", NUMBERS, lambda body, n: body["graph"].update(generation=n)),
    **each("graph file", [1, [], [1], [-1, 0]], lambda body, n: body["graph"].update(file=n)),
    **each(
        "graph parts",
        [1, [1], [["../x", 10]], [["segment-000001-1-0123456789abcdef", -1]], [[]]],
        lambda body, n: body["graph"].update(parts=n),
    ),
    **{f"body {n!r}": lambda body, n=n: n for n in (1, "x", [1], [], {})},
    "a part twice": lambda body: body["parts"].append(body["parts"][0]),
    "deep": lambda body: body.update(generation=json.loads("[" * 300 + "]" * 300)),
}


@pytest.mark.tried("Files", "a store whose manifest lies", "refused in one sentence", tries=2)
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_hostile_manifest_is_one_sentence(index: Path, name: str) -> None:
    change_manifest(index / "stores" / "tk-bf16", MANIFESTS[name])
    before = contents(index)
    for verify in (True, False):
        with pytest.raises(CorruptError, match="is damaged") as raised:
            open_store(index, "tk-bf16", verify=verify)
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 1000
    with pytest.raises(GlassrankError):
        encode_index(Index(index), SAVED["tk"], dtype="bf16")
    assert contents(index) == before


def put(place: int, value: float) -> Callable[[Any], None]:
    def changing(array: Any) -> None:
        array[place] = value

    return changing


VALUES: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "offsets beyond the rows": ("tk-bf16", "offsets", put(-1, 10**6)),
    "an offset beyond the rows": ("tk-int8", "offsets", put(3, 10**6)),
    "negative offsets": ("knrm-ids", "offsets", put(2, -1)),
    "decreasing offsets": ("tk-bf16", "offsets", lambda array: array[::-1].copy()),
    "a late beginning": ("tk-bf16", "offsets", put(0, 1)),
    "a bf16 that is no number": ("tk-bf16", "vectors", put(77, 0x7FC0)),
    "an infinite bf16": ("tk-bf16", "vectors", put(-1, 0xFF80)),
    "a float16 that is no number": ("tk-float16", "vectors", put(5, np.nan)),
    "an infinite float32": ("tk-float32", "vectors", put(0, -np.inf)),
    "an infinite scale": ("tk-int8", "scales", put(2, np.inf)),
    "an infinite scale of a document": ("tk-int8", "doc_scales", put(2, np.inf)),
    "a document's scale that is no number": ("tk-bf16", "doc_scales", put(0, np.nan)),
    "a vector too few": ("tk-bf16", "doc_vectors", lambda array: array[:-12]),
    "a scale that is no number": ("tk-int8", "scales", put(0, np.nan)),
    "an infinite scale of three bits": ("tk-int3", "scales", put(2, np.inf)),
    "a negative id": ("knrm-ids", "ids", put(3, -1)),
    "an id beyond the vocabulary": ("knrm-ids", "ids", put(3, 10**6)),
    "an id behind the last": ("knrm-ids", "ids", put(-1, 13)),
}


@pytest.mark.tried(
    "Files", "a store whose numbers lie, with right checksums", "refused, the file named"
)
@pytest.mark.parametrize("name", VALUES)
def test_a_hostile_number_is_found(index: Path, name: str) -> None:
    store, array, change = VALUES[name]
    change_array(index / "stores" / store, array, change)
    with pytest.raises(CorruptError, match="is damaged: ") as raised:
        open_store(index, store)
    assert "\n" not in str(raised.value)


def test_the_largest_and_smallest_numbers_are_fine(index: Path) -> None:
    for store, values in (
        ("tk-bf16", [0x7F7F, 0xFF7F, 0x8000, 1, 0]),
        ("tk-int3", [255, 0, 255, 0, 255]),
        ("tk-float16", [65504, -65504, -0.0, 1e-7, 0]),
        ("tk-float32", [3e38, -3e38, -0.0, 1e-45, 0]),
    ):
        change_array(
            index / "stores" / store, "vectors", lambda a, v=values: a.__setitem__(slice(5), v)
        )
        open_store(index, store)


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("store", STORES)
def test_another_dtype_or_length_is_found_without_verifying(
    index: Path, store: str, verify: bool
) -> None:
    folder = index / "stores" / store
    good = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name in {path.stem for path in good if path.suffix == ".npy"}:
        for change in (
            lambda array: array.astype(np.float64),
            lambda array: array.reshape(1, -1),
            lambda array: array[:-1],
            lambda array: np.append(array, array[-1:]),
        ):
            change_array(folder, name, change)
            with pytest.raises(CorruptError, match=rf"{name}\.npy is damaged: "):
                open_store(index, store, verify=verify)
            for path, content in good.items():
                path.write_bytes(content)


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, victim: path.symlink_to(victim / "file"),
    "link to nowhere": lambda path, victim: path.symlink_to(victim / "new"),
    "link to a folder": lambda path, victim: path.symlink_to(victim),
    "second name": lambda path, victim: path.hardlink_to(victim / "file"),
    "pipe": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
}
PLACES = [
    *("write.lock", ".store.json.part", "store.json", "part", "part/offsets.npy", "", ".."),
    *("new", "new/progress.json", "new/vectors.npy", "new/.progress.json.part"),
    *("neighbours-2.npy", "part/doc_vectors.npy", "new/doc_vectors.npy"),
]


@pytest.mark.tried(
    "Files",
    "links, pipes and folders in a store's folder, read and encoded",
    "nothing outside was touched",
)
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_outside_is_touched(index: Path, kind: str, place: str) -> None:
    """Also where a new part is begun, or gone on with."""
    victim = index.with_name("victim")
    victim.mkdir()
    for name in ("file", "store.json", "offsets.npy", "progress.json", "vectors.npy"):
        (victim / name).write_text("precious")
    store = index / "stores" / "tk-bf16"
    (part,) = (path.name for path in store.glob("segment-*"))
    where = Path(os.path.normpath(store / place.replace("part/", f"{part}/")))
    if place == "part":
        where = store / part
    if place.startswith("new"):  # the part has been begun, not finished
        change_manifest(store, lambda body: body.update(parts=[]))
        where = Path(str(where).replace("/new", f"/{part}"))
    if where.is_dir():
        shutil.rmtree(where)
    where.unlink(missing_ok=True)
    HOSTILE[kind](where, victim)
    before = contents(victim)
    for use in (
        lambda: Store.find(Index(index), SAVED["tk"].model),
        lambda: encode_index(Index(index), SAVED["tk"]),
        lambda: Store.find(Index(index), SAVED["tk"].model),
    ):
        try:
            use()
        except GlassrankError as error:
            assert "\n" not in str(error)
        assert contents(victim) == before


PROGRESS = [
    *([], {}, 1, None, {"offsets": 1}, {"offsets": ["x", 1]}, {"offsets": [-1, 0]}),
    {name: [10**9, 0] for name in ("offsets", "contents", "vectors")},
    {name: [5, 0] for name in ("offsets", "contents", "vectors")},
    {name: [True, 0.5] for name in ("offsets", "contents", "vectors")},
]


@pytest.mark.tried("Files", "a store whose notes of progress lie", "begun anew")
@pytest.mark.parametrize("stored", PROGRESS, ids=lambda stored: f"{stored!r:.60}")
def test_hostile_progress_is_create_or_load_anew(index: Path, stored: Any) -> None:
    store = index / "stores" / "tk-bf16"
    expected = contents(store)
    generation = json.loads((store / "store.json").read_text())["body"]["generation"]
    (part,) = store.glob("segment-*")
    change_manifest(store, lambda body: body.update(parts=[], generation=generation - 1))
    (part / "progress.json").write_bytes(_serialize(stored, "body"))
    encode_index(Index(index), SAVED["tk"])
    assert contents(store) == expected


def test_a_graph_of_other_documents_is_refused_and_made_anew(index: Path) -> None:
    store = index / "stores" / "tk-bf16"
    good = open_store(index, "tk-bf16").neighbours(Index(index).snapshot, np.arange(10))
    change_manifest(store, lambda body: body["graph"]["parts"][0].__setitem__(1, 2**32 - 1))
    for verify in (True, False):
        with pytest.raises(CorruptError, match="is not the graph of these documents"):
            open_store(index, "tk-bf16", verify=verify)
    encode_index(Index(index), SAVED["tk"], dtype="bf16")
    opened = open_store(index, "tk-bf16")
    assert np.array_equal(opened.neighbours(Index(index).snapshot, np.arange(10)), good)


def test_neighbours_that_do_not_exist_are_left_out(index: Path) -> None:
    """Nothing is computed with these numbers, so who searches meets them, not who opens."""
    store = index / "stores" / "tk-int8"
    (file,) = store.glob("neighbours-*.npy")
    change_array(store, file.stem, lambda array: np.full_like(array, 10))
    snapshot = Index(index).snapshot
    near = open_store(index, "tk-int8").neighbours(snapshot, np.arange(10))
    assert near.shape == (10, 16) and (near == -1).all()


def test_only_what_a_writer_made_is_removed(index: Path) -> None:
    store = index / "stores" / "tk-bf16"
    (part,) = store.glob("segment-*")
    old = store / "segment-000077-1-0123456789abcdef"
    letters = [store / "segment-mine" / "letter", part / "letter", old / "letter"]
    for letter in letters:
        letter.parent.mkdir(exist_ok=True)
        letter.write_text("Dear Ada")
    (old / "vectors.npy").write_text("half")
    changed = Index(index)
    changed.add(some_docs(2, list("xyz")))
    changed.merge()
    encode_index(changed, SAVED["tk"], dtype="bf16")
    assert all(letter.read_text() == "Dear Ada" for letter in letters)
    assert [path.name for path in part.iterdir()] == ["letter"]
    assert [path.name for path in old.iterdir()] == ["letter"]
