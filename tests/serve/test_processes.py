"""The service as a program: several workers, and an end that finishes what was begun."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from glassrank.serve import Options

_PROGRAM = [sys.executable, "-c", "from glassrank.cli import main; main()"]


class Running:
    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self._log = log
        found = self.wait_for(lambda: re.search(r"http://\S+/", log.read_text()))
        self.address = found.group().rstrip("/")

    def wait_for(self, condition: Any, seconds: float = 120) -> Any:
        give_up = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < give_up, self._log.read_text()
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        return found

    def ask(self, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if body else None
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.address + path, data, headers), timeout=120) as answer:
            return answer.read().decode()

    def workers(self) -> list[int]:
        """The processes that answer; a helper of Python's own is a child, too."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [
            int(child)
            for child in children.split()
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]

    def ends_well(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self._log.read_text()
        with pytest.raises(URLError):
            self.ask("/healthz")
        assert "Traceback" not in self._log.read_text()


@contextmanager
def running(options: Options, tmp_path: Path, *more: str) -> Iterator[Running]:
    models = [word for name, folder in options.models for word in ("--model", f"{name}={folder}")]
    command = [*_PROGRAM, "serve", str(options.index), *models, "--port", "0", *more]
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stderr=file, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    try:
        yield Running(process, log)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait(60)


def test_sigterm_finishes_what_was_begun(options: Options, tmp_path: Path) -> None:
    with running(options, tmp_path) as service, ThreadPoolExecutor(1) as pool:
        documents = ["the cat sat on the warm mat by the cold sea"] * 10_000
        long = pool.submit(service.ask, "/v1/rerank", query="cat", documents=documents, model="tk")
        service.wait_for(lambda: 'lane="texts"' in service.ask("/metrics"))
        time.sleep(0.3)
        assert not long.done()
        service.ends_well()
        assert len(json.loads(long.result())["results"]) == 10_000


def test_two_workers_share_the_work(options: Options, tmp_path: Path) -> None:
    with running(options, tmp_path, "--workers", "2") as service:
        service.wait_for(lambda: len(service.workers()) == 2)
        with ThreadPoolExecutor(8) as pool:
            asked = [
                pool.submit(service.ask, "/search", query="cat", budget_ms=9000) for _ in range(40)
            ]
            answers = [json.loads(future.result()) for future in asked]
        assert len({answer["hits"][0]["doc_id"] for answer in answers}) == 1
        line = 'glassrank_requests_total{route="/search",status="200"} 40.0'
        # Whichever worker is asked; one counts when it has sent its answer.
        service.wait_for(lambda: line in service.ask("/metrics"))
        workers = service.workers()
        service.ends_well()
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(options: Options, tmp_path: Path) -> None:
    with running(options, tmp_path, "--workers", "2") as service:
        service.wait_for(lambda: len(service.workers()) == 2)
        service.ask("/search", query="cat", budget_ms=9000)
        victim = service.workers()[0]
        os.kill(victim, signal.SIGKILL)
        service.wait_for(lambda: victim not in service.workers() and len(service.workers()) == 2)
        assert json.loads(service.ask("/search", query="cat", budget_ms=9000))["hits"]
        service.ends_well()


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(options: Options, tmp_path: Path) -> None:
    with running(options, tmp_path, "--workers", "2") as service:
        service.wait_for(lambda: len(service.workers()) == 2)
        service.ask("/search", query="cat", budget_ms=9000)
        workers = service.workers()
        service.process.kill()
        service.process.wait(60)
        give_up = time.monotonic() + 60
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < give_up
            time.sleep(0.1)
