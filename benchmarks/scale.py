"""How time grows with the collection, on one machine and on a Ray cluster; and the slowest shard.

    python benchmarks/scale.py                                       # minutes
    python benchmarks/scale.py --sizes 10000 100000 1000000 --model tiny
    python benchmarks/scale.py --sizes 100000 --ray ADDRESS --shards 8

Made-up passages are indexed, encoded and searched by one process, and by shards on workers of Ray:
seconds for each thousand passages, milliseconds of a query, how deep it came within its budget, and
whether both gave the same hits where there is none. A first thousand, which is not shown, compiles
and begins the workers. Encoding takes nearly all of the time, so for many passages there is a tiny
model, untrained: how time grows is the same. Then, from the times that shards took, what a query
over a hundred of them would: waiting for all, asking a second copy of a slow one (a hedged
request), or leaving slow ones out. The last line is JSON.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from first_stage import made_up_docs
from glassrank_bench.measuring import processor

from glassrank.cluster import ShardedIndex, ShardedPipeline
from glassrank.cluster.building import Encoding, build_shards, encode_shards
from glassrank.cluster.cluster import RayShards, connect, run_tasks
from glassrank.embeddings import encode_index
from glassrank.index import BM25, Index
from glassrank.models import EmbeddingTable
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.papers.tk import TK
from glassrank.types import Doc

DRAWS = 20_000


def tiny_model(docs: Sequence[Doc], folder: Path) -> str:
    """TK with one layer and 32 dimensions, for the words of these passages."""
    counts = Counter(word for doc in docs[:20_000] for word in doc.text.split())
    words = [word for word, _ in counts.most_common(30_000)]
    layer = ContextualConfig(layers=1, heads=2, attention_size=16, feed_forward=32)
    vectors = torch.randn(len(words) + 2, 32, generator=torch.Generator().manual_seed(0))  # (V, E)
    model = TK(TKConfig(size=32, contextual=layer), EmbeddingTable(vectors, trained=False))
    save_model(folder, model, Usage(), ["<pad>", "<unk>", *words], "untrained, to measure with")
    return str(folder)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def queries_of(docs: Sequence[Doc], count: int) -> list[str]:
    """A few words of some documents each."""
    step = max(1, len(docs) // count)
    return [" ".join(doc.text.split()[3:7]) for doc in docs[::step][:count]]


def searched(search: Pipeline, queries: Sequence[str], budget_ms: float) -> dict[str, float]:
    """Milliseconds of whole queries, and how deep they came."""
    for query in queries[:10]:
        search(query, budget_ms=budget_ms)
    times, depths, late = [], [], 0
    for query in queries:
        took, ranking = seconds(lambda: search(query, budget_ms=budget_ms))  # noqa: B023
        times.append(1e3 * took)
        depths.append(ranking.depth)
        late += bool(ranking.missing)
    p50, p95, p99 = np.percentile(times, [50, 95, 99]).tolist()
    depth = float(np.mean(depths))
    return {"p50": p50, "p95": p95, "p99": p99, "depth": depth, "left_out": late / len(queries)}


def on_one_machine(
    docs: Sequence[Doc], folder: Path, model: str
) -> tuple[dict[str, float], Pipeline]:
    indexing, index = seconds(lambda: Index.build(docs, folder / "one"))
    encoding, _ = seconds(lambda: encode_index(index, load_for_inference(model)))
    return {"index_s": indexing, "encode_s": encoding}, Pipeline(index, Reranker.load(model))


def on_workers(
    docs: Sequence[Doc], folder: Path, shards: int, model: str
) -> tuple[dict[str, float], ShardedPipeline]:
    path = folder / "shards"
    indexing, index = seconds(lambda: build_shards(docs, path, shards, run_tasks, source="made up"))
    given = index, load_for_inference(model), Encoding(model)
    encoding, _ = seconds(lambda: encode_shards(*given, run_tasks))
    sharded = ShardedIndex(path, RayShards(shards, [model]))
    return (
        {"index_s": indexing, "encode_s": encoding},
        ShardedPipeline(sharded, Reranker.load(model)),
    )


def shard_times(search: ShardedPipeline, queries: Sequence[str]) -> list[float]:
    """Of one shard that is asked alone, milliseconds of both rounds: the way, search, scoring."""
    index, times = search.index, []
    view, snapshot = index.views[0], index.snapshot
    for query in queries:
        words = search.reranker.encode_query(query)
        terms = {term: snapshot.term(term).statistics for term in index.terms(query)}
        plain = [dict.fromkeys(terms, 1.0)]
        began = time.perf_counter()
        asked = (view, plain, 1000, BM25(), snapshot.collection, terms, None)
        (top,) = index.shards.call("search", {0: asked})[0]
        scored = (view, 0, words, top.docs[:100], top.scores[:100], None)
        index.shards.call("score", {0: scored})
        times.append(1e3 * (time.perf_counter() - began))
    return times


def tail(times: Sequence[float], shards: int) -> dict[str, dict[str, float]]:
    """What the slowest of so many shards costs, if each takes a time like these, by chance."""
    rng = np.random.default_rng(0)
    measured = np.array(times)
    first = rng.choice(measured, (DRAWS, shards))
    after = float(np.percentile(measured, 95))
    hedged = np.minimum(first, after + rng.choice(measured, (DRAWS, shards)))
    by = float(np.percentile(measured, 99))
    answered = first <= by
    forms = {
        "one shard": (rng.choice(measured, DRAWS), 1.0, 1.0),
        "all": (first.max(1), 1.0, 1.0),
        "hedged after p95": (hedged.max(1), 1.0, 1 + float((first > after).mean())),
        "left out after p99": (np.minimum(first.max(1), by), float(answered.mean()), 1.0),
    }
    table = {}
    for name, (took, share, load) in forms.items():
        p50, p95, p99 = np.percentile(took, [50, 95, 99]).tolist()
        table[name] = {"p50": p50, "p95": p95, "p99": p99, "answered": share, "requests": load}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 20_000])
    parser.add_argument("--model", default="fast", help="By name, or 'tiny'.")
    parser.add_argument("--words", type=int, default=60, help="In a passage.")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--budget-ms", type=float, default=50.0)
    parser.add_argument("--ray", default="local")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--many", type=int, default=100, help="Shards to imagine.")
    settings = parser.parse_args()
    rows, times = [], []
    print(f"{'passages':>9} {'form':<12}{'index':>8}{'encode':>9}{'p50':>8}{'p95':>8}{'depth':>8}")
    print(f"{'':>9} {'':<12}{'s/1000':>8}{'s/1000':>9}{'ms':>8}{'ms':>8}")
    with connect(settings.ray):
        for size in [1000, *settings.sizes]:
            docs = list(made_up_docs(size, settings.words))
            queries = queries_of(docs, settings.queries)
            folder = Path(tempfile.mkdtemp(prefix="scale-"))
            try:
                name = settings.model
                model = tiny_model(docs, folder / "model") if name == "tiny" else name
                built, one = on_one_machine(docs, folder, model)
                rows.append({"passages": size, "form": "one machine", **built})
                rows[-1] |= searched(one, queries, settings.budget_ms)
                built, several = on_workers(docs, folder, settings.shards, model)
                rows.append({"passages": size, "form": f"{settings.shards} workers", **built})
                rows[-1] |= searched(several, queries, settings.budget_ms)
                same = all(one(query).hits == several(query).hits for query in queries[:20])
                rows[-1]["same_hits"] = same
                times = shard_times(several, queries)
                several.index.shards.close()
            finally:
                shutil.rmtree(folder)
            if size == 1000:
                rows.clear()
            for row in rows[-2:]:
                print(
                    f"{size:>9,} {row['form']:<12}{1e3 * row['index_s'] / size:>8.3f}"
                    f"{1e3 * row['encode_s'] / size:>9.2f}{row['p50']:>8.1f}{row['p95']:>8.1f}"
                    f"{row['depth']:>8.0f}",
                    flush=True,
                )
    table = tail(times, settings.many)
    print(
        f"\n{settings.many} shards  {'p50':>21}{'p95':>8}{'p99':>8}{'answered':>10}{'requests':>10}"
    )
    for name, row in table.items():
        print(
            f"{name:<22}{row['p50']:>10.1f}{row['p95']:>8.1f}{row['p99']:>8.1f}"
            f"{row['answered']:>10.2%}{row['requests']:>10.2f}"
        )
    about = {"processor": processor(), "shards": settings.many}
    print(json.dumps({**about, "rows": rows, "tail": table}))


if __name__ == "__main__":
    main()
