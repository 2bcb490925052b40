"""A real Chromium, and the service that it looks at."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

CHROMIUM = shutil.which("chromium")
MOST_MS = 15_000
"""A machine that is busy with other things must not fail a test; one that hangs must."""
WIDE = {"width": 1280, "height": 900}


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None:
        pytest.skip("there is no chromium here; install it with: apt-get install chromium")
    expect.set_options(timeout=MOST_MS)
    with sync_playwright() as started:
        # Root, as in a container, has no sandbox; the pages are our own.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from page_service import served

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # nothing here is large enough for several
    with served(tmp_path_factory.mktemp("site")) as running:
        yield running
    torch.set_num_threads(threads)


@pytest.fixture(scope="package")
def context(browser: Any, site: Any) -> Iterator[Any]:
    """One for all tests: what the first tab has fetched, the others need not."""
    made = browser.new_context(base_url=site.address, viewport=WIDE, color_scheme="light")
    made.set_default_timeout(MOST_MS)
    yield made
    made.close()


@pytest.fixture(scope="package")
def tab(context: Any) -> Iterator[Any]:
    """One for all tests: what a new one costs is most of what a short test does."""
    made = context.new_page()
    yield made
    made.close()


@pytest.fixture
def page(tab: Any) -> Iterator[Any]:
    """An empty tab of a wide screen. Whatever its scripts complain about fails the test."""
    try:
        with watched(tab):
            yield tab
    finally:
        tab.unroute_all(behavior="ignoreErrors")
        tab.goto("about:blank")
        if tab.viewport_size != WIDE:
            tab.set_viewport_size(WIDE)


@pytest.fixture
def new_page(context: Any) -> Iterator[Any]:
    """A tab for a test that leaves something in it."""
    made = context.new_page()
    try:
        with watched(made):
            yield made
    finally:
        made.close()


@contextmanager
def watched(tab: Any) -> Iterator[None]:
    """Whatever its scripts complain about fails the test."""
    tab.complaints = []
    heard = {
        "pageerror": lambda error: tab.complaints.append(str(error)),
        "console": lambda said: tab.complaints.append(said.text) if said.type == "error" else None,
    }
    for event, listener in heard.items():
        tab.on(event, listener)
    try:
        yield
    finally:
        for event, listener in heard.items():
            tab.remove_listener(event, listener)
    assert not tab.complaints
