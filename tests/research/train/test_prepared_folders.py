"""Prepared arrays: replaced as a whole, of the settings they are used with, named if damaged."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reliability import Recorder
from tiny_run import tiny_config, tiny_prepared

import glassrank
from glassrank.errors import GlassrankError, InputError
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import preparation_settings
from glassrank.research.train.prepared import PassageOffsets, Prepared, RunIds, Split, SubwordRows
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.storage.atomic_folders import write_checksums
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import Ragged

HERE = Path(__file__).parent


def every_array() -> Prepared:
    """With all that is optional, too."""
    plain = tiny_prepared(teacher=True)
    train = replace(
        plain.train,
        triples=np.zeros((5, 3), np.int32),
        folds=np.arange(len(plain.train.queries), dtype=np.int32) % 5,
    )
    passages = PassageOffsets(np.arange(len(plain.docs) + 1), best=2, first=0.5)
    words = len(plain.words)
    rows = Ragged.from_rows([np.array([i, words + i % 4]) for i in range(words)], np.int64)
    table = np.concatenate([plain.vectors, plain.vectors[:4]])
    return replace(
        plain,
        train=replace(train, passages=passages),
        dev=replace(plain.dev, passages=passages),
        test=replace(plain.dev, passages=passages),
        vectors=table,
        subwords=SubwordRows(rows, np.array([4, 3, 6])),
        ids=RunIds.of([f"q{n}" for n in range(60)], [f"d{n}" for n in range(len(plain.docs))]),
        description={"preparation": preparation_settings(tiny_config())},
    )


def sealed(folder: Path) -> Path:
    with Folder.open(folder) as opened:
        write_checksums(opened, "preparation", [n for n in opened.names() if n != "checksums.json"])
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(GlassrankError) as caught:
        load_prepared(folder)
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message and len(message) < 600, message
    return message


@pytest.mark.parametrize("make", [tiny_prepared, every_array])
def test_what_was_saved_is_loaded(make: Callable[[], Prepared], tmp_path: Path) -> None:
    prepared = make()
    save_prepared(tmp_path / "arrays", prepared)
    again = load_prepared(tmp_path / "arrays")
    assert again.words == prepared.words and again.description == prepared.description
    assert np.array_equal(again.vectors, prepared.vectors.astype(np.float16).astype(np.float32))
    assert again.splits().keys() == prepared.splits().keys()
    assert (again.ids is None) == (prepared.ids is None)
    if again.ids is not None and prepared.ids is not None:
        assert np.array_equal(again.ids.docs.values, prepared.ids.docs.values)
        assert np.array_equal(again.ids.queries.offsets, prepared.ids.queries.offsets)
    for name, split in prepared.splits().items():
        for column in Split.__dataclass_fields__:
            mine, theirs = getattr(split, column), getattr(again.splits()[name], column)
            if isinstance(mine, PassageOffsets):
                assert np.array_equal(mine.offsets, theirs.offsets) and mine.best == theirs.best
                continue
            for one, other in [
                (mine.offsets, theirs.offsets) if isinstance(mine, Ragged) else (mine, theirs),
                (mine.values, theirs.values) if isinstance(mine, Ragged) else (mine, theirs),
            ]:
                assert np.array_equal(one, other) if one is not None else other is None


def test_every_damage_is_named(tmp_path: Path, reliability: Recorder) -> None:
    folder = tmp_path / "arrays"
    save_prepared(folder, every_array())
    rng = random.Random(0)
    paths = sorted(folder.iterdir())
    assert len(paths) > 30
    for path in paths:
        content = path.read_bytes()
        place = rng.randrange(len(content))
        flipped = bytes([content[place] ^ 1 << rng.randrange(8)])
        for damaged in (
            b"",
            content[: rng.randrange(len(content))],
            content + b"\0",
            content[:place] + flipped + content[place + 1 :],
        ):
            path.write_bytes(damaged)
            refused(folder)
        path.unlink()
        refused(folder)
        path.write_bytes(content)
    load_prepared(folder)
    damage = "a file of prepared arrays damaged"
    reliability("Files", damage, "refused, the folder named", 5 * len(paths))


def _array(name: str, values: Any, dtype: Any = None) -> Callable[[Path], object]:
    return lambda folder: np.save(folder / f"{name}.npy", np.array(values, dtype))


def _changed(name: str, change: Callable[[Any], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        array = np.load(folder / f"{name}.npy")
        changed = change(array)
        np.save(folder / f"{name}.npy", array if changed is None else changed)

    return edit


def _put(place: Any, value: Any) -> Callable[[Any], object]:
    return lambda array: array.__setitem__(place, value)


HARM: dict[str, Callable[[Path], object]] = {
    "a word beyond the vocabulary": _changed("docs.values", _put(0, 60)),
    "a word below zero": _changed("docs.values", _put(0, -1)),
    "offsets that fall": _changed("docs.offsets", _put(3, 10**9)),
    "offsets that begin late": _changed("train.docs.offsets", _put(0, 1)),
    "offsets short of the values": _changed("docs.offsets", lambda array: array[:-1]),
    "no offsets": _array("docs.offsets", [], np.int64),
    "a document that is not there": _changed("dev.docs.values", _put(5, 200)),
    "a query's word that is not there": _changed("test.queries.values", _put(0, 99)),
    "grades too few": _changed("train.grades", lambda array: array[:-1]),
    "no number in first-stage scores": _changed("dev.first_stage", _put(0, np.nan)),
    "an infinite teacher": _changed("train.teacher", _put(0, np.inf)),
    "vectors without numbers": _changed("vectors", _put((0, 0), np.nan)),
    "rarities without numbers": _changed("idf", _put(2, np.nan)),
    "rarities too few": _changed("idf", lambda array: array[:-1]),
    "triples beyond": _changed("train.triples", _put((0, 1), 10**9)),
    "triples of two": _changed("train.triples", lambda array: array[:, :2].copy()),
    "a fold far away": _changed("train.folds", _put(0, 2**31 - 1)),
    "a collection far away": _changed("train.collection", _put(0, 2**31 - 1)),
    "subwords beyond": _changed("subwords.values", _put(0, 10**9)),
    "n-grams beyond": _changed("subwords.ngrams", _put(0, 10**9)),
    "a document without passages": _changed("passages.offsets", _put(3, 4)),
    "passages that begin late": _changed("passages.offsets", _put(0, 1)),
    "passages beyond the texts": _changed("passages.offsets", _put(-1, 201)),
    "documents fewer than candidates": _changed(
        "passages.offsets", lambda array: np.append(array[:-2], array[-1])
    ),
    "no passages": _array("passages.offsets", [], np.int64),
    "a sum of no passages": _array("passages.best", [0], np.int64),
    "two sums": _array("passages.best", [1, 2], np.int64),
    "more than all of the first": _array("passages.first", [1.5], np.float64),
    "ids too few": _changed("doc_ids.offsets", lambda array: np.append(array[:-2], array[-1])),
    "ids of fewer queries": _changed(
        "query_ids.offsets", lambda array: np.append(array[:-2], array[-1])
    ),
    "objects": lambda folder: np.save(
        folder / "idf.npy", np.array([{}] * 60, object), allow_pickle=True
    ),
    "floats as ids": _changed("docs.values", lambda array: array.astype(np.float64)),
    "two axes": _changed("idf", lambda array: array[:, None]),
    "by columns": _changed("vectors", np.asfortranarray),
    "no array": lambda folder: (folder / "idf.npy").write_bytes(b"idf"),
    "a header that nests": lambda folder: (folder / "idf.npy").write_bytes(
        b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000
    ),
    "a huge shape": lambda folder: (folder / "idf.npy").write_bytes(
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,), }".ljust(117)
        + b"\n"
    ),
    "a shape below zero": lambda folder: (folder / "idf.npy").write_bytes(
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1), }".ljust(117)
        + b"\n"
    ),
    "no words": lambda folder: (folder / "words.txt").write_text(""),
    "a word twice": lambda folder: (folder / "words.txt").write_text("<pad>\n<unk>\n" + "w\n" * 58),
    "words that are not UTF-8": lambda folder: (folder / "words.txt").write_bytes(b"\xff\n" * 60),
    "a description that nests": lambda folder: (folder / "prepared.json").write_text("[" * 10**5),
    "no description": lambda folder: (folder / "prepared.json").write_text("7"),
    "dev missing": lambda folder: (folder / "dev.grades.npy").unlink(),
}


@pytest.mark.tried("Files", "prepared arrays that lie", "refused in one sentence", tries=2)
@pytest.mark.parametrize("kind", HARM)
def test_arrays_that_lead_nowhere_are_one_sentence(kind: str, tmp_path: Path) -> None:
    save_prepared(tmp_path / "arrays", every_array())
    HARM[kind](tmp_path / "arrays")
    refused(tmp_path / "arrays")
    refused(sealed(tmp_path / "arrays"))


@pytest.mark.tried("Files", "links, pipes and folders among prepared arrays", "not opened")
@pytest.mark.parametrize("name", ["idf.npy", "words.txt", "prepared.json", "checksums.json"])
@pytest.mark.parametrize("kind", ["pipe", "zeros", "link", "folder"])
def test_what_is_no_plain_file_is_not_opened(name: str, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    save_prepared(folder, tiny_prepared())
    (folder / name).rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to("/dev/zero" if kind == "zeros" else tmp_path / "elsewhere")
    refused(folder)


# Preparing again


def test_a_test_split_of_before_does_not_stay(tmp_path: Path) -> None:
    save_prepared(tmp_path / "arrays", every_array())
    assert load_prepared(tmp_path / "arrays").test is not None
    save_prepared(tmp_path / "arrays", tiny_prepared())
    again = load_prepared(tmp_path / "arrays")
    assert again.test is None and again.subwords is None and again.train.teacher is None


def test_arrays_of_an_older_version_are_replaced_and_other_files_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    save_prepared(folder, every_array())
    (folder / "checksums.json").unlink()
    assert "glassrank prepare CONFIG.toml" in refused(folder)
    (folder / "out").mkdir()
    with pytest.raises(InputError, match=r"holds 'out', .* would be lost"):
        save_prepared(folder, tiny_prepared())
    (folder / "out").rmdir()
    save_prepared(folder, tiny_prepared())
    load_prepared(folder)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from killed import dies_at_sync, killed
from test_prepared_folders import every_array, marked, tiny_prepared
from glassrank.research.train.prepared_folders import load_prepared, save_prepared

folder = Path(sys.argv[2])
old, new = marked(tiny_prepared(), "old"), marked(every_array(), "new")
for number in range(1, 1000):
    save_prepared(folder, old)
    dead = killed(dies_at_sync(number, lambda: save_prepared(folder, new)))
    found = load_prepared(folder)
    which = {"old": old, "new": new}[found.description["mark"]]
    assert found.words == which.words and (found.test is None) == (which.test is None)
    if not dead:
        break
print(number - 1)
"""


def marked(prepared: Prepared, mark: str) -> Prepared:
    return replace(prepared, description={"mark": mark})


@pytest.mark.long
def test_killed_at_any_sync_the_old_or_the_new_arrays_are_there(
    tmp_path: Path, reliability: Recorder
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KILLED, HERE, tmp_path / "arrays"],
        env={
            **os.environ,
            "PYTHONPATH": f"{Path(glassrank.__file__).parents[1]}:{HERE.parents[1]}",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30  # each file is synced
    kill = "SIGKILL while arrays are prepared again"
    reliability("Files", kill, "the old arrays or the new ones", int(done.stdout))


# Of which settings


def same(before: TrainConfig, now: TrainConfig, folder: Path) -> None:
    description = json.loads(json.dumps({"preparation": preparation_settings(before)}))
    save_prepared(folder, replace(tiny_prepared(), description=description))
    load_prepared(folder, now)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"query_length": 5}, "query_length"),
        ({"doc_length": 13}, "doc_length"),
        ({"vectors": {"min_count": 3}}, "vectors.min_count"),
        ({"candidates": {"train_depth": 7}}, "candidates.train_depth"),
        ({"candidates": {"teacher": "t"}}, "candidates.teacher"),
        ({"folds": {"count": 4}}, "folds"),
        ({"sampler": {"kind": "triples", "triples": "t"}}, "sampler.triples"),
        ({"model": "bert"}, "units"),
    ],
)
def test_arrays_of_other_settings_are_refused(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"was made with {named} = .*glassrank prepare"):
        same(tiny_config(), tiny_config(**change), tmp_path / "arrays")


def test_arrays_may_be_shared_by_models_losses_and_seeds(tmp_path: Path) -> None:
    other = tiny_config(
        model="tk", seed=7, out="elsewhere", loss={"kind": "ranknet"}, vectors={"train": False}
    )
    same(tiny_config(), other, tmp_path / "arrays")


def test_arrays_that_do_not_say_of_which_settings_they_are_are_refused(tmp_path: Path) -> None:
    save_prepared(tmp_path / "arrays", tiny_prepared())
    with pytest.raises(InputError, match="was made with other settings"):
        load_prepared(tmp_path / "arrays", tiny_config())
