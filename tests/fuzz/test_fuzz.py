"""Some spoilt files for everything that opens one; `benchmarks/fuzz.py` goes on for longer.

What fails is printed by hypothesis as a seed: `spoilt(sound, Random(seed))` is the file.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from fuzz_targets import FILES, FOLDERS, spoilt
from hypothesis import given, settings
from hypothesis import strategies as st
from reliability import Recorder

ENDS = "read, or refused in one sentence"
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=40, derandomize=True)
"""The same files every time: `benchmarks/fuzz.py` looks for new ones, for as long as it is told."""


@pytest.fixture(scope="module", autouse=True)
def without_waiting() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", FILES)
def test_a_sound_file_is_read(tmp_path: Path, name: str) -> None:
    """Otherwise nothing below would be worth much."""
    (tmp_path / "config.json").write_text("{}")  # of a sentence transformer
    assert FILES[name].attempt(tmp_path, FILES[name].sound) == "read"


@pytest.mark.parametrize("name", FILES)
def test_a_spoilt_file_is_read_or_refused(tmp_path: Path, name: str, reliability: Recorder) -> None:
    (tmp_path / "config.json").write_text("{}")
    ends = []

    @few
    @given(seed=seeds)
    def attempts(seed: int) -> None:
        ends.append(FILES[name].attempt(tmp_path, spoilt(FILES[name].sound, Random(seed))))

    attempts()
    reliability("Readers", f"spoilt files: {name.partition(',')[0]}", ENDS, len(ends))


@pytest.mark.parametrize("name", FILES)
def test_any_bytes_are_read_or_refused(tmp_path: Path, name: str, reliability: Recorder) -> None:
    (tmp_path / "config.json").write_text("{}")
    ends = []

    @few
    @given(content=st.binary(max_size=400))
    def attempts(content: bytes) -> None:
        ends.append(FILES[name].attempt(tmp_path, content))

    attempts()
    reliability("Readers", f"any bytes: {name.partition(',')[0]}", ENDS, len(ends))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_spoilt_folder_is_used_or_refused(
    tmp_path: Path, name: str, reliability: Recorder
) -> None:
    target, made = FOLDERS[name], tmp_path / "made"
    target.make(made)
    target.use(made)
    names = target.files(made)
    ends = []

    @few
    @given(seed=seeds)
    def attempts(seed: int) -> None:
        chance = Random(seed)
        path = chance.choice(names)
        content = spoilt((made / path).read_bytes(), chance)
        ends.append(target.attempt(made, tmp_path / "work", path, content))

    attempts()
    reliability("Files", f"a spoilt file in a folder: {name}", ENDS, len(ends))
