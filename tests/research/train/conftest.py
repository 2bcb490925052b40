"""Runs of tests draw no curves, which would take a third of their time."""

import pytest


@pytest.fixture
def pictures() -> None:
    """For tests of runs that do draw their curves."""


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("glassrank.research.train.loop.try_to_draw", lambda *_: None)
