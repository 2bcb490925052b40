"""Damage to any file of a store is found when it is opened, and the file named."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from reliability import Recorder
from small_store import small_saved, some_docs

from glassrank.embeddings import Store, encode_index
from glassrank.errors import CorruptError, InputError
from glassrank.index import Index
from glassrank.models.io.model_folder import Passages, SavedModel, Usage, fingerprint

NAMED = "refused, the file named"
SAVED = {name: small_saved(name) for name in ("tk", "knrm")}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    index = Index.build(some_docs(1, list("abcdefghijkl")), tmp_path_factory.mktemp("d") / "index")
    index.add(some_docs(2, list("xyz")))
    for dtype in ("bf16", "int8"):
        encode_index(index, SAVED["tk"], dtype=dtype, graph=dtype == "int8")
    encode_index(index, SAVED["knrm"])
    return index


@pytest.fixture(params=["tk-bf16", "tk-int8", "knrm-ids"])
def path(index: Index, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index.path / "stores" / request.param, tmp_path / request.param))


def files(path: Path) -> list[Path]:
    found = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".lock"]
    assert len(found) == (20 if path.name == "tk-int8" else 13)
    return found


def assert_named(path: Path, file: Path, problem: str) -> None:
    with pytest.raises(CorruptError, match=f"{re.escape(str(file))} is {problem}") as raised:
        Store.open(path, SAVED[path.name.split("-")[0]].model)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("place", "flip"), [(0.0, 1), (0.1, 0x80), (0.5, 4), (0.9, 1), (1.0, 2)])
def test_a_flipped_byte(path: Path, place: float, flip: int, reliability: Recorder) -> None:
    for file in files(path):
        content = file.read_bytes()
        damaged = bytearray(content)
        damaged[int(place * (len(content) - 1))] ^= flip
        file.write_bytes(damaged)
        assert_named(path, file, "damaged")
        file.write_bytes(content)
    Store.open(path, SAVED[path.name.split("-")[0]].model)
    reliability("Files", "a file of a store damaged", NAMED, len(files(path)))


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "header": lambda content: content[:100],
    "end": lambda content: content[:-1],
    "longer": lambda content: content + b"\n",
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_or_longer_file(path: Path, cut: str, reliability: Recorder) -> None:
    for file in files(path):
        content = file.read_bytes()
        file.write_bytes(CUTS[cut](content))
        assert_named(path, file, "damaged")
        file.write_bytes(content)
    reliability("Files", "a file of a store damaged", NAMED, len(files(path)))


def test_a_missing_file(path: Path) -> None:
    for file in files(path):
        if file.name != "store.json":
            hidden = file.rename(file.with_suffix(".hidden"))
            assert_named(path, file, "missing")
            hidden.rename(file)


def test_sizes_are_compared_even_without_verifying(path: Path) -> None:
    file = next(path.rglob("offsets.npy"))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CorruptError, match=r"offsets\.npy is damaged: expected \d+ bytes"):
        Store.open(path, SAVED[path.name.split("-")[0]].model, verify=False)


def test_no_store_at_all(tmp_path: Path, index: Index) -> None:
    for folder in (tmp_path / "nothing", index.path):
        with pytest.raises(InputError, match=r"is not a document store .* glassrank encode"):
            Store.open(folder, "")


def test_other_model_errors_store_is_refused(path: Path, index: Index) -> None:
    name = path.name.split("-")[0]
    other = small_saved(name, seed=5)
    for model in (other.model, fingerprint(other.model)):
        with pytest.raises(InputError, match="was encoded by another model") as raised:
            Store.open(path, model)
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="belongs to another model"):
        encode_index(index, other, path, path.name.split("-")[1].replace("ids", "bf16"))
    Store.open(path, fingerprint(SAVED[name].model), index.snapshot)


def test_two_models_of_a_family_have_a_store_each(index: Index) -> None:
    """Whoever names no folder; and both find theirs again."""
    models = [small_saved("tk", seed=seed) for seed in (5, 6)]
    paths = [encode_index(index, model, None, "float16").path for model in models]
    own = fingerprint(models[1].model)[:8]
    assert [path.name for path in paths] == ["tk-float16", f"tk-float16-{own}"]
    for model, path in zip(models, paths, strict=True):
        again = encode_index(index, model, None, "float16")
        assert again.path == path and again.encoded == 0
        found = Store.find(index, model.model)
        assert found is not None and found.path == path


def test_a_store_of_another_dtype_or_length_is_not_mixed(index: Index) -> None:
    path, saved = index.path / "stores" / "tk-bf16", SAVED["tk"]
    several = "in at most 64 passages of"
    with pytest.raises(InputError, match=f"holds bf16 {several} 14 words, not int8 {several}"):
        encode_index(index, saved, path, "int8")
    shorter = SavedModel(saved.model, Usage(6, 13), saved.vocabulary)
    with pytest.raises(InputError, match=f"not bf16 {several} 13 words; choose another name"):
        encode_index(index, shorter, path, "bf16")
    cut = SavedModel(saved.model, Usage(6, 14, passages=Passages(most=1)), saved.vocabulary)
    with pytest.raises(InputError, match="not bf16 in one passage of 14 words; choose"):
        encode_index(index, cut, path, "bf16")
    renamed = SavedModel(saved.model, saved.usage, [*saved.vocabulary[:-1], "newt"])
    with pytest.raises(InputError, match="belongs to another model"):
        encode_index(index, renamed, path, "bf16")


def test_a_folder_of_something_else_is_left_alone(index: Index, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to_anne.txt").write_text("Dear Anne")
    for folder in (tmp_path / "letters", index.path):
        with pytest.raises(InputError, match="something else than a document store"):
            encode_index(index, SAVED["tk"], folder)
    assert len(Index(index.path)) == 15


def test_ids_need_the_model_to_become_words(index: Index) -> None:
    store = Store.open(index.path / "stores" / "knrm-ids", fingerprint(SAVED["knrm"].model))
    part = store.part(index.snapshot.segments[0].record.name)
    with pytest.raises(TypeError, match="opened with its model"):
        store.read_embeddings(part, part.offsets[:1], part.offsets[1:2])
