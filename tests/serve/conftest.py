"""One small service for all tests that do not change it."""

from collections.abc import Iterator

import pytest
import torch
from small_service import in_process, make_folders, on_a_socket
from starlette.testclient import TestClient

from glassrank.serve import Options


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Nothing here is large enough for several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="package", autouse=True)
def short_practice() -> Iterator[None]:
    """Costs are learned from a few documents: budgets here suffice for all of them, or for none."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("stages", "pipeline"):
            patch.setattr(f"glassrank.rerank.{module}.CALIBRATION_DOCS", (2, 8))
        yield


@pytest.fixture(scope="package")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return make_folders(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="package")
def client(options: Options) -> Iterator[TestClient]:
    with in_process(options) as client:
        yield client


@pytest.fixture(scope="package")
def address(options: Options) -> Iterator[str]:
    with on_a_socket(options) as address:
        yield address
