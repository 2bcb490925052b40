"""Writes constraints.txt anew: every pinned package, the extras that need it, and its hashes.

    python scripts/lock.py        # needs uv: pip install uv

Change a version, or add a line `name==version`, then run this. `scripts/requirements EXTRA` prints
what an extra installs; pip then takes only files with these hashes. PyTorch is pinned without any:
which of its builds (CPU, CUDA) is right depends on the machine.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints.txt"
HEADER = """\
# What glassrank is tested with; `python scripts/lock.py` writes this file.
# Above each package stand the extras that need it; `base` is glassrank itself, `build` makes it.
"""
WITHOUT_HASHES = {"torch"}
NOT_LOCKED = {"bench"}
"""PyLate needs older versions than the rest is tested with."""
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)([^\\\n]*)")


def compile_pins(source: Path, *options: str) -> str:
    """uv's resolution of a file, for every system, Python 3.11 and newer."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += ["--python-version", "3.11.7", "--no-header", "--no-annotate", str(source), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {done.stderr.strip() or 'uv is missing; pip install uv'}")
    return done.stdout


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_markers(resolution: str) -> dict[str, str]:
    """Each package, and on which systems it is needed (` ; sys_platform == 'win32'`)."""
    pins = map(_PIN.match, resolution.splitlines())
    return {normalize(pin[1]): pin[3].rstrip() for pin in pins if pin}


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pins = [f"{pin[1]}=={pin[2]}" for pin in map(_PIN.match, FILE.read_text().splitlines()) if pin]
    with tempfile.TemporaryDirectory() as folder:
        pinned, build = Path(folder, "pins.in"), Path(folder, "build.in")
        pinned.write_text("\n".join(pins))
        build.write_text("\n".join(project["build-system"]["requires"]))
        limits = ("--constraint", str(pinned))
        needs = {"build": read_markers(compile_pins(build, *limits))}
        extras = set(project["project"]["optional-dependencies"]) - NOT_LOCKED
        for extra in ("base", *sorted(extras)):
            chosen = () if extra == "base" else ("--extra", extra)
            needs[extra] = read_markers(compile_pins(ROOT / "pyproject.toml", *limits, *chosen))
        hashed = compile_pins(pinned, "--no-deps", "--generate-hashes")
    everywhere = {name for name, marker in needs["base"].items() if not marker}
    unpinned = everywhere - read_markers(hashed).keys()
    if unpinned:
        sys.exit(f"error: add a line name==version for {', '.join(sorted(unpinned))}")
    blocks = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", hashed.strip()):
        pin = _PIN.match(block)
        assert pin is not None, block
        name = normalize(pin[1])
        needed_by = [extra for extra, packages in needs.items() if name in packages]
        if not needed_by:
            continue  # nothing needs it any more
        markers = {needs[extra][name] for extra in needed_by}
        marker = markers.pop() if len(markers) == 1 else ""
        _, _, hashes = block.partition(" \\\n")
        lines = [f"# for: {' '.join(needed_by)}", f"{pin[1]}=={pin[2]}{marker}"]
        if name not in WITHOUT_HASHES:
            lines[-1] += f" \\\n{hashes}"
        blocks.append("\n".join(lines) + "\n")
    FILE.write_text(HEADER + "".join(blocks), "utf-8")


if __name__ == "__main__":
    main()
