"""A model folder that is not as it was saved is named in one sentence, and never another model."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from model_folders import KINDS, outcome, word_model
from reliability import Recorder

from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import PACKAGED

Damage = Callable[[bytes, random.Random], bytes]


def _flip(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    place, length = rng.randrange(len(content)), rng.randrange(1, 64)
    zeroed = content[:place] + b"\0" * length + content[place + length :]
    return zeroed[: len(content)] if zeroed[: len(content)] != content else _flip(content, rng)


DAMAGES: dict[str, Damage] = {
    "flipped": _flip,
    "zeroed": _zeros,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "emptied": lambda content, rng: b"",
    "longer": lambda content, rng: content + bytes([rng.randrange(256)]),
    "a line missing": lambda content, rng: content.partition(b"\n")[2],
    "doubled": lambda content, rng: content + content,
}


def files_of(folder: Path) -> list[Path]:
    """All but the card, which is a text for people and may be edited."""
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "card.md"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_every_damage_is_named(kind: str, tmp_path: Path, reliability: Recorder) -> None:
    folder = KINDS[kind](tmp_path / "model")
    whole = outcome(folder)
    assert len(whole) == 32
    rng = random.Random(kind)
    tried = 0
    for path in files_of(folder):
        content = path.read_bytes()
        for name, damage in DAMAGES.items():
            for _ in range(5 if name in ("flipped", "cut", "zeroed") else 1):
                path.write_bytes(damage(content, rng))
                said = outcome(folder)
                assert str(folder) in said, f"{path.name} {name}: {said}"
                tried += 1
        path.unlink()
        assert str(folder) in outcome(folder), f"{path.name} removed"
        path.write_bytes(content)
    assert tried >= 70
    assert outcome(folder) == whole
    reliability("Files", "a file of a model damaged", "refused, the folder named", tried)


def test_files_of_two_models_are_no_model(tmp_path: Path) -> None:
    one, other = word_model(tmp_path / "one"), word_model(tmp_path / "other", seed=1)
    for name in ("weights.safetensors", "checksums.json"):  # the others are the same in both
        shutil.copy(other / name, one / name)
        assert str(one) in outcome(one)
        shutil.rmtree(one)
        word_model(one)


def test_the_card_may_be_edited(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "model")
    whole = outcome(folder)
    (folder / "card.md").write_text("# better words\n")
    assert outcome(folder) == whole


@pytest.mark.parametrize(
    ("name", "layers"), [("strong", 12), ("default", 6), ("fast", 2), ("tiny", 2)]
)
def test_a_model_in_the_package_is_as_it_was_made(name: str, layers: int) -> None:
    saved = load_model(PACKAGED[name])
    assert len(saved.vocabulary) == 30_522
    assert saved.model.config.encoder.layers == layers


def test_the_models_in_the_package_have_at_most_80_megabytes() -> None:
    files = [file for folder in PACKAGED.values() for file in folder.iterdir()]
    assert sum(file.stat().st_size for file in files) < 80e6
