"""Any value in the place of any other in a config, any bytes in any file: a model or a sentence."""

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from model_cases import SMALL
from model_folders import KINDS, outcome, word_model
from safetensors.numpy import load_file, save_file
from test_hostile_models import sealed

NASTY = (
    *(None, True, False, 0, 1, 2, 3, -1, 7, 64, 1000, 65_536, 65_537, 10**6, 2**31, 2**63, 10**40),
    *(
        0.0,
        -1.0,
        0.5,
        1e-30,
        1e30,
        1e308,
        "",
        "x",
        "tk",
        "ensemble",
        "s2",
        "\x1b[2J\n",
        "../..",
        "0",
    ),
    *([], [0], [1, 2], [[1, 2]], [0.1] * 12, ["0"], {}, {"a": 1}, "x" * 5000, [1] * 2000),
)


def places(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All keys and positions in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inside:
        found.append((*before, key))
        if isinstance(item, dict | list):
            found += places(item, (*before, key))
    return found


def changed(stored: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(stored))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        *path, last = rng.choice(places(copy))
        holder: Any = copy
        for key in path:
            holder = holder[key]
        if rng.random() < 0.1:
            del holder[last]
        else:
            holder[last] = deepcopy(rng.choice(NASTY))
        if not copy:
            break
    return copy


def fuzz(folder: Path, seed: int, tries: int) -> int:
    """How many of these many folders still loaded; anything but a model or a sentence raises."""
    rng = random.Random(seed)
    stored = json.loads((folder / "config.json").read_text())
    files = {p: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    loaded = 0
    for _ in range(tries):
        if rng.random() < 0.8:
            (folder / "config.json").write_text(json.dumps(changed(stored, rng)))
        else:
            path = rng.choice([p for p in files if p.name != "checksums.json"])
            content = bytearray(files[path])
            for _ in range(rng.choice((1, 10, 100))):
                content[rng.randrange(len(content))] = rng.randrange(256)
            path.write_bytes(content)
        said = outcome(sealed(folder))
        assert said.isprintable()
        loaded += str(folder) not in said
        for path, content in files.items():
            path.write_bytes(content)
    return loaded


@pytest.mark.tried(
    "Files",
    "random values in a model folder, sealed again",
    "a model, or refused in one sentence",
    tries=12,
)
@pytest.mark.parametrize("name", sorted({*SMALL, *KINDS} - {"words"}))
def test_a_model_or_a_sentence(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    KINDS[name](folder) if name in KINDS else word_model(folder, name)
    assert fuzz(folder, seed=0, tries=12) < 12


@pytest.mark.tried(
    "Files",
    "random values in a model folder, sealed again",
    "a model, or refused in one sentence",
    tries=1000,
)
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*SMALL, *KINDS} - {"words"}))
def test_a_model_or_a_sentence_many_times(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    KINDS[name](folder) if name in KINDS else word_model(folder, name)
    assert fuzz(folder, seed=1, tries=1000) < 1000


def test_weights_that_are_far_too_large_are_refused_by_both(tmp_path: Path) -> None:
    """What a layer makes of them depends on who computes it."""
    folder = tmp_path / "model"
    KINDS["kernel_bert"](folder)
    weights = load_file(folder / "weights.safetensors")
    name = next(name for name in weights if name.endswith("inner.weight"))
    weights[name] = weights[name].copy()
    weights[name][0, 0] = 7e28
    save_file(weights, folder / "weights.safetensors")
    assert "not all finite numbers, or far too large" in outcome(sealed(folder))
