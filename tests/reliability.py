"""What tests tried to break and what happened, for docs/reliability.md.

A test that makes something fail has a mark that says what it does, and is counted if it passes:

    @pytest.mark.tried("Files", "a byte of a model flipped", "refused, the file named", tries=3)
    def test_a_flipped_byte(tmp_path): ...

One that knows only at its end how often it did so takes the fixture `reliability`, and says it when
all of its assertions have held:

    def test_a_killed_writer(tmp_path, reliability):
        ...
        reliability("Files", "SIGKILL while an index is built", "the old or the new state", kills)

`area` is a heading of the page, `fault` and `result` are a row of its table, and `tries` are added
up over all tests, parameters and processes that say the same. Without `--reliability FILE` nothing
is kept. `./scripts/reliability` runs the tests with it and writes the page.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

AREAS = ("Service", "Files", "Readers", "Supply", "Standing", "Cluster")
_HEAD = """# What was tried, and what happened

Written by `./scripts/reliability` from what the tests themselves report: every row is a fault that
a test makes happen, how often, and what all of those tries ended in. A test that fails reports
nothing. Tests that need what a machine lacks (a browser, a GPU, collections) are not counted there.
"""


_SOAK = """`python benchmarks/soak.py` with three times 128 connections of attackers: some send
300 requests ahead and read nothing, some send nothing, some half a request, and all come again when
they are closed. Three clients with the key search, re-rank and explain without pause, a writer
changes the index, and processes are killed. Two workers, `default`, two ARM cores that other work
shared (load 12 to 18, hence the milliseconds). `docs/soak.json` is what it printed.

Shorter runs before it found two faults, since removed: delayed requests of closed connections
stayed in memory until their turn, so that a worker grew by 27 MB with each flood; and a change
that ran out of time in its middle was answered with 500. The numbers of processes began again in
this hour, so that the worker that was measured changed twice; each was measured for 20 minutes or
more but the last.
"""


class Recorder:
    """Appends a line for each report: several processes may share the file."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def __call__(self, area: str, fault: str, result: str, tries: int = 1) -> None:
        assert area in AREAS, f"unknown area {area!r}; known are {', '.join(AREAS)}"
        assert tries > 0, "nothing was tried"
        if self._path is None:
            return
        line = json.dumps([area, fault, result, tries]) + "\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line.encode())  # one call: lines of processes do not mix
        finally:
            os.close(handle)


def page(lines: list[str]) -> str:
    """The reports as Markdown, areas and rows in a fixed order."""
    tries: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        area, fault, result, count = json.loads(line)
        tries[area, fault, result] += count
    parts = [_HEAD]
    for area in AREAS:
        rows = sorted(
            (fault, result, n) for (one, fault, result), n in tries.items() if one == area
        )
        if not rows:
            continue
        parts.append(f"\n## {area}\n\n| fault | tries | what happened |\n|---|---:|---|\n")
        parts += [f"| {fault} | {n:,} | {result} |\n" for fault, result, n in rows]
    return "".join(parts)


def soak_section(report: dict[str, Any]) -> str:
    """The last long run of benchmarks/soak.py, from the JSON that it printed."""
    rows = {
        "seconds of load": f"{report['seconds']:,}",
        "answers": f"{sum(report['answers'].values()):,}",
        "of these 503, with a time to come again": f"{report['answers'].get('/search 503', 0):,}",
        "search, p50 and p99, ms": " and ".join(map(str, report["search ms p50, p99"])),
        "connections of attackers": format(report["attackers' connections"], ","),
        "changes of the index": f"{report['changes']:,}",
        "SIGKILL of workers and of writers": f"{report['workers killed']} and "
        f"{report['writers killed']}",
        "connections cut by these": f"{report['connections cut']}",
        "memory of a worker, first and last, MB": f"{report['memory MB'][0]} and "
        f"{report['memory MB'][-1]}",
        "growth from the second third to the last, MB": f"{report['growth MB']:.0f}",
        "faults": f"{len(report['faults'])}",
    }
    lines = "".join(f"| {name} | {value} |\n" for name, value in rows.items())
    return f"\n## Soak\n\n{_SOAK}\n| | |\n|---|---:|\n{lines}"


def write_page(reports: Path, target: Path) -> None:
    text = page(reports.read_text("utf-8").splitlines())
    soak = target.with_name("soak.json")
    if soak.exists():
        text += soak_section(json.loads(soak.read_text("utf-8")))
    target.write_text(text, "utf-8")
