"""The Dockerfile: what a linter says, and its steps run one after another, as a stranger's."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STRANGER = 10001


def instructions() -> list[tuple[str, str]]:
    """Name and rest of each, with lines joined that belong together."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


def test_a_linter_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if not hadolint:
        pytest.skip(
            "hadolint is not there: its licence, GPL-3.0, keeps it out of what is installed"
        )
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_runs_as_nobody_in_particular_and_tells_its_health() -> None:
    last = dict(instructions())
    assert last["USER"] == f"{STRANGER}:{STRANGER}" and "/healthz" in last["HEALTHCHECK"]
    assert sum(name == "FROM" for name, _ in instructions()) == 2, "what builds is left behind"


def python_of_all() -> str:
    """One that a stranger can start, too, and that can make environments."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        code = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
        try:
            done = subprocess.run([python, "-c", code], user=STRANGER, cwd="/", capture_output=True)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip("no Python 3.11 here can be started by everybody")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "setuid") or os.getuid() != 0, reason="needs root")
def test_its_steps_make_a_service_for_somebody_without_a_home(tmp_path: Path) -> None:
    """In folders instead of images: /src and /opt/glassrank lie below a temporary one, and who
    serves may write to none of it."""
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:  # pytest's own can be entered by whoever made them, only
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    python = python_of_all()
    source, installed = tmp_path / "src", tmp_path / "glassrank"
    source.mkdir()
    serving = False
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *files, target = rest.split()
            for file in files:
                one = ROOT / file
                if one.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(one, source / target, ignore=ignored)
                else:
                    shutil.copy(one, source / target)
        elif name == "RUN":
            command = rest.replace("/opt/glassrank", str(installed))
            command = command.replace("python -m venv", f"{python} -m venv")
            subprocess.run(command, shell=True, cwd=source, check=True, timeout=900)
        serving |= name == "USER"
    assert serving
    glassrank = [str(installed / "bin" / "glassrank")]
    data = tmp_path / "data"
    data.mkdir()
    (data / "docs.jsonl").write_text('{"id": "a", "text": "a cat sat"}\n{"id": "b", "text": "dog"}')
    index = ["index", str(data / "docs.jsonl"), "--out", str(data / "docs.index")]
    subprocess.run([*glassrank, *index], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    os.chown(temporary, STRANGER, STRANGER)
    service = subprocess.Popen(
        [*glassrank, "serve", str(data / "docs.index"), "--port", str(port), "--quiet"],
        user=STRANGER, group=STRANGER, extra_groups=[], cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(temporary)},
    )  # fmt: skip
    try:
        check = json.loads(dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])
        check = [str(installed / "bin" / "python"), *check[1:]]
        check[-1] = check[-1].replace(":8000", f":{port}")
        deadline = time.monotonic() + 120
        while subprocess.run(check, capture_output=True).returncode:
            assert service.poll() is None and time.monotonic() < deadline
            time.sleep(0.5)
        asked = json.dumps({"query": "cat", "budget_ms": 5000}).encode()
        code = (
            "import sys, urllib.request as u; print(u.urlopen(u.Request("
            f"'http://127.0.0.1:{port}/search', {asked!r}, "
            "{'content-type': 'application/json'}), timeout=60).read().decode())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["hits"][0]["doc_id"] == "a"
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(30)
