"""Spoilt files for everything that opens one, for as long as there is time.

    python benchmarks/fuzz.py [--seconds 600] [--seed 0] [--target NAME …]

The targets are those of `tests/fuzz`. Each is tried in processes of its own, with little memory and
a limit on its time, so that a crash, a hang and a file that fills the memory are found as well as a
traceback. Prints how many were read and refused, and what failed with the seed that shows it again;
the last line is JSON. The exit status is 1 if anything failed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fuzz"))

ROUND = 1000
"""Files for each process."""
MEMORY = 6 << 30
SECONDS = 120
"""For a round: thousands of times what it takes."""


def main() -> None:
    options = arguments()
    if options.round is not None:
        print(json.dumps(one_round(options.target[0], options.round)))
        return
    names = options.target or all_targets()
    ends = time.monotonic() + options.seconds
    totals: dict[str, dict[str, Any]] = {
        name: {"read": 0, "refused": 0, "failed": []} for name in names
    }
    seed = options.seed
    while time.monotonic() < ends:
        for name in names:
            if time.monotonic() >= ends:
                break
            found = in_process(name, seed)
            for key, value in found.items():
                totals[name][key] += value
        seed += ROUND
    report(totals)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="of the first file")
    parser.add_argument("--target", action="append", help="one of tests/fuzz; all unless given")
    parser.add_argument("--round", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def all_targets() -> list[str]:
    from fuzz_targets import FILES, FOLDERS

    return [*FILES, *FOLDERS]


def in_process(name: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--target", name, "--round", str(seed)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": [f"seeds from {seed}: no end after {SECONDS} s"]}
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-1:]
        return {"failed": [f"seeds from {seed}: exit status {done.returncode} {' '.join(lines)}"]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one_round(name: str, first: int) -> dict[str, Any]:
    from fuzz_targets import FILES, FOLDERS, spoilt

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: dict[str, Any] = {"read": 0, "refused": 0, "failed": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if name in FOLDERS:
            FOLDERS[name].make(folder / "made")
            names = FOLDERS[name].files(folder / "made")
        (folder / "config.json").write_text("{}")
        for seed in range(first, first + ROUND):
            chance = Random(seed)
            try:
                if name in FILES:
                    ended = FILES[name].attempt(folder, spoilt(FILES[name].sound, chance))
                else:
                    path = chance.choice(names)
                    content = spoilt((folder / "made" / path).read_bytes(), chance)
                    made, work = folder / "made", folder / "work"
                    ended = FOLDERS[name].attempt(made, work, path, content)
                counts[ended] += 1
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}:{where.lineno}"
                counts["failed"].append(
                    f"seed {seed}: {type(error).__name__} at {place}: {error}"[:300]
                )
    return counts


def report(totals: dict[str, dict[str, Any]]) -> None:
    print(f"{'target':28} {'read':>9} {'refused':>9} {'failed':>7}")
    for name, found in totals.items():
        failed = found["failed"]
        print(f"{name:28} {found['read']:9,} {found['refused']:9,} {len(failed):7,}")
    for name, found in totals.items():
        for line in found["failed"][:20]:
            print(f"{name}: {line}")
    print(json.dumps(totals))
    sys.exit(1 if any(found["failed"] for found in totals.values()) else 0)


if __name__ == "__main__":
    main()
