"""Settings for all tests; modules for a GPU can only be read where Triton is."""

import gc
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from glassrank.backends.compiled import use_compiled_code
from glassrank.backends.threads import num_processors

sys.path.append(str(Path(__file__).parent / "tests"))
from reliability import Recorder
from sharing_out import ByUnit, longest_first

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Small indexes are searched by compiled code here, too; tests of its plain forms ask for these.
use_compiled_code()

# A conftest is read before the tests beside it; as one module among others it would be read twice.
collect_ignore_glob = ["tests/*/conftest.py"]
# Each of these imports somebody else's package, which need not be there; none has a doctest.
collect_ignore_glob.append("glassrank/integrations/*.py")
if find_spec("triton") is None:
    collect_ignore_glob += ["glassrank/backends/gpu/*.py", "glassrank/research/papers/gpu_*.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reliability", help="A file for what tests tried to break.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tried(area, fault, result, tries=1): see tests/reliability.py"
    )


def pytest_collection_finish() -> None:
    # What was read for the tests stays, and need not be looked through again and again.
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: some tests wait, for a time, a disk or another process."""
    return num_processors() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return ByUnit(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call" and call.excinfo is None:
        for mark in item.iter_markers("tried"):
            Recorder(item.config.getoption("--reliability"))(*mark.args, **mark.kwargs)


@pytest.fixture(scope="session")
def reliability(request: pytest.FixtureRequest) -> Recorder:
    """See tests/reliability.py."""
    return Recorder(request.config.getoption("--reliability"))
