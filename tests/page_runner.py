"""Runs the blocks of a Markdown page in order, in one folder: files are written, Python and
commands run, and the output that the page shows is compared with what was printed."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from glassrank.cli import main

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
_NUMBER = re.compile(r"-?\d+\.\d+")
TOLERANCE = 0.02
"""Of printed fractions: processors differ in the last digits."""

NOT_RUN = {
    "pip install": "installs from the network",
    "./scripts/": "makes an environment from the network; test_scripts.py runs its parts",
    "git push": "writes to a repository",
    "--ray": "needs a cluster; tests/cluster runs these commands",
    "--device cuda": "needs a GPU, and mostly a collection",
    "configs/": "needs a collection, and mostly a GPU",
    "glassrank learn": "needs a collection; tests/research/learn has one",
    "glassrank judge": "waits for keys; tests/cli/test_judge_command.py presses some",
    "../shared/": "needs a collection",
    "$DL": "needs a collection",
    "org/name": "needs the hub; tests/models/test_hub.py has one of its own",
}
"""Commands that contain one of these are not run, only parsed, and why."""


def read_blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return _BLOCK.findall(page.read_text("utf-8"))


def split_commands(block: str) -> list[str]:
    """The commands of a shell block, without comments."""
    joined = block.replace("\\\n", " ").splitlines()
    lines = (shlex.join(shlex.split(line, comments=True)) for line in joined)
    return [line for line in lines if line]


def find_reason(line: str) -> str | None:
    """Why a command is not run, or None if it is."""
    plain = " ".join(shlex.split(line))
    return next((why for part, why in NOT_RUN.items() if part in plain), None)


def check_output(shown: str, printed: str) -> None:
    """Compares words as they are, fractions nearly; `…` stands for anything."""
    lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    pattern = re.escape(_NUMBER.sub("NUMBER", shown.strip("\n"))).replace("…", ".*")
    match = re.fullmatch(pattern.replace("NUMBER", r"(-?\d+\.\d+)"), lines, re.DOTALL)
    assert match, f"the page shows\n{shown}\nthe command printed\n{lines}"
    expected = [float(number) for number in _NUMBER.findall(shown)]
    assert [float(number) for number in match.groups()] == pytest.approx(expected, abs=TOLERANCE)


class PageRunner:
    """Runs one page in the current folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.names: dict[str, Any] = {}
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def run(self, page: Path) -> None:
        printed = ""
        for language, block in read_blocks(page):
            name = _FILE.match(block)
            if name:
                Path(name[1]).write_text(block)
            elif language == "sh":
                printed = self.run_commands(block) or printed
            elif language == "python":
                # Nothing is cut short on a busy machine.
                exec(re.sub(r"budget_ms=\d+", "budget_ms=60_000", block), self.names)
                printed = self._capfd.readouterr().out
            elif language == "text" and printed:
                check_output(block, printed)

    def run_commands(self, block: str) -> str:
        printed = ""
        with ExitStack() as stack:
            address = ""
            for line in split_commands(block):
                if find_reason(line):
                    continue
                if line.startswith("glassrank serve "):
                    address = stack.enter_context(start_server(line))
                elif line.startswith("curl "):
                    ask_server(line, address)
                else:
                    self._run_line(line)
                    out, said = self._capfd.readouterr()
                    printed = out or said  # results, or else messages
        return printed

    def _run_line(self, line: str) -> None:
        program, *arguments = shlex.split(line)
        if line == "export PYTHONPATH=.":
            self._monkeypatch.syspath_prepend(Path.cwd())
        elif program == "python":
            subprocess.run([sys.executable, *arguments], check=True, timeout=300)
        else:
            assert program == "glassrank", line
            self._monkeypatch.setattr(sys, "argv", [program, *arguments])
            before = signal.getsignal(signal.SIGINT)
            try:
                main()
            except SystemExit as ended:
                assert not ended.code, f"{line}\n{self._capfd.readouterr().err}"
            finally:
                signal.signal(signal.SIGINT, before)


@contextmanager
def start_server(line: str) -> Iterator[str]:
    """Runs `glassrank serve …` on a free port, and ends it as Ctrl-C does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", *shlex.split(line), "--port", str(port)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = f"127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while True:
            assert server.poll() is None, server.stderr.read() if server.stderr else ""
            assert time.monotonic() < until, "the service does not start"
            try:
                urllib.request.urlopen(f"http://{address}/readyz", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


def ask_server(line: str, address: str) -> None:
    """Runs `curl …` against the server of the same block."""
    assert address, f"{line} needs a server in its block"
    if shutil.which("curl") is None:
        pytest.skip("curl is not there")
    command = shlex.split(line.replace("localhost:8000", address))
    done = subprocess.run(
        [*command, "--fail-with-body", "--silent"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "no_proxy": "*"},
    )  # fmt: skip
    assert done.returncode == 0 and '"' in done.stdout, done.stdout + done.stderr
