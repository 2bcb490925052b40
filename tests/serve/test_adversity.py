"""A machine that misbehaves: no memory, clocks that jump, forks, files that may not be read."""

import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from small_service import on_a_socket
from test_processes import running

from glassrank.errors import GlassrankError
from glassrank.index import Index
from glassrank.serve import Options
from glassrank.types import Doc


@pytest.mark.tried("Service", "no memory for a request", "refused, and served on")
@pytest.mark.slow
def test_a_service_without_memory_refuses_and_goes_on(options: Options, tmp_path: Path) -> None:
    """Its address space may not grow while large bodies come in; later it may."""
    with running(options, tmp_path) as service:
        service.ask("/search", query="cat", budget_ms=9000)
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        size = int(status.split("VmSize:")[1].split()[0]) << 10
        most = (size + (16 << 20), resource.RLIM_INFINITY)
        resource.prlimit(service.process.pid, resource.RLIMIT_AS, most)
        body = {"query": "cat", "documents": ["the cat sat on the mat " * 5000] * 60}

        def rerank(_: int) -> int:
            try:
                return httpx.post(f"{service.address}/v1/rerank", json=body, timeout=60).status_code
            except httpx.TransportError:
                return 0

        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(rerank, range(16)))
        assert service.process.poll() is None, statuses
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(service.process.pid, resource.RLIMIT_AS, unlimited)
        assert "hits" in service.ask("/search", query="cat", budget_ms=9000)
        assert "the cat" not in (tmp_path / "log").read_text()  # no text in the log


@pytest.mark.tried("Service", "the clock of the machine jumps", "answered in the budget", tries=4)
@pytest.mark.parametrize("jump", [-1e9, -3600.0, 3600.0, 1e9])
def test_clocks_that_jump_change_no_budget(
    options: Options, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    original = time.time
    with on_a_socket(options) as address:
        asked = {"query": "cat", "budget_ms": 9000}
        assert httpx.post(f"{address}/search", json=asked).status_code == 200
        monkeypatch.setattr(time, "time", lambda: original() + jump)
        for _ in range(5):
            answer = httpx.post(f"{address}/search", json=asked)
            assert answer.status_code == 200
            assert 0 <= answer.json()["timing_ms"]["total"] < 9000
            time.sleep(0.1)  # the server looks at the clock in between


@pytest.mark.tried("Service", "a fork while it serves", "served on")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_disturbs_nobody(options: Options) -> None:
    with on_a_socket(options) as address, httpx.Client(base_url=address) as client:
        assert client.post("/search", json={"query": "cat"}).status_code == 200
        child = os.fork()
        if child == 0:
            time.sleep(0.3)
            os._exit(0)
        statuses = [client.post("/search", json={"query": "cat"}).status_code for _ in range(10)]
        assert os.waitpid(child, 0)[1] == 0
        statuses += [client.post("/search", json={"query": "cat"}).status_code for _ in range(3)]
    assert set(statuses) == {200}


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, where the test has them."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.tried("Files", "files that the user may not read", "one sentence, the file named")
def test_files_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    index = tmp_path / "index"
    Index.build([Doc("d", "the cat")], index)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
        if folder.name.startswith("pytest-of"):
            break
    for file in [*index.glob("*/*.npy"), index / "manifest.json"]:
        mode = file.stat().st_mode
        file.chmod(0)
        with as_nobody(), pytest.raises(GlassrankError) as raised:
            Index(index)
        file.chmod(mode)
        assert str(file) in str(raised.value) and "\n" not in str(raised.value)
    with as_nobody():
        assert len(Index(index)) == 1
