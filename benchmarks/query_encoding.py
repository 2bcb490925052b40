"""One query encoded on the CPU: compiled code against plain PyTorch, in one run.

    python benchmarks/query_encoding.py                   # MiniLM's size, and those in the package
    python benchmarks/query_encoding.py --threads 1 --rounds 500

The encoder has random weights, since what they are does not change the time. Times are medians
after a warm-up, and the fastest tenth, which a busy machine disturbs least; the forms take turns,
so that a noisy neighbour disturbs them alike. Those of the package's models are of whole queries:
look-up, term weights and unit vectors are in them. The last line is JSON.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassrank.models import TokenBatch
from glassrank.models.checkpoint import load_named
from glassrank.nn.cpu.query_encoders import EncoderOnCPU
from glassrank.nn.transformer import Encoder, EncoderConfig
from glassrank.ranking.by_torch import QueryEncoder

MINILM = EncoderConfig(size=384, layers=6, heads=12, feed_forward=1536)
SETTLE = 0.004
"""Seconds: as long as a thread of PyTorch's keeps a processor busy after its last step."""


def medians(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of each: the median, and the fastest tenth."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            time.sleep(SETTLE)
            start = time.perf_counter()
            job()
            if number:  # the first round is the warm-up
                times[name].append(1000 * (time.perf_counter() - start))
    return {
        name: (statistics.median(found), sorted(found)[len(found) // 10])
        for name, found in times.items()
    }


def encoder_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    plain = Encoder(MINILM).eval()
    forms: dict[str, Callable[..., Tensor]] = {
        "plain": plain,
        "compiled": EncoderOnCPU(plain, threads=options.threads),
        "floats": EncoderOnCPU(plain, threads=options.threads, way="floats"),
    }
    rows = []
    for pieces in options.pieces:
        given = torch.randint(1000, 30_000, (1, pieces)), torch.ones(1, pieces)
        difference = float((forms["compiled"](*given) - plain(*given)).abs().max())
        found = medians({name: partial(f, *given) for name, f in forms.items()}, options.rounds)
        rows.append(described(f"MiniLM, {pieces} pieces", found, difference))
    return rows


def packaged_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name in ("fast", "default"):
        model = load_named(name).model
        forms = {"plain": QueryEncoder(model, 32, exact=True), "compiled": QueryEncoder(model, 32)}
        for pieces in options.pieces:
            given = TokenBatch(torch.randint(1000, 30_000, (1, pieces)), torch.ones(1, pieces))
            one, other = (form(given).vectors for form in forms.values())
            found = medians({form: partial(f, given) for form, f in forms.items()}, options.rounds)
            difference = float((one - other).abs().max())
            rows.append(described(f"{name}, {pieces} pieces", found, difference))
    return rows


def described(
    name: str, found: dict[str, tuple[float, float]], difference: float
) -> dict[str, Any]:
    ratio = found["plain"][0] / found["compiled"][0]
    times = {
        f"{form}_ms": dict(zip(("median", "tenth"), own, strict=True))
        for form, own in found.items()
    }
    return {"name": name, **times, "times": ratio, "largest_difference": difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pieces", type=int, nargs="+", default=[12, 32])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    with torch.inference_mode():
        rows = [*encoder_rows(options), *packaged_rows(options)]
    heads = "".join(f"{name:>16}" for name in ("PyTorch", "compiled", "floats"))
    print(f"{'median (fastest tenth), ms':28}{heads}{'times':>7}")
    for row in rows:
        print(f"{row['name']:28}", end="")
        for form in ("plain", "compiled", "floats"):
            own = row.get(f"{form}_ms")
            print(f"{own['median']:8.2f} ({own['tenth']:.2f})" if own else " " * 16, end=" ")
        print(f"{row['times']:6.1f}")
    print(json.dumps({"benchmark": "query_encoding", **vars(options), "rows": rows}))


if __name__ == "__main__":
    main()
