"""Everything at once, for an hour: does it still hold when it is over?

    python benchmarks/soak.py [--seconds 3600] [--workers 2] [--model default] [--seed 0]

`glassrank serve` runs on loopback over an index with a store. Clients search, re-rank and explain
without pause; a writer, a process too, adds, replaces, deletes, merges and encodes, and the service
takes each change up. Writers and workers are killed as it goes. Attackers without the key hold
connections: some send requests ahead and read nothing, some send nothing, some half a request. It
holds if

- every document that was acknowledged is found, and none that was deleted, then and at the end,
- rankings are those of the same changes made one by one to a fresh index, to the last bit,
- its oldest worker, which is not killed, takes no more memory (GROWTH_MB) late than half-way,
- all was answered with 200, 404 or 429, or with a 503 that says when to come again,
- no connection of a client with the key was cut but by a kill, no log has a traceback, and nothing
  is left over in any folder.

Texts to re-rank are of a fixed set: for each shape of a batch, oneDNN keeps what it has compiled,
which is a few hundred megabytes for thousands of shapes, and would hide what grows without end.
Prints what was done; the last line is JSON. The exit status is 1 if anything did not hold.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from attackers import KEY, PIPELINED, Flood

from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.index.snapshot import read_manifest
from glassrank.models.io.load import load_for_inference
from glassrank.rerank import Pipeline
from glassrank.types import Doc

GROWTH_MB = 48.0
"""By which the memory of a worker's last third may be above that of its second."""
FEWEST_SAMPLES = 8
"""One for each change, in each third."""
SETTLE_SECONDS = 60.0
"""In which the service has to take up the last change."""
CLIENTS = 3
DOCS = 200
"""At about which the index is kept."""
WORDS = "the cat dog bird sat on a warm mat by cold sea and saw how waves came in at night".split()


def words(chance: Random, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(2, most)))


TEXTS = [[words(Random(n), 30) for n in range(i, i + 20)] for i in range(0, 200, 20)]
ATTACKS = (
    PIPELINED,
    b"",
    b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
)
METHODS = ("bm25", "ql", "bm25+rm3", "ql+rm3")


class History:
    """What was acknowledged, in order, and so what may be found at each generation."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.texts: dict[str, str] = {}
        self.born: dict[str, int] = {}
        self.died: dict[str, int] = {}

    def add(self, order: dict[str, Any], generation: int) -> None:
        self.orders.append(order)
        for doc_id in order.get("delete", ()):
            self.died[doc_id] = generation
            del self.texts[doc_id]
        for doc_id, text in order.get("add", ()):
            self.born.setdefault(doc_id, generation)
            self.texts[doc_id] = text

    def strangers(self, generation: int, doc_ids: list[str]) -> list[str]:
        """Those that were not there any more, or not yet. What is being committed is not known."""
        return [
            doc_id
            for doc_id in doc_ids
            if self.died.get(doc_id, generation + 1) <= generation
            or self.born.get(doc_id, generation) > generation
        ]


def follow(order: dict[str, Any], index: Index, saved: Any) -> None:
    if "encode" in order:
        encode_index(index, saved, dtype=order["encode"])
        return
    added = [Doc(doc_id, text) for doc_id, text in order["add"]] if "add" in order else None
    index.change(
        delete=order.get("delete", ()), add=added, replace=True, merge=order.get("merge", False)
    )


def write_for_ever(path: Path, model: str) -> None:
    """The writer: an order a line, and its number when it has been carried out."""
    saved = load_for_inference(model)
    print("ready", flush=True)
    for line in sys.stdin:
        follow(json.loads(line), Index(path), saved)
        print("done", flush=True)


class Writer:
    """Gives orders to a process, and kills it at some of them."""

    def __init__(self, path: Path, model: str, environment: dict[str, str], log: Path) -> None:
        self._path = path
        self._command = [sys.executable, __file__, "--writer", str(path), "--model", model]
        self._environment = environment
        self._log = log
        self.kills = 0
        self._start()

    def _start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        self._answer()

    def _answer(self) -> bool:
        assert self._process.stdout is not None
        return bool(self._process.stdout.readline())

    def order(self, order: dict[str, Any], kill_after: float | None = None) -> bool:
        """Whether it was carried out: acknowledged, or, of one killed, to be seen in the index."""
        before = read_manifest(self._path).generation
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        if kill_after is None:
            if not self._answer():
                raise RuntimeError(f"the writer failed: {self._log.read_text()[-2000:]}")
            return True
        time.sleep(kill_after)
        self.end(signal.SIGKILL)
        self.kills += 1
        self._start()
        return "encode" not in order and read_manifest(self._path).generation > before

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.communicate(timeout=60)


class Service:
    """`glassrank serve` as a process; of its workers the youngest are killed."""

    def __init__(self, path: Path, options: Any, environment: dict[str, str], log: Path) -> None:
        self._log, self._several = log, options.workers > 1
        command = [sys.executable, "-c", "from glassrank.cli import main; main()", "serve"]
        command += [str(path), "--model", f"m={options.model}", "--port", "0"]
        command += ["--workers", str(options.workers)]
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stderr=file, env=environment)
        self.kills = 0
        self.memory: list[float] = []
        while not (found := re.search(r"http://([\d.]+):(\d+)/", log.read_text())):
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.place = found.group(1), int(found.group(2))
        while len(self.workers()) < options.workers:
            time.sleep(0.05)

    def workers(self) -> list[int]:
        """Oldest first."""
        pid = self.process.pid
        if not self._several:
            return [pid]
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        alive = (c for c in children if b"spawn_main" in _read(f"/proc/{c}/cmdline"))
        # Not by number: the numbers of processes begin again from the lowest.
        return sorted(alive, key=_started)

    def kill_youngest(self) -> None:
        if len(workers := self.workers()) > 1:
            self.kills += 1
            os.kill(workers[-1], signal.SIGKILL)

    def sample(self) -> None:
        """The oldest worker's resident memory."""
        status = _read(f"/proc/{self.workers()[0]}/status").decode()
        self.memory.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)

    def growth(self) -> float | None:
        """None if the run is too short to tell it from warming up."""
        third = len(self.memory) // 3
        middle, last = self.memory[third : 2 * third], self.memory[2 * third :]
        return max(last) - max(middle) if third >= FEWEST_SAMPLES else None

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(60)


def _started(pid: int) -> int:
    """In ticks; 0 if it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[19]) if fields else 0


def _read(path: str) -> bytes:
    with suppress(OSError):
        return Path(path).read_bytes()
    return b""


class Client:
    """Asks over a connection that stays open, and says what was wrong with an answer."""

    def __init__(self, place: tuple[str, int], history: History, seed: int) -> None:
        self._connection = HTTPConnection(*place, timeout=60)
        self._history = history
        self._chance = Random(seed)
        self._last = "d0"
        self.done: Counter[str] = Counter()
        self.cut = 0
        self.times: list[float] = []
        """Milliseconds of searches."""
        self.faults: list[str] = []

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """0 if the connection was cut."""
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
            began = time.perf_counter()
            self._connection.request("GET" if body is None else "POST", path, data, headers)
            answer = self._connection.getresponse()
            text, again = answer.read().decode(), answer.headers["Retry-After"]
            if path == "/search":
                self.times.append(1e3 * (time.perf_counter() - began))
        except (OSError, HTTPException):
            self._connection.close()
            self.cut += 1
            return 0, {}
        status = answer.status
        self.done[f"{path.partition('?')[0]} {status}"] += 1
        if status not in (200, 404, 429, 503) or (status == 503 and not again):
            self.faults.append(f"{path}: {status} {text[:300]}")
        return status, json.loads(text.splitlines()[-1]) if text.startswith("{") else text

    def one(self) -> None:
        chance, query = self._chance, words(self._chance, 6)
        kind = chance.randrange(10)
        if kind < 5:
            body = {"query": query, "k": 30, "snippets": bool(kind % 2), "stream": kind == 4}
            model = "none" if kind == 0 else "m"
            status, found = self.ask(
                "/search", {**body, "model": model, "method": chance.choice(METHODS)}
            )
            if status == 200 and "hits" in found:
                self._look(found)
        elif kind < 7:
            self.ask("/v1/rerank", {"query": query, "documents": chance.choice(TEXTS)})
        elif kind == 7:
            self.ask("/explain", {"query": query, "doc_id": self._last})
        elif kind == 8:
            change = {"side": "query", "word": query.split()[0], "by": chance.choice(WORDS)}
            self.ask("/explain", {"query": query, "text": chance.choice(TEXTS), "change": change})
        else:
            self.ask(chance.choice([f"/doc?id={self._last}", "/info", "/metrics", "/healthz"]))

    def _look(self, found: dict[str, Any]) -> None:
        ids = [hit["doc_id"] for hit in found["hits"]]
        self._last = self._chance.choice(ids or ["d0"])
        for doc_id in self._history.strangers(found["generation"], ids):
            self.faults.append(f"{doc_id} was found at generation {found['generation']}")

    def until(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(0.002):
                self.one()
        except Exception as error:
            self.faults.append(f"a client failed: {error!r}")
        finally:
            self.close()

    def close(self) -> None:
        self._connection.close()


def orders(chance: Random, history: History) -> Iterator[dict[str, Any]]:
    """Changes that keep an index at its size, each encoded before the next."""
    for number in count():
        some = chance.sample(sorted(history.texts), min(6, len(history.texts)))
        gone = some[:4] if len(history.texts) > DOCS else some[:2]
        new = [f"d{number}x{n}" for n in range(4)] + some[4:]
        added = [[i, f"unique{i}at{number} {words(chance, 30)}"] for i in new]
        if number % 4 == 1:
            yield {"delete": gone}
        else:
            yield {"merge": True} if number % 8 == 4 else {"add": added, "delete": gone}
            yield {"encode": "bf16"}


def settled(holds: Callable[[], str], give_up: float) -> str:
    """What does not hold, however long one waits: a worker may be a change behind."""
    while (wrong := holds()) and time.monotonic() < give_up:
        time.sleep(0.2)
    return wrong


def final_faults(client: Client, history: History, index: Index, pipeline: Pipeline) -> list[str]:
    """What the service answers now, against what was acknowledged and a serial replay of it."""
    give_up = time.monotonic() + SETTLE_SECONDS
    generation = index.generation

    def search(wanted: dict[str, Any]) -> list[dict[str, Any]]:
        _, found = client.ask("/search", {**wanted, "snippets": False, "budget_ms": 9000})
        answers = found.get("results", [found]) if isinstance(found, dict) else []
        return [answer for answer in answers if answer.get("generation") == generation]

    def markers(ids: list[str]) -> str:
        queries = [history.texts[doc_id].split()[0] for doc_id in ids]
        answers = search({"query": queries, "k": 1, "model": "none"})
        firsts = [hit["doc_id"] for answer in answers for hit in answer["hits"]]
        return "" if firsts == ids else f"searched for {ids}, found {firsts}"

    def document(doc_id: str) -> str:
        status, found = client.ask(f"/doc?id={doc_id}")
        text = found.get("text") if status == 200 else None
        expected = history.texts.get(doc_id)
        return "" if text == expected else f"{doc_id}: expected {expected!r}, found {text!r}"

    def ranking(query: str, method: str, model: str) -> str:
        answers = search({"query": query, "k": 100, "method": method, "model": model})
        if model == "none":
            expected = [(hit.doc_id, hit.score) for hit in index.search(query, 100, method)]
        else:
            expected = [(hit.doc_id, hit.score) for hit in pipeline(query, 100, method=method)]
        ranked = [[(hit["doc_id"], hit["score"]) for hit in a["hits"]] for a in answers]
        return "" if ranked == [expected] else f"{query!r}, {method}, {model}: another ranking"

    replayed = {doc.doc_id: doc.text for doc in index.docs()}
    faults = [] if replayed == history.texts else ["the replay has other documents"]
    checks: list[Callable[[], str]] = []
    alive = sorted(history.texts)
    checks += [partial(markers, alive[at : at + 50]) for at in range(0, len(alive), 50)]
    checks += [partial(document, doc_id) for doc_id in history.born]
    chance = Random(7)
    for method in METHODS:
        for model in ("none", "m"):
            for query in (words(chance, 8) for _ in range(5)):
                checks.append(partial(ranking, query, method, model))
    faults += filter(None, (settled(check, give_up) for check in checks))
    return faults


def left_over(path: Path, temporary: Path, logs: list[Path]) -> list[str]:
    manifest = read_manifest(path)
    named = {"manifest.json", "write.lock", "stores", *(s.name for s in manifest.segments)}
    others = {entry.name for entry in path.iterdir()} - named
    others |= {entry.name for entry in path.rglob("*.part")}
    others |= {entry.name for entry in temporary.iterdir()}
    return [f"{name} is left over" for name in sorted(others)] + [
        f"{log.name} has a traceback: {log.read_text()[-2000:]}"
        for log in logs
        if "Traceback" in log.read_text()
    ]


def soak(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    path, temporary = folder / "index", folder / "temporary"
    temporary.mkdir()
    logs = [folder / "service.log", folder / "writer.log"]
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": root}
    environment |= {"OMP_NUM_THREADS": "1", "GLASSRANK_API_KEY": KEY}
    chance, history = Random(options.seed), History()
    first = [[f"d{n}", f"uniqued{n}at0 {words(chance, 30)}"] for n in range(DOCS)]
    docs = [Doc(doc_id, text) for doc_id, text in first]
    Index.build(docs, path)
    history.add({"add": first}, 1)
    saved = load_for_inference(options.model)
    follow({"encode": "bf16"}, Index(path), saved)
    history.add({"encode": "bf16"}, 1)

    service = Service(path, options, environment, logs[0])
    writer = Writer(path, options.model, environment, logs[1])
    clients = [Client(service.place, history, seed) for seed in range(CLIENTS)]
    stop = threading.Event()
    threads = [threading.Thread(target=client.until, args=(stop,)) for client in clients]
    faults: list[str] = []
    attacks = ExitStack()
    floods = [
        attacks.enter_context(Flood(service.place[1], options.attackers, partial(bytes, payload)))
        for payload in ATTACKS
        if options.attackers
    ]
    try:
        for thread in threads:
            thread.start()
        ends = time.monotonic() + options.seconds
        kill_at = time.monotonic() + options.kill_every
        for number, order in enumerate(orders(chance, history)):
            killed = number % options.kill_writer == options.kill_writer - 1
            while not writer.order(order, chance.uniform(0, 0.1) if killed else None):
                killed = False  # given again to the next writer
            history.add(order, read_manifest(path).generation)
            service.sample()
            if time.monotonic() > kill_at:
                service.kill_youngest()
                kill_at = time.monotonic() + options.kill_every
            # An order that needs to be encoded is not left without: its documents would wait.
            if time.monotonic() > ends and ("encode" in order or set(order) == {"delete"}):
                break
            time.sleep(options.pause)
        stop.set()
        for thread in threads:
            thread.join(120)
        attacks.close()
        index = Index.build(docs, folder / "replayed")
        for order in history.orders[1:]:
            follow(order, index, saved)
        asked = Client(service.place, history, 0)
        pipeline = Pipeline.open(index.path, options.model)
        faults += final_faults(asked, history, index, pipeline)
        faults += asked.faults
        asked.close()
    finally:
        stop.set()
        attacks.close()
        writer.end()
        status = service.end()
    for client in clients:
        faults += client.faults
    if status:
        faults.append(f"the service ended with {status}")
    if (cut := sum(client.cut for client in clients)) > CLIENTS * service.kills:
        faults.append(f"{cut} connections were cut, {service.kills} workers were killed")
    if (growth := service.growth()) is not None and growth > GROWTH_MB:
        faults.append(f"a worker's memory has grown by {growth:.0f} MB")
    faults += left_over(path, temporary, logs)
    return {
        "seconds": options.seconds,
        "changes": len(history.orders),
        "documents": len(history.born),
        "deleted": len(history.died),
        "answers": sum((client.done for client in clients), Counter()),
        "attackers' connections": sum(flood.opened for flood in floods),
        "search ms p50, p99": percentiles([ms for client in clients for ms in client.times]),
        "workers killed": service.kills,
        "writers killed": writer.kills,
        "connections cut": cut,
        "memory MB": [round(mb) for mb in service.memory[:: max(1, len(service.memory) // 20)]],
        "growth MB": growth,
        "faults": faults,
    }


def percentiles(times: list[float]) -> list[float]:
    ordered = sorted(times) or [0.0]
    return [round(ordered[int(share * (len(ordered) - 1))], 1) for share in (0.5, 0.99)]


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="of load")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="default", help="a model folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two changes")
    parser.add_argument("--kill-every", type=float, default=20.0, help="seconds: a worker")
    parser.add_argument("--kill-writer", type=int, default=25, help="at every n-th change")
    parser.add_argument("--attackers", type=int, default=128, help="connections of each attack")
    parser.add_argument("--writer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> None:
    options = arguments()
    if options.writer is not None:
        write_for_ever(options.writer, options.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        report = soak(options, Path(folder))
    for name, value in report.items():
        print(f"{name:16} {value if name != 'faults' else len(value)}")
    for fault in report["faults"][:20]:
        print(fault)
    print(json.dumps(report))
    sys.exit(1 if report["faults"] else 0)


if __name__ == "__main__":
    main()
