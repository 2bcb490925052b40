"""The packaged models rank on any processor as they do on this one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import packaged_scores
import pytest

from glassrank.backends.cpu import amx

LEAST = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
"""The least of the processors of this kind: no matrix tiles, no wide registers, no fused sums."""
CLOSE = 0.02 if amx.usable() else 1e-4
"""Tiles take rows rounded to bfloat16, which the least does not; elsewhere only the last bits
differ."""


@pytest.mark.slow
def test_the_least_processor_gives_the_same_scores(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, packaged_scores.__file__, str(tmp_path / "least")],
        env={**os.environ, **LEAST},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    scores = packaged_scores.packaged_scores(tmp_path / "own")
    assert len(scores) == 4 * 3 * len(packaged_scores.TEXTS)
    assert json.loads(done.stdout) == pytest.approx(scores, rel=CLOSE, abs=CLOSE)
