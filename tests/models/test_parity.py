"""Every model of the shared parity folder, compared with what its authors' code computes."""

from pathlib import Path

import pytest

from tests.parity.__main__ import LIMIT, _kind, differences, main

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "parity"
FILES = sorted(FOLDER.glob("*.safetensors"))
COMPARED = [path for path in FILES if _kind(path)]


@pytest.mark.data
@pytest.mark.skipif(not FILES, reason="shared/parity is not there")
@pytest.mark.parametrize("path", COMPARED, ids=lambda path: path.stem)
def test_as_the_authors_code_computes(path: Path) -> None:
    assert max(dict(differences(path)).values()) <= LIMIT


def test_an_empty_folder_is_no_success(tmp_path: Path) -> None:
    assert main(tmp_path) == 2
