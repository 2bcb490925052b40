"""Makes small indexes fast to write."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """These tests write thousands of files, and none needs to survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield
