"""A model folder made to do harm: whatever it says, whatever its files are, one sentence.

The checksums of these folders are right, where there can be any: whoever makes such a folder can
write its manifest too.
"""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_folders import (
    FILES,
    PIECES,
    WORDS,
    copied,
    edit_config,
    ensemble,
    outcome,
    piece_model,
    raw_weights,
    sealed,
    subword_model,
    word_model,
)
from safetensors.torch import load_file, save_file

from glassrank.errors import GlassrankError
from glassrank.models.io.load import load_model
from glassrank.models.seal import seal_model
from glassrank.storage.atomic_folders import MANIFEST

HUGE = 10**9


def refused(folder: Path) -> str:
    said = outcome(folder)
    assert str(folder) in said and said.isprintable(), said
    return said


# Files that are not files


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name may not be long
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


NOT_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a folder": lambda path: path.mkdir(),
    "a socket": _socket,
}


@pytest.mark.tried("Files", "links, pipes and endless files in a model folder", "not opened")
@pytest.mark.parametrize("kind", NOT_FILES)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_plain_file_is_not_opened(name: str, kind: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    (folder / name).unlink()
    NOT_FILES[kind](folder / name)
    refused(folder)


@pytest.mark.tried("Files", "links, pipes and endless files in a model folder", "not opened")
@pytest.mark.parametrize("name", FILES)
def test_a_link_is_not_followed_even_to_the_right_file(name: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    said = refused(folder)
    assert "not a link" in said if name != MANIFEST else "checksums.json is damaged" in said


@pytest.mark.tried("Files", "links, pipes and endless files in a model folder", "not opened")
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_pretends_to_be_endless_is_not_read(name: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    os.truncate(folder / name, 1 << 40)  # of which the disk holds nothing
    refused(folder)
    if name != MANIFEST:
        refused(sealed(folder, **{name.partition(".")[0]: (1 << 40, 0)}))


@pytest.mark.tried("Files", "links, pipes and endless files in a model folder", "not opened")
@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, lambda path: path.symlink_to("/dev/zero")])
def test_a_folder_that_is_none(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "model")
    refused(tmp_path / "model")


# What config.json says


def _set(*path: str | int, value: object) -> Callable[[dict[str, Any]], object]:
    def change(stored: dict[str, Any]) -> None:
        place: Any = stored
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


NUMBERS = (0, -1, HUGE, 10**30, 1.5, "12", True, None, [], {}, float("nan"))
WRONG: list[tuple[tuple[str | int, ...], object]] = [
    *((("format",), value) for value in (0, 2, "1", True, None, [1])),
    *((("model",), value) for value in ("", "TK", "te\nn", 7, None, ["tk"], {"tk": 1})),
    *((("config",), value) for value in (None, [], 1, "tk", {"sizes": 12})),
    *((("config", "size"), value) for value in (*NUMBERS, 11, 13)),
    *((("config", "contextual", "layers"), value) for value in (*NUMBERS, 1, 3, 10**6)),
    *((("config", "contextual", "heads"), value) for value in (*NUMBERS, 3)),
    *((("config", "contextual", "attention_size"), value) for value in NUMBERS),
    *((("config", "contextual", "feed_forward"), value) for value in NUMBERS),
    *((("config", "term_weights"), value) for value in (True, 1, "yes", None)),
    *((("config", "kernels", "widths", 3), value) for value in (0, -1, 1e-200, "1", None)),
    *((("config", "kernels", "centers", 3), value) for value in ("1", None, 1e300, -1e9, [])),
    *((("config", "kernels", "centers"), value) for value in ([], [1.0], None, [0.1] * 10**5)),
    *((("config", "kernels"), {"centers": c, "widths": c}) for c in ([], [0.1] * 10**5)),
    *((("words",), value) for value in (None, [], [20], [20, 12, 1], [-1, 12], [20.0, 12])),
    *((("words",), value) for value in ([HUGE, 12], [20, HUGE], ["20", "12"], 20, {"0": 20})),
    *((("usage",), value) for value in (None, [], "x", {"longest": 3})),
    *((("usage", "query_length"), value) for value in NUMBERS),
    *((("usage", "doc_length"), value) for value in NUMBERS),
    *((("usage", "depth"), value) for value in (0, -1, 1.5, "x", [])),
    *((("usage", "first_stage"), value) for value in (7, None, [], "b" * 10_000)),
    *((("usage", "notes"), value) for value in (7, [], "x")),
    *((("first_stage_weight",), value) for value in (True, None, "yes", 1)),
]


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize(("path", "value"), WRONG, ids=lambda v: str(v)[:40])
def test_a_config_that_lies(path: tuple[str | int, ...], value: object, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    edit_config(folder, _set(*path, value=value))
    refused(sealed(folder))


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize("missing", ["format", "model", "config", "words", "usage"])
def test_a_config_that_says_too_little(missing: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    edit_config(folder, lambda stored: stored.pop(missing))
    refused(sealed(folder))


DEEP = b"[" * 100_000
NOT_CONFIGS: dict[str, bytes] = {
    "empty": b"",
    "blank": b" ",
    "a list": b"[]",
    "a number": b"7",
    "nothing": b"null",
    "deep": DEEP,
    "deep and closed": DEEP + b"]" * 100_000,
    "deep inside": b'{"format": 1, "model": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "a long number": b'{"format": ' + b"1" * 100_000 + b"}",
    "not UTF-8": b'{"format": "\xff\xfe"}',
    "UTF-16": '{"format": 1}'.encode("utf-16"),
    "half a surrogate pair": b'{"format": 1, "model": "\\ud800"}',
    "zeros": b"\0" * 1000,
    "two values": b"{} {}",
}


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize("name", ["config.json", "checksums.json"])
@pytest.mark.parametrize("kind", NOT_CONFIGS)
def test_json_that_is_none(name: str, kind: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    (folder / name).write_bytes(NOT_CONFIGS[kind])
    refused(folder if name == "checksums.json" else sealed(folder))


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize(
    ("name", "part", "field"),
    [
        ("bert", "encoder", "layers"),
        ("bert", "encoder", "vocabulary"),
        ("bert", "encoder", "size"),
        ("bert", "encoder", "heads"),
        ("bert", "encoder", "positions"),
        ("bert", "encoder", "types"),
        ("mores", "query", "layers"),
        ("mores", "document", "feed_forward"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, 1000, 10**6, HUGE])
def test_a_transformer_that_is_not_there(
    name: str, part: str, field: str, value: int, tmp_path: Path
) -> None:
    folder = copied(piece_model, tmp_path / "model", name)
    edit_config(folder, _set("config", part, field, value=value))
    refused(sealed(folder))


# What weights.safetensors holds

TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
RAW: dict[str, bytes] = {
    "empty": b"",
    "seven bytes": b"1234567",
    "a header beyond the file": raw_weights({}, length=1 << 20),
    "a header of all bytes there are": raw_weights({}, length=(1 << 64) - 1),
    "no JSON": raw_weights(b"weights"),
    "a deep header": raw_weights(DEEP),
    "a list": raw_weights([]),
    "no tensor": raw_weights({}),
    "a tensor that is a number": raw_weights({"a": 1}),
    "an unknown type": raw_weights({"a": {**TENSOR, "dtype": "F7"}}, b"\0" * 8),
    "a negative shape": raw_weights({"a": {**TENSOR, "shape": [-2]}}, b"\0" * 8),
    "a shape of words": raw_weights({"a": {**TENSOR, "shape": ["2"]}}, b"\0" * 8),
    "a huge shape": raw_weights({"a": {**TENSOR, "shape": [1 << 40, 1 << 40]}}, b"\0" * 8),
    "huge, and empty": raw_weights(
        {"a": {**TENSOR, "shape": [1 << 62, 0], "data_offsets": [0, 0]}}
    ),
    "offsets beyond the file": raw_weights({"a": {**TENSOR, "data_offsets": [0, 1 << 40]}}),
    "offsets that go back": raw_weights({"a": {**TENSOR, "data_offsets": [8, 0]}}, b"\0" * 8),
    "two on one place": raw_weights({"a": TENSOR, "b": TENSOR}, b"\0" * 8),
    "a gap": raw_weights({"a": {**TENSOR, "data_offsets": [8, 16]}}, b"\0" * 16),
    "a long header": raw_weights(b" " * (3 << 20) + b"{}"),
    "thousands of names": raw_weights(
        {str(i): {**TENSOR, "shape": [0], "data_offsets": [0, 0]} for i in range(20_000)}
    ),
}


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize("kind", RAW)
def test_weights_that_are_none(kind: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    (folder / "weights.safetensors").write_bytes(RAW[kind])
    refused(sealed(folder))


Tensors = dict[str, torch.Tensor]
VECTORS, SCALES = "words.embedding.weight", "words.embedding.scales"
CHANGED: dict[str, Callable[[Tensors], object]] = {
    "one missing": lambda found: found.pop("scale"),
    "a name for the terminal": lambda found: found.update({"\x1b[2J\na": torch.zeros(3)}),
    "one too many": lambda found: found.update(extra=torch.zeros(3)),
    "another shape": lambda found: found.update(log_weights=torch.zeros(12)),
    "transposed": lambda found: found.update({VECTORS: found[VECTORS].T.contiguous()}),
    "no number": lambda found: found["log_weights"].fill_(float("nan")),
    "one that is no number": lambda found: found[VECTORS][7, 3].fill_(float("nan")),
    "infinite": lambda found: found["scale"].fill_(float("inf")),
    "both infinities": lambda found: found["log_weights"].copy_(
        torch.tensor([float("inf"), float("-inf"), *[0.0] * 9])
    ),
    "whole numbers": lambda found: found.update(log_weights=torch.zeros(11, dtype=torch.int64)),
    "truth values": lambda found: found.update(log_weights=torch.zeros(11, dtype=torch.bool)),
    "complex": lambda found: found.update(log_weights=torch.zeros(11, dtype=torch.complex64)),
    "infinite in float32": lambda found: found.update(
        log_weights=torch.full((11,), 1e300, dtype=torch.float64)
    ),
    "int8 without scales": lambda found: found.update({VECTORS: found[VECTORS].to(torch.int8)}),
    "scales of another length": lambda found: found.update({SCALES: torch.ones(3)}),
    "scales too large": lambda found: found.update(
        {VECTORS: torch.full((20, 12), 127, dtype=torch.int8), SCALES: torch.full((20,), 3e38)}
    ),
    "scales that are no numbers": lambda found: found.update(
        {
            VECTORS: torch.zeros((20, 12), dtype=torch.int8),
            SCALES: torch.full((20,), float("nan")),
        }
    ),
    "a word's rarity is no number": lambda found: found["words.idf"][3].fill_(float("nan")),
    "n-grams where there are none": lambda found: found.update(
        {"words.ngrams": torch.tensor([5, 3, 4])}
    ),
}


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize("kind", CHANGED)
def test_weights_of_another_model(kind: str, tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    tensors = load_file(folder / "weights.safetensors")
    CHANGED[kind](tensors)
    save_file(tensors, folder / "weights.safetensors")
    refused(sealed(folder))


INNER = "encoder.layers.0.feed_forward.inner"
SCALED: dict[str, Callable[[Tensors], object]] = {
    "without numbers": lambda found: found.pop(f"{INNER}.weight"),
    "beside floats": lambda found: found.update(
        {f"{INNER}.weight": found[f"{INNER}.weight"].float()}
    ),
    "of another length": lambda found: found.update({f"{INNER}.scales": torch.ones(2)}),
    "of another type": lambda found: found.update(
        {f"{INNER}.scales": found[f"{INNER}.scales"].half()}
    ),
    "none": lambda found: found.pop(f"{INNER}.scales"),
    "no numbers": lambda found: found[f"{INNER}.scales"].fill_(float("nan")),
    "too large": lambda found: found[f"{INNER}.scales"].fill_(9e11),
    "of nothing": lambda found: found.update({"encoder.scales": torch.ones(2)}),
}


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize("kind", SCALED)
def test_scales_of_layers_that_lie(kind: str, tmp_path: Path) -> None:
    folder = copied(piece_model, tmp_path / "model", "kernel_bert", "int8")
    tensors = load_file(folder / "weights.safetensors")
    SCALED[kind](tensors)
    save_file(tensors, folder / "weights.safetensors")
    refused(sealed(folder))


SUBWORDS: dict[str, tuple[str, object]] = {
    "offsets that fall": ("offsets", [0, 6, 3, *range(9, 61, 3)]),
    "offsets below zero": ("offsets", [-3, *range(3, 61, 3)]),
    "offsets beyond the rows": ("offsets", [*range(0, 58, 3), 10**12]),
    "offsets short of the rows": ("offsets", [*range(0, 58, 3), 57]),
    "too few offsets": ("offsets", list(range(0, 58, 3))),
    "no offset": ("offsets", []),
    "rows beyond the table": ("rows", [25] * 60),
    "rows below zero": ("rows", [-1] * 60),
    "more n-grams than rows": ("ngrams", [26, 3, 4]),
    "fewer n-grams than zero": ("ngrams", [-1, 3, 4]),
    "longest before shortest": ("ngrams", [5, 4, 3]),
    "n-grams of no letter": ("ngrams", [5, 0, 4]),
    "n-grams without end": ("ngrams", [5, 1, HUGE]),
    "two numbers": ("ngrams", [5, 3]),
}


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize("kind", SUBWORDS)
def test_subwords_out_of_bounds(kind: str, tmp_path: Path) -> None:
    folder = copied(subword_model, tmp_path / "model")
    tensors = load_file(folder / "weights.safetensors")
    name, values = SUBWORDS[kind]
    tensors[f"words.{name}"] = torch.from_numpy(np.array(values, np.int64))
    save_file(tensors, folder / "weights.safetensors")
    refused(sealed(folder))


# What vocabulary.txt holds


def _lines(*words: str) -> bytes:
    return "".join(f"{word}\n" for word in words).encode("utf-8", "surrogatepass")


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        _lines(*WORDS[2:]),
        _lines(*WORDS, "one more"),
        _lines(*WORDS[:-1], WORDS[3]),
        _lines(*WORDS)[:-1],
        _lines(*WORDS[:-1], "\udc80"),
        b"\xff" + _lines(*WORDS),
        _lines(*PIECES),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("make", [word_model, subword_model])
def test_words_that_are_not_the_models(
    content: bytes, make: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copied(make, tmp_path / "model")
    (folder / "vocabulary.txt").write_bytes(content)
    refused(sealed(folder))


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
@pytest.mark.parametrize(
    "content",
    [b"", _lines(*PIECES, "more"), _lines("x", *PIECES[1:]), _lines(*WORDS), _lines(*PIECES[:3])],
    ids=["empty", "one more", "no padding", "words", "no unknown piece"],
)
@pytest.mark.parametrize("name", ["bert", "mores"])
def test_pieces_that_are_not_the_models(name: str, content: bytes, tmp_path: Path) -> None:
    folder = copied(piece_model, tmp_path / "model", name)
    (folder / "vocabulary.txt").write_bytes(content)
    refused(sealed(folder))


# Ensembles

MEMBERS = (
    *(["..", "0"], ["."], [""], ["/etc"], ["0/../0"], ["0/"], ["0", "0"], [], "0", ["0\0"], [0]),
    *(["../model/0"], [["0"]], None, {"0": 1}, ["nowhere"], ["-"] * 10**6, ["config.json"]),
)


@pytest.mark.tried("Files", "links, pipes and endless files in a model folder", "not opened")
@pytest.mark.parametrize("members", MEMBERS, ids=lambda v: str(v)[:40])
def test_members_are_folders_inside(members: object, tmp_path: Path) -> None:
    folder = copied(ensemble, tmp_path / "model")
    edit_config(folder, _set("members", value=members))
    refused(sealed(folder))


@pytest.mark.tried("Files", "links, pipes and endless files in a model folder", "not opened")
def test_a_member_is_not_a_link(tmp_path: Path) -> None:
    folder = copied(ensemble, tmp_path / "model")
    (folder / "0").rename(tmp_path / "elsewhere")
    (folder / "0").symlink_to(tmp_path / "elsewhere")
    refused(folder)
    (folder / "0").unlink()
    (folder / "0").symlink_to(".")  # itself
    refused(folder)


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
def test_an_ensemble_in_an_ensemble_is_refused(tmp_path: Path) -> None:
    folder = copied(ensemble, tmp_path / "model")
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder / "0")
    (tmp_path / "copy").rename(folder / "0")
    refused(sealed(folder))


@pytest.mark.tried(
    "Files", "a model folder whose settings, weights or words lie", "refused in one sentence"
)
def test_lengths_that_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """An ensemble tries its members' lengths when it is opened."""
    folder = copied(ensemble, tmp_path / "model")
    edit_config(folder / "0", _set("usage", "doc_length", value=100_000))
    sealed(folder / "0")
    outcome(folder)  # either way, without gigabytes


# What loading does besides


def test_nothing_is_written_by_loading(tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    for path in [*folder.iterdir(), folder, tmp_path]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    load_model(folder)
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before
    for path in [tmp_path, folder]:
        path.chmod(0o755)


def test_a_folder_without_a_manifest_says_how_to_add_one(tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    whole = outcome(folder)
    (folder / "checksums.json").unlink()
    assert f"python -m glassrank.models.seal {folder}" in refused(folder)
    seal_model(folder)
    assert outcome(folder) == whole


def test_what_cannot_be_opened_is_not_sealed(tmp_path: Path) -> None:
    folder = copied(word_model, tmp_path / "model")
    (folder / "checksums.json").unlink()
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stored, "words": [20, 13]}))
    with pytest.raises(GlassrankError, match="words"):
        seal_model(folder)
    assert not (folder / "checksums.json").exists()
