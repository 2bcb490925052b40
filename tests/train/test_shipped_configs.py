"""The configs that come with the project: each one says what it means to say."""

from pathlib import Path

import pytest

from glassrank.train.config import read_config

CONFIGS = Path(__file__).parents[2] / "configs"
WHOLE = [path for path in sorted(CONFIGS.rglob("*.toml")) if "\nout = " in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_it_is_valid(path: Path) -> None:
    config = read_config(path)
    assert config.collections and config.out and config.prepared


def test_there_are_some() -> None:
    assert len(WHOLE) > 15


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_what_it_begins_with_is_made_by_another(path: Path) -> None:
    """A model that a config begins with or learns from is the result of a config that is here."""
    config = read_config(path)
    made = {(other.parent / read_config(other).out).resolve() / "best" for other in WHOLE}
    for needed in (config.start.model, config.candidates.teacher):
        if needed is not None and needed.startswith("../../runs/"):
            assert (path.parent / needed).resolve() in made
