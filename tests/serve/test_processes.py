"""The service as a program: several workers, and an end that finishes what was begun."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from small_service import in_process

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
def running(
    options: Options, tmp_path: Path, *more: str, program: Sequence[str] = _PROGRAM
) -> Iterator[Running]:
    models = [word for name, folder in options.models for word in ("--model", f"{name}={folder}")]
    command = [*program, "serve", str(options.index), *models, "--port", "0", *more]
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


@pytest.mark.long
def test_sigterm_finishes_what_was_begun(options: Options, tmp_path: Path) -> None:
    with running(options, tmp_path) as service, ThreadPoolExecutor(1) as pool:
        documents = ["the cat sat on the warm mat by the cold sea"] * 10_000
        long = pool.submit(service.ask, "/v1/rerank", query="cat", documents=documents, model="tk")
        service.wait_for(lambda: 'queue="texts"' in service.ask("/metrics"))
        time.sleep(0.3)
        assert not long.done()
        service.ends_well()
        assert len(json.loads(long.result())["results"]) == 10_000


@pytest.mark.long
def test_several_workers_and_threads_answer_as_one_does(options: Options, tmp_path: Path) -> None:
    words = ("cold", "warm", "sea", "dog", "bird", "mat", "sat", "the")
    forms = [
        {"query": f"the {word} cat", "model": model, "k": 40, "budget_ms": 9000}
        for word in words
        for model in ("tk", "knrm", "none")
    ]

    def hits(answer: str) -> list[tuple[str, float, str]]:
        return [
            (hit["doc_id"], round(hit["score"], 4), hit["snippet"]["text"])
            for hit in json.loads(answer)["hits"]
        ]

    with in_process(options) as client:
        alone = [hits(client.post("/search", json=form).text) for form in forms]
    with running(options, tmp_path, "--workers", "2", "--threads", "2") as service:
        service.wait_for(lambda: len(service.workers()) == 2)
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(service.ask, "/search", **form) for form in forms]
            assert [hits(future.result()) for future in asked] == alone
        line = 'glassrank_requests_total{route="/search",status="200"} 24.0'
        # Whichever worker is asked; one counts when it has sent its answer.
        service.wait_for(lambda: line in service.ask("/metrics"))
        workers = service.workers()
        service.ends_well()
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.tried("Service", "SIGTERM beside clients that send nothing", "ended in time")
@pytest.mark.long
@pytest.mark.quiet
def test_clients_that_send_nothing_do_not_delay_the_end(options: Options, tmp_path: Path) -> None:
    half = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
    with running(options, tmp_path) as service, ExitStack() as stack:
        port = int(service.address.rpartition(":")[2])
        for data in (half, b"GET / HT", b"", half):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(data)
        service.ask("/healthz")
        began = time.monotonic()
        service.ends_well()
        assert time.monotonic() - began < 8


@pytest.mark.tried("Service", "SIGTERM while a request is computed for ever", "ended in time")
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.quiet
def test_work_that_does_not_end_is_left(options: Options, tmp_path: Path, workers: int) -> None:
    """Should a request ever be computed for ever, the service ends all the same."""
    program = tmp_path / "stuck.py"
    program.write_text(
        "import sys, time\n"
        "from glassrank.serve import run, searching, service\n"
        "run._DRAIN_SECONDS, service._CLOSE_SECONDS = 1, 0.5\n"
        "searching.explain_scores = lambda *_: [time.sleep(0.1) for _ in range(3000)]\n"
        "from glassrank.cli import main\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    command = [sys.executable, str(program)]
    with running(options, tmp_path, "--workers", str(workers), program=command) as service:
        service.wait_for(lambda: workers == 1 or len(service.workers()) == workers)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(service.ask, "/explain", query="cat", text="cat")
            time.sleep(1)
            began = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(30) == 0
            assert time.monotonic() - began < 20
            assert asked.exception() is not None


def metrics_folders(folder: Path) -> list[Path]:
    return list(folder.glob("glassrank-metrics-*"))


@pytest.mark.tried("Service", "SIGKILL of a service", "nothing left in temporary folders")
@pytest.mark.slow
def test_a_service_that_is_killed_leaves_no_folder(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers remove it; and what was killed before it had any, the next service does."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    left = folder / "glassrank-metrics-999999999-x"
    left.mkdir()
    (left / "gauge.db").touch()
    (folder / "glassrank-metrics-999999999-y").symlink_to(tmp_path)
    (folder / f"glassrank-metrics-{os.getpid()}-z").mkdir()  # of one that runs
    with running(options, tmp_path, "--workers", "2") as service:
        service.wait_for(lambda: len(service.workers()) == 2)
        service.ask("/search", query="cat", budget_ms=9000)
        assert not left.exists() and len(metrics_folders(folder)) == 3
        service.process.kill()
        service.process.wait(60)
    give_up = time.monotonic() + 60
    while len(metrics_folders(folder)) > 2:
        assert time.monotonic() < give_up
        time.sleep(0.1)
    assert tmp_path.exists()


@pytest.mark.tried(
    "Service", "SIGTERM at the start of a service", "nothing left in temporary folders"
)
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.quiet
def test_a_service_that_is_ended_at_its_start_leaves_nothing(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    with running(options, tmp_path, "--workers", workers) as service:
        began = time.monotonic()
        service.process.terminate()
        service.process.wait(60)
        assert time.monotonic() - began < 30
    assert metrics_folders(folder) == []


@pytest.mark.tried("Service", "SIGKILL of a worker", "replaced")
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
@pytest.mark.tried("Service", "SIGKILL of a worker", "replaced", tries=3)
def test_workers_that_die_as_they_begin_are_replaced(options: Options, tmp_path: Path) -> None:
    """While the process that started them waits for a sign of life."""
    with running(options, tmp_path, "--workers", "2") as service:
        service.wait_for(lambda: len(service.workers()) == 2)
        service.ask("/search", query="cat", budget_ms=9000)
        for _ in range(3):
            victim = max(service.workers())
            os.kill(victim, signal.SIGKILL)
            service.wait_for(lambda v=victim: v not in service.workers(), 30)
            service.wait_for(lambda: len(service.workers()) == 2, 30)
            time.sleep(1)  # and it is asked
        service.ends_well()


@pytest.mark.tried("Service", "SIGKILL of a service's first process", "its workers end")
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
