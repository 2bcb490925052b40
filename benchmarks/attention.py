"""Live encoding on the CPU with attention by matrix tiles, against PyTorch's attention.

    python benchmarks/attention.py                        # the documentation of this Python
    python benchmarks/attention.py --docs passages.tsv --documents 512 --rounds 15

From texts to scores by `fast`, the TK in the package, end to end; nothing but attention within
documents differs. The two take turns, so that a noisy neighbour disturbs them alike.
`nn/cpu/attention.py` stays in the package while the ratio is above 1 (docs/decisions/0013). The
last line is JSON.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import python_docs, read_docs
from glassrank.models.checkpoint import load_named
from glassrank.nn.cpu import amx, doc_encoders
from glassrank.ranking import Reranker

QUERY = "how do I read a csv file?"


@contextmanager
def attention_of_pytorch() -> Iterator[None]:
    by_tiles = doc_encoders._has_tiles
    doc_encoders._has_tiles = lambda dtype, channels: False  # type: ignore[assignment]
    try:
        yield
    finally:
        doc_encoders._has_tiles = by_tiles


def seconds(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", help="documents; this Python's documentation if none")
    parser.add_argument("--documents", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9, help="that count, after one that does not")
    options = parser.parse_args()
    if not amx.usable():
        raise SystemExit("this processor has no matrix tiles: PyTorch's attention is used anyway")
    docs = python_docs() if options.docs is None else read_docs(options.docs)
    texts = [doc.text for doc in islice(docs, options.documents)]
    reranker = Reranker(load_named("fast"))

    def score() -> NDArray[np.float32]:
        return reranker.scores(QUERY, texts).values

    times: dict[str, list[float]] = {"tiles": [], "pytorch": []}
    for turn in range(options.rounds + 1):
        taken = {"tiles": seconds(score)}
        with attention_of_pytorch():
            taken["pytorch"] = seconds(score)
        if turn:  # the first round compiles
            for name, spent in taken.items():
                times[name].append(spent)
    by_tiles = score()
    with attention_of_pytorch():
        by_pytorch = score()
    speed = {name: len(texts) / statistics.median(spent) for name, spent in times.items()}
    ratios = [slow / fast for fast, slow in zip(times["tiles"], times["pytorch"], strict=True)]
    result = {
        "documents": len(texts),
        "docs_per_second": speed,
        "ratio": speed["tiles"] / speed["pytorch"],
        "rounds_won": sum(ratio > 1 for ratio in ratios),
        "rounds": len(ratios),
        "largest_difference": float(np.abs(by_tiles - by_pytorch).max()),
    }
    for name, value in speed.items():
        print(f"{name:10} {value:10,.0f} documents/s")
    print(
        f"{'ratio':10} {result['ratio']:10.2f}   {result['rounds_won']} of {len(ratios)} rounds won"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
