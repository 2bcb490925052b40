"""How the service holds its budget under load, on this machine's loopback.

    python benchmarks/serve.py --model my.model                  # the documentation of this Python
    python benchmarks/serve.py --model my.model --docs docs.jsonl --workers 2 --seconds 30

Builds an index and the model's document store, starts `glassrank serve` as a process of its own,
and has 1, 8 and 64 clients ask without pause, each one query after the other, over connections that
stay open; they begin at random moments of a first second. Latency is a client's: from the first
byte sent to the last byte read. `depth` is how many documents were re-ranked, on average: under
load everybody is granted less time, before anybody is refused. A client that is refused comes again
when Retry-After says or up to half as long again later, as real clients do, so that they do not all
come at once; or, with `--impatient`, immediately. Nothing but an answer or a
refusal should ever come back. Clients and service share the machine's cores.
The last line is JSON; with `--json` it is the only one.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np

from glassrank.corpus import python_docs, read_docs
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.rerank import Reranker
from glassrank.serve import Options

ALLOWED = 1.2
"""p99 may be this many times the budget."""
REFUSALS = (429, 503)
ANSWERED = 0.99
"""The share of requests that must not be refused."""
DEPTH = re.compile(rb'"depth": ([0-9]+)')


@dataclass
class Tally:
    """What came back."""

    latencies: list[float] = field(default_factory=list)  # ms, of accepted requests
    depths: list[int] = field(default_factory=list)
    refusals: int = 0
    errors: list[str] = field(default_factory=list)

    def row(self, clients: int, seconds: float, budget_ms: float) -> dict[str, float]:
        times = np.array(self.latencies or [np.nan])
        p50, p95, p99 = np.percentile(times, [50, 95, 99]).tolist()
        answered = len(self.latencies) / max(1, len(self.latencies) + self.refusals)
        return {
            "clients": clients,
            "answered": answered,
            "a second": len(self.latencies) / (0.5 + seconds),  # they begin in the course of one
            "p50": p50,
            "p95": p95,
            "p99": p99,
            "longest": float(times.max()),
            "after the budget": float((times > budget_ms).mean()),
            "depth": float(np.mean(self.depths or [0])),
            "refusals": self.refusals,
            "errors": len(self.errors),
            "holds": bool(p99 <= ALLOWED * budget_ms and answered >= ANSWERED),
        }


class Connection:
    """HTTP/1.1 by hand: a client that costs little, so that the service has the cores."""

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, bytes, bytes, float]:
        """Status, head, body, milliseconds."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._place[0]}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(header(head, b"content-length"))
        took = 1e3 * (time.perf_counter() - began)
        if b"connection: close" in head.lower():
            self.close()
        return int(head[9:12]), head, body, took  # after "HTTP/1.1 "

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def header(head: bytes, name: bytes) -> int:
    """A header's number: all of them need not be read."""
    found = re.search(rb"(?i)\r\n" + name + rb": ([0-9]+)", head)
    assert found is not None, head
    return int(found[1])


async def one_client(
    address: str, paths: Iterator[str], until: float, impatient: bool, tally: Tally
) -> None:
    place = urlsplit(address)
    connection = Connection(place.hostname or "", place.port or 0)
    await asyncio.sleep(random.uniform(0, 1))
    while time.monotonic() < until:
        try:
            status, head, body, took = await connection.get(next(paths))
        except (OSError, asyncio.IncompleteReadError) as error:
            connection.close()
            tally.errors.append(repr(error))
            continue
        if status == 200:
            tally.latencies.append(took)
            found = DEPTH.search(body)  # all of it need not be read
            tally.depths.append(int(found[1]) if found else 0)
        elif status in REFUSALS:
            tally.refusals += 1
            if not impatient:
                wait = header(head, b"retry-after") * random.uniform(1.0, 1.5)
                await asyncio.sleep(max(0.0, min(until - time.monotonic(), wait)))
        else:
            tally.errors.append(f"{status}: {body.decode()}")
    connection.close()


def load(
    address: str, queries: list[str], clients: int, seconds: float, options: argparse.Namespace
) -> Tally:
    """For so many seconds, after one in which they begin."""
    tally = Tally()
    chance = random.Random(clients)
    tail = f"&k={options.k}&budget_ms={options.budget_ms:g}"
    paths = (f"/search?query={quote(chance.choice(queries))}{tail}" for _ in count())

    async def all_of_them() -> None:
        until = time.monotonic() + 1 + seconds
        await asyncio.gather(
            *(one_client(address, paths, until, options.impatient, tally) for _ in range(clients))
        )

    asyncio.run(all_of_them())
    return tally


def prepared(options: argparse.Namespace, folder: Path, say: bool) -> tuple[Path, list[str]]:
    """An index with its store, and queries: a few words in a row of its own documents."""
    path = folder / "bench.index"
    if not (path / "manifest.json").exists():
        docs = python_docs() if options.docs is None else read_docs(options.docs)
        report(f"indexing {options.docs or 'the documentation of this Python'}", say)
        Index.build(docs, path)
    index, reranker = Index(path), Reranker.load(options.model)
    report(f"{len(index):,} documents; encoding those that are not yet", say)
    encode_index(index, reranker.saved, dtype=options.dtype)
    chance = random.Random(0)
    texts = [doc.text.split() for doc in index.docs()]
    queries = []
    for words in chance.choices([words for words in texts if len(words) >= 4], k=2000):
        start = chance.randrange(len(words) - 3)
        queries.append(" ".join(words[start : start + chance.randint(3, 7)]))
    return path, queries


@contextmanager
def service(index: Path, options: argparse.Namespace) -> Iterator[str]:
    command = [sys.executable, "-c", "from glassrank.cli import main; main()", "serve", str(index)]
    command += ["--model", str(options.model), "--port", "0", "--workers", str(options.workers)]
    command += ["--threads", str(options.threads), "--queue", str(options.queue)]
    if options.candidates:
        command += ["--candidates", str(options.candidates)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+/", line):
                yield found.group()
                break
        else:
            raise SystemExit("the service did not start:\n" + "".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=120)
        sys.stderr.write(rest)
        assert process.returncode == 0, process.returncode


def report(text: str, say: bool) -> None:
    if say:
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="default", help="a model folder")
    parser.add_argument("--docs", help="documents to index; this Python's documentation if none")
    parser.add_argument("--folder", type=Path, help="where the index is kept between runs")
    parser.add_argument("--dtype", default="bf16", help="of the store")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each number of clients")
    parser.add_argument("--budget-ms", type=float, default=50.0)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--candidates", type=int, help="how deep; as the model says if not given")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queue", type=int, default=Options.queue)
    parser.add_argument("--impatient", action="store_true", help="after a refusal, ask at once")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    say = not options.json
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        index, queries = prepared(options, folder, say)
        rows = []
        with service(index, options) as address:
            load(address, queries, 1, min(3.0, options.seconds), options)  # to warm up
            if say:
                print(
                    "clients  answered  a second     p50     p95     p99  longest    late   depth  "
                    "refusals  errors"
                )
            for clients in options.clients:
                tally = load(address, queries, clients, options.seconds, options)
                row = tally.row(clients, options.seconds, options.budget_ms)
                rows.append(row)
                if say:
                    show(row)
                for error in tally.errors[:3]:
                    report(f"error: {error}", say)
    print(
        json.dumps(
            {
                "budget_ms": options.budget_ms,
                "workers": options.workers,
                "threads": options.threads,
                "cores": len(os.sched_getaffinity(0)),
                "machine": platform.platform(),
                "impatient": options.impatient,
                "rows": rows,
            }
        )
    )


def show(row: dict[str, float]) -> None:
    print(
        "{clients:7}  {answered:8.1%}  {a second:8.1f}  {p50:6.1f}  {p95:6.1f}  {p99:6.1f}  "
        "{longest:7.1f}  {after the budget:6.1%}  {depth:6.1f}  {refusals:8}  {errors:6}".format(
            **row
        )
        + ("" if row["holds"] else "   not held"),
        flush=True,
    )


if __name__ == "__main__":
    main()
