"""`glassrank bench`, whose cases lie in `benchmarks/`."""

import json
import sys
from pathlib import Path

import pytest
from command_line import Call

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from glassrank_bench import all_cases, queries


def test_a_case_is_measured(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUERIES", 3)
    done = call("bench", "--only", "noise", "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert [result["unit"] for result in measured["results"]] == ["ms", "ms"]
    assert measured["skipped"] == []


def test_cases_are_named(call: Call) -> None:
    done = call("bench", "--only", "none")
    assert done.returncode == 2
    assert ", ".join(case.name for case in all_cases()) in done.stderr


def test_without_a_gpu_its_cases_are_skipped_by_name(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = call("bench", "--device", "cuda", "--json")
    assert done.returncode == 0, done.stderr
    skipped = json.loads(done.stdout)["skipped"]
    assert [case["name"] for case in skipped] == [
        "gpu-stored",
        "gpu-query",
        "gpu-live",
        "gpu-pieces",
    ]
