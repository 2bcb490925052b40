"""Pipelines of tests warm_up on a few documents: most tests are not about time."""

from collections.abc import Iterator

import pytest

PRACTICE = (2, 8)
ABOUT_TIME = {"test_first_query"}
"""Files of tests that need what is learned from as many documents as users have it learned."""


@pytest.fixture(autouse=True, scope="module")
def short_practice(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ not in ABOUT_TIME:
            for module in ("stages", "pipeline"):
                patch.setattr(f"glassrank.rerank.{module}.CALIBRATION_DOCS", PRACTICE)
        yield
