"""Kernel pooling over stored words on the CPU: compiled against plain PyTorch, in one run.

    python benchmarks/pooling.py                  # 1,000 documents of 200 words, 2 threads
    python benchmarks/pooling.py --words 64 --query-words 6 --threads 1 --json

Every turn scores other documents, gathered from more memory than caches hold. The plain form makes
float32 of the same stored rows, multiplies, pools and reads out, as many documents at a time as is
fastest. Times are medians after a warm-up; the forms take turns, so that a noisy neighbour disturbs
them alike. The last line is JSON.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import torch
from glassrank_bench.measuring import processor
from glassrank_bench.workloads import RandomStore, random_tk
from numba import njit
from numpy.typing import NDArray

MORE_THAN_CACHES = 700_000_000
PLAIN_AT_ONCE = (4, 8, 16, 32, 128)
BYTES = {"bf16": 2, "int8": 1, "float32": 4}


class Workload:
    """Random unit vectors, stored; each turn takes other documents."""

    def __init__(self, dtype: str, options: argparse.Namespace) -> None:
        self.threads, self.model = options.threads, random_tk(options.size)
        stride = -(-options.size // 64) * 64
        self.bytes = options.docs * options.words * stride * BYTES[dtype]
        self.store = RandomStore(
            dtype, options.words, options.docs, options.size, options.query_words,
            sets=max(2, -(-MORE_THAN_CACHES // self.bytes)),
        )  # fmt: skip

    def fused(self, turn: int) -> NDArray[np.float32]:
        return self.store.fused(self.model, turn, self.threads)

    def plain(self, turn: int, at_once: int) -> NDArray[np.float32]:
        return self.store.plain(self.model, turn, at_once)

    def read(self, turn: int) -> None:
        """One turn's bytes, read in their order and added up: the speed of memory."""
        numbers = self.store.rows.reshape(-1).view(np.int64)
        share = self.bytes // 8
        mine = numbers[turn % self.store.sets * share :][:share]
        pieces = np.array_split(mine, self.threads)
        others = [Thread(target=_add_up, args=(piece,)) for piece in pieces[1:]]
        for other in others:
            other.start()
        _add_up(pieces[0])
        for other in others:
            other.join()


@njit(nogil=True, cache=True)
def _add_up(numbers: Any) -> int:
    total = 0
    for i in range(len(numbers)):  # over positions, since this becomes vector instructions
        total += numbers[i]
    return total


def medians(jobs: dict[str, Callable[[int], object]], rounds: dict[str, int]) -> dict[str, float]:
    """Milliseconds; a job with more rounds takes several turns between the others'."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    turn = 0
    for number in range(min(rounds.values()) + 1):
        for name, job in jobs.items():
            for _ in range(rounds[name] // min(rounds.values())):
                turn += 1
                start = time.perf_counter()
                job(turn)
                if number:  # the first round is the warm-up
                    times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def measure(dtype: str, options: argparse.Namespace) -> dict[str, object]:
    work = Workload(dtype, options)
    at_once = min(
        PLAIN_AT_ONCE,
        key=lambda count: medians({"plain": lambda turn: work.plain(turn, count)}, {"plain": 1})[
            "plain"
        ],
    )
    difference = float(np.abs(work.fused(0) / work.plain(0, at_once) - 1).max())
    found = medians(
        {"plain": lambda turn: work.plain(turn, at_once), "fused": work.fused, "read": work.read},
        {"plain": options.rounds, "fused": 5 * options.rounds, "read": 5 * options.rounds},
    )
    return {
        "dtype": dtype,
        "plain_ms": found["plain"],
        "plain_documents_at_once": at_once,
        "fused_ms": found["fused"],
        "times": found["plain"] / found["fused"],
        "gigabytes_per_second": work.bytes / found["fused"] / 1e6,
        "memory_gigabytes_per_second": work.bytes / found["read"] / 1e6,
        "largest_relative_difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", type=int, default=1000)
    parser.add_argument("--words", type=int, default=200, help="of each document")
    parser.add_argument("--size", type=int, default=300, help="of a word's vector")
    parser.add_argument("--query-words", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="only the line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        rows = [measure(dtype, options) for dtype in BYTES]
    if not options.json:
        print(
            f"{processor()}, {options.threads} threads: {options.docs:,} documents of "
            f"{options.words} words, {options.size} values each; {options.query_words} query "
            f"words, 11 kernels\n"
        )
        print(f"{'stored':10}{'plain ms':>10}{'fused ms':>10}{'times':>8}{'GB/s':>8}{'of':>8}")
        for row in rows:
            print(
                f"{row['dtype']:10}{row['plain_ms']:10.1f}{row['fused_ms']:10.2f}"
                f"{row['times']:8.1f}{row['gigabytes_per_second']:8.1f}"
                f"{row['memory_gigabytes_per_second']:8.1f}"
            )
    print(
        json.dumps(
            {"benchmark": "pooling", "processor": processor(), **vars(options), "rows": rows}
        )
    )


if __name__ == "__main__":
    main()
