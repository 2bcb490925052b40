"""What glassrank is made with: allowed licences, a bill of materials, and no network."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from reliability import Recorder

from glassrank.models.io.model_folder import PACKAGED

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))

supply = pytest.importorskip("supply", reason="packaging is not there")


def test_every_installed_licence_is_allowed() -> None:
    refused = {
        package.metadata["Name"]: supply.licence(package)
        for package in supply.installed()
        if not supply.is_allowed(package.metadata["Name"], supply.licence(package))
    }
    assert refused == {}


@pytest.mark.parametrize(
    ("name", "expression", "allowed"),
    [
        ("numpy", "BSD-3-Clause AND 0BSD AND (MIT OR Apache-2.0)", True),
        ("llvmlite", "Apache-2.0 WITH LLVM-exception", True),
        ("gensim", "LGPL-2.1-only", True),
        ("psycopg", "LGPL-3.0-only", True),
        ("nvidia-cublas", "LicenseRef-NVIDIA-Proprietary", True),
        ("another", "LicenseRef-NVIDIA-Proprietary", False),
        ("another", "LGPL-2.1-only", False),
        ("another", "MIT OR GPL-3.0-only", False),
        ("another", "AGPL-3.0-or-later", False),
        ("another", "Proprietary", False),
        ("another", "mit", False),
        ("another", "", False),
        ("another", "AND", False),
    ],
)
def test_what_is_not_known_is_not_allowed(name: str, expression: str, allowed: bool) -> None:
    assert supply.is_allowed(name, expression) == allowed


def test_the_bill_of_materials_names_all_that_is_needed() -> None:
    bill = supply.sbom()
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    found = {one["name"]: one for one in bill["components"]}
    project = (ROOT / "pyproject.toml").read_text()
    direct = re.findall(r'^    "([\w-]+)', project.split("dependencies = [")[1].split("]")[0], re.M)
    assert direct
    for name in direct:
        assert found[name]["scope"] == "required", name
    assert found["starlette"]["scope"] == "required"  # of fastapi
    assert "pytest" not in found
    references = {one["bom-ref"] for one in bill["components"]}
    assert len(references) == len(bill["components"])
    ours = bill["metadata"]["component"]["bom-ref"]
    for row in bill["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= references | {ours}
    for one in bill["components"]:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert supply.is_allowed(one["name"], one["licenses"][0]["expression"])


@pytest.mark.slow
def test_the_wheel_comes_with_its_bill(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("glassrank", "benchmarks", "scripts"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    environment = {**os.environ, "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    subprocess.run(["scripts/wheel"], cwd=copy, env=environment, check=True, capture_output=True)
    (wheel,), (bill,) = copy.glob("dist/*.whl"), copy.glob("dist/*.cdx.json")
    hashes = json.loads(bill.read_text())["metadata"]["component"]["hashes"]
    assert hashes[0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(tmp_path / "installed")
    ours = ("glassrank/", "glassrank_bench/", "glassrank-")
    assert all(name.startswith(ours) for name in names)
    for model in PACKAGED:
        assert f"glassrank/models/packaged/{model}/weights.safetensors" in names
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([["bench", "--only", "none"]])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done.stderr
    assert "known are fused, stored, live" in done.stderr  # the cases came with the wheel


def test_uvicorn_is_as_new_as_the_service_needs() -> None:
    """0.37 is the first whose supervisor can be told how long a worker may be silent."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = (need for need in project["dependencies"] if need.startswith("uvicorn"))
    assert SpecifierSet(needed.removeprefix("uvicorn")).contains("0.37.0")
    assert not SpecifierSet(needed.removeprefix("uvicorn")).contains("0.36.9")


WATCH = """
import json, sys

def watch(event, arguments):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        raise SystemExit(f"the network was asked for: {event} {arguments}")

sys.addaudithook(watch)
"""
RUN = """
import json, sys
from glassrank.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["glassrank", *command]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""
COMMANDS = (
    ("index", "docs.tsv", "--out", "my.index", "--model", "default"),
    ("search", "my.index", "cat", "--model", "default"),
    ("search", "my.index", "cat", "--method", "ql+rm3"),
    ("explain", "my.index", "cat", "a", "b"),
)


@pytest.mark.long
def test_nothing_asks_for_the_network(tmp_path: Path, reliability: Recorder) -> None:
    """Python's own calls are watched, and, where this machine allows it, the commands have a
    network of their own that leads nowhere."""
    (tmp_path / "docs.tsv").write_text("a\tThe cat sat on the mat.\nb\tCats chase mice.\n")
    hub = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "0")  # no help from outside
    cut_off = ["unshare", "--map-root-user", "--net"]
    usable = shutil.which("unshare") and not subprocess.run([*cut_off, "true"]).returncode
    python = [*(cut_off if usable else ()), sys.executable]
    done = subprocess.run(
        [*python, "-c", WATCH + RUN, json.dumps(COMMANDS)],
        cwd=tmp_path,
        env={**os.environ, **hub, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "mat" in done.stdout
    reliability("Supply", "commands with the network cut off", "done", tries=len(COMMANDS))


def test_the_watch_sees_a_connection() -> None:
    """Otherwise the test above could not fail."""
    asks = WATCH + "import socket; socket.create_connection(('127.0.0.1', 9))"
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True)
    assert "the network was asked for" in done.stderr


def test_extras_that_are_named_exist() -> None:
    """In messages, in tests and in what people read."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [
        path
        for folder in ("glassrank", "tests", "benchmarks", "docs", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".js", "") and path.is_file()
    ]
    named = {
        (extra.strip(), path.name)
        for path in [*files, *ROOT.glob("*.md")]
        for extras in re.findall(r"(?:glassrank|\.)\[([a-z, ]+)\]['\"]", path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert {extra for extra, _ in named} >= {"hub"}
    assert {(extra, file) for extra, file in named if extra not in known} == set()
