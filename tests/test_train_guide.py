"""docs/guides/train.md from beginning to end: files written, commands run, outputs compared."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from glassrank.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "train.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
NUMBER = re.compile(r"\d+\.\d+")
TOLERANCE = 0.02
"""Of what was trained, between processors: last digits of sums differ, and steps add up."""


def check_output(shown: str, printed: str) -> None:
    """Words as they are, fractions nearly so; `…` stands for anything."""
    lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    pattern = re.escape(NUMBER.sub("NUMBER", shown.strip("\n"))).replace("…", ".*")
    match = re.fullmatch(pattern.replace("NUMBER", r"(\d+\.\d+)"), lines, re.DOTALL)
    assert match, f"the page shows\n{shown}\nthe command printed\n{lines}"
    expected = [float(number) for number in NUMBER.findall(shown)]
    assert [float(number) for number in match.groups()] == pytest.approx(expected, abs=TOLERANCE)


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(line)
    if program == "python":
        runpy.run_path(arguments[0], run_name="__main__")
    elif program == "glassrank":
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, line
    else:
        assert line == "export PYTHONPATH=."
        monkeypatch.syspath_prepend(Path.cwd())


@pytest.mark.slow
def test_the_page_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "soft_tf", raising=False)
    printed = ""
    for language, block in BLOCKS:
        name = FILE.match(block)
        if name:
            (tmp_path / name[1]).write_text(block)
        elif language == "sh":
            for line in block.splitlines():
                run_line(line, monkeypatch)
                out, said = capfd.readouterr()
                printed = out or said  # results, or what was said on the way
        else:
            assert language == "text"
            check_output(block, printed)


def test_another_output_would_be_noticed() -> None:
    check_output("a 1.50 … c\n", "a 1.51 b\n c \n")
    for other in ("a 1.53 b c\n", "x 1.50 b c\n", "a 1.50 b d\n"):
        with pytest.raises(AssertionError):
            check_output("a 1.50 … c\n", other)
