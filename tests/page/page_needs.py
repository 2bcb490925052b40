"""What these tests need beyond the package: without it they are skipped, and say why."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install 'glassrank[serve]'"
)
