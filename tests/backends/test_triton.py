"""Triton's kernels beside the plain code, interpreted without a GPU and compiled with one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
CASES = sorted(map(str, HERE.glob("triton_*cases.py")))


def run_cases(interpret: str, cases: list[str] = CASES) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *cases]
    ran = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": interpret},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
def test_queries_of_the_models_in_the_package_interpreted() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    run_cases("1", [str(HERE / "triton_late_cases.py")])


@pytest.mark.slow
def test_interpreted() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    run_cases("1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_compiled() -> None:
    run_cases("0")
