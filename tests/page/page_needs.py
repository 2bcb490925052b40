"""What these tests need beyond the package: without it they are skipped, and say why."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("fastapi", reason="fastapi is not installed, which glassrank depends on")
