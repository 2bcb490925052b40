"""What computes `default`'s encoder on a CPU: ONNX Runtime in four forms, and PyTorch.

    python benchmarks/encoders.py                                  # speed
    python benchmarks/encoders.py --data COLLECTION --queries 50   # and quality, on dev queries

The rule, written down before the figures: our own encoder stays only where it is at least 1.5 times
as fast for a query of 12 tokens and no slower for documents, on two of the three kinds of processor
that we get to see (VNNI, AMX, ARM). Otherwise it goes. It went (`docs/decisions/0030`), and the
line that measured it with it.

One text at a time. The forms take turns, so that a noisy neighbour disturbs them alike; times are
medians, and the fastest of all rounds, which a busy machine disturbs least. Quality is the cosine
with PyTorch's float32 states, mean and least, and nDCG@10 of `default` re-ranking what BM25 finds,
texts encoded live. The last line is JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.backends.onnx_encoders import (
    Linear,
    Quantized,
    Weights,
    add_bert,
    block_linear,
    float_linear,
    row_linear,
    text_linear,
)
from glassrank.backends.onnx_file import Graph
from glassrank.corpus import read_docs, read_qrels, read_queries
from glassrank.index import Index
from glassrank.models.io.load import load_named
from glassrank.models.onnx_models import OnnxSession
from glassrank.rerank import Reranker
from glassrank.research.evaluate.evaluate import evaluate
from glassrank.types import Run

DEPTH = 30
TOKENS = (8, 12, 16, 32, 80, 200)
"""The first four are queries, the others documents."""
Encode = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Ids (L,) to states (L, H)."""


LINEAR: dict[str, Linear] = {
    "ONNX Runtime, int8 dynamic": text_linear,
    "ONNX Runtime, int8 rows": row_linear,
    "ONNX Runtime, int8 blocks": block_linear,
    "ONNX Runtime, float32": float_linear,
}


def onnx_encoder(linear: Linear, threads: int) -> Encode:
    model = load_named("default").model
    weights = {name: tensor.numpy() for name, tensor in model.encoder.state_dict().items()}
    for name, array in weights.items():
        if array.ndim == 2 and ("layers." in name or "pieces" in name):
            scales = np.abs(array).max(1) / np.float32(127)
            weights[name] = Quantized(np.rint(array / scales[:, None]).astype(np.int8), scales)
    graph = Graph("default")
    ids = graph.input("ids", "int64", [1, "length"])
    states = add_bert(graph, ids, model.config.encoder, Weights(weights), linear)
    graph.output("states", states, "float32", [1, "length", model.config.encoder.size])
    session = OnnxSession(graph.serialize(), optimised=True, threads=threads)
    return lambda ids: session.run({"ids": ids[None]})[0][0]


def torch_encoder(threads: int) -> Encode:
    encoder = load_named("default").model.encoder

    def encode(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            states: NDArray[np.float32] = encoder(
                torch.from_numpy(ids)[None], torch.ones(1, len(ids))
            )[0].numpy()
        return states

    return encode


def speed(rounds: int) -> Iterator[dict[str, Any]]:
    forms: dict[tuple[str, int], Encode] = {}
    for threads in (1, 2):
        for name, linear in LINEAR.items():
            forms[name, threads] = onnx_encoder(linear, threads)
        forms["PyTorch, float32", threads] = torch_encoder(threads)
    random = np.random.default_rng(0)
    for tokens in TOKENS:
        ids = random.integers(1_000, 30_000, tokens)
        expected = forms["PyTorch, float32", 1](ids)
        times: dict[tuple[str, int], list[float]] = {form: [] for form in forms}
        for _ in range(rounds):
            for form, encode in forms.items():
                encode(ids)  # whose weights another form has driven out of the cache
                began = time.perf_counter()
                encode(ids)
                times[form].append(1000 * (time.perf_counter() - began))
        for (name, threads), found in times.items():
            cosines = cosine(forms[name, threads](ids), expected)
            row = {"form": name, "threads": threads, "tokens": tokens}
            row |= {"median_ms": statistics.median(found), "fastest_ms": min(found)}
            yield row | {"cosine": float(cosines.mean()), "least_cosine": float(cosines.min())}


def cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: NDArray[np.float32] = (one * other).sum(1) / lengths
    return cosines


def quality(collection: Path, most: int) -> dict[str, float]:
    """nDCG@10 of BM25's first 30, re-ranked: as served, and exactly, by PyTorch in float32."""
    qrels = read_qrels(collection / "qrels.dev.txt.gz")
    queries = [q for q in read_queries(collection / "queries.dev.tsv.gz") if q.query_id in qrels]
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        index = Index.build(read_docs(collection / "collection.tsv.gz"), Path(place, "index"))
        models = {
            f"{name}, {'exact' if exact else 'served'}": Reranker.load(name, exact=exact)
            for name in ("default", "fast")
            for exact in (False, True)
        }
        for query in queries[:: max(1, len(queries) // most)][:most]:
            (top,) = index.top_k([query.text], DEPTH)
            docs = [index.snapshot.doc(number) for number in top.docs.tolist()]
            for name, reranker in models.items():
                scores = reranker.scores(query.text, docs, top.scores.tolist()).values
                own = found.setdefault(name, {}).setdefault(query.query_id, {})
                own.update(zip([doc.doc_id for doc in docs], scores.tolist(), strict=True))
    judged = {query_id: qrels[query_id] for query_id in next(iter(found.values()))}
    return {
        name: evaluate(Run.from_dict(run), judged, ["nDCG@10"]).mean["nDCG@10"]
        for name, run in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="collections' folders")
    parser.add_argument("--queries", type=int, default=50, help="of each collection")
    options = parser.parse_args()
    measured = {path.name: quality(path, options.queries) for path in options.data}
    for collection, found in measured.items():
        print(collection, *(f"{name}: {value:.4f}" for name, value in found.items()), sep="  ")
    rows = list(speed(options.rounds)) if options.rounds else []
    names = list(dict.fromkeys((row["form"], row["threads"]) for row in rows))
    print(f"{'median (fastest), ms':34}" + "".join(f"{n:>18}" for n in TOKENS) + f"{'cosine':>18}")
    for form in names:
        own = [row for row in rows if (row["form"], row["threads"]) == form]
        shown = [f"{row['median_ms']:.2f} ({row['fastest_ms']:.2f})" for row in own]
        least = min(row["least_cosine"] for row in own)
        mean = statistics.mean(row["cosine"] for row in own)
        shown.append(f"{mean:.4f} ({least:.4f})")
        print(f"{f'{form[0]}, {form[1]} thr.':34}" + "".join(f"{cell:>18}" for cell in shown))
    print(json.dumps({"benchmark": "encoders", "rows": rows, "ndcg": measured}))


if __name__ == "__main__":
    main()
