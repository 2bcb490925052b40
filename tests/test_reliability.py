"""The page of faults is what tests reported, added up."""

from pathlib import Path

import pytest
from reliability import Recorder, page, write_page


def test_reports_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    for _ in range(2):  # as two processes do
        record = Recorder(str(path))
        record("Readers", "a gzip bomb", "refused", tries=3)
        record("Files", "SIGKILL", "the old state or the new")
    write_page(path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| a gzip bomb | 6 | refused |" in text
    assert text.index("## Files") < text.index("| SIGKILL | 2 |") < text.index("## Readers")
    assert "## Service" not in text


def test_a_report_says_what_it_is_about() -> None:
    with pytest.raises(AssertionError, match="unknown area"):
        Recorder(None)("Elsewhere", "x", "y")
    with pytest.raises(AssertionError, match="nothing was tried"):
        Recorder(None)("Files", "x", "y", tries=0)
    Recorder(None)("Files", "x", "y")  # kept nowhere
    assert page([]).startswith("# What was tried")
