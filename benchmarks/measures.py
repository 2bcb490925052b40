"""How long measures take: ours beside pytrec_eval and ir-measures, on one random run.

    python benchmarks/measures.py [--queries 7000] [--docs 1000] [--relevant 1] [--peer-queries 200]

Peers are timed on fewer queries, because all cutoffs of all queries would take them minutes and
gigabytes; the table compares milliseconds for one query. Their dictionaries are built outside the
clock. No peer knows re-ranking depths, so there each depth is sorted and given to pytrec_eval, for
a few depths. `error` is the largest difference of a value from the peer's.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glassrank.research.evaluate import evaluate, evaluate_at_cutoffs, evaluate_at_depths
from glassrank.types import Qrels, Run

SEVEN = ["RR@10", "nDCG@10", "AP", "AP@1000", "P@20", "R@100", "ERR@20"]
PYTREC_SEVEN = {"recip_rank", "ndcg_cut.10", "map", "map_cut.1000", "P.20", "recall.100"}
AT_CUTOFFS = {"nDCG": "ndcg_cut", "AP": "map_cut", "P": "P", "R": "recall"}
SAMPLED_DEPTHS = (10, 100, 1000)


def random_runs(queries: int, docs: int, relevant: float) -> tuple[Run, Run, Qrels]:
    """A first and a second stage with the same documents, and 1 + Poisson relevant ones."""
    rng = np.random.default_rng(0)
    rows = [
        (str(query), [f"d{number}" for number in rng.permutation(10 * docs)[:docs].tolist()])
        for query in range(queries)
    ]
    scores = np.sort(rng.random((queries, docs)))[:, ::-1]
    first = Run.from_rows((query, ids, s) for (query, ids), s in zip(rows, scores, strict=True))
    second = Run(first.query_ids, first.offsets, first.doc_ids, rng.random(queries * docs))
    qrels = {}
    for query, ids in rows:
        count = min(docs, 1 + rng.poisson(relevant - 1))
        places, grades = rng.permutation(docs)[:count], rng.integers(1, 4, count)
        qrels[query] = {ids[i]: int(g) for i, g in zip(places, grades, strict=True)}
    return first, second, qrels


def as_dict(run: Run, queries: int) -> dict[str, dict[str, float]]:
    lists = zip(range(queries), run.items(), strict=False)
    return {
        query: dict(zip(docs, scores.tolist(), strict=True)) for _, (query, docs, scores) in lists
    }


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=7000)
    parser.add_argument("--docs", type=int, default=1000)
    parser.add_argument("--relevant", type=float, default=1.07, help="per query; MS MARCO has 1.07")
    parser.add_argument("--peer-queries", type=int, default=200)
    args = parser.parse_args()
    first, second, qrels = random_runs(args.queries, args.docs, args.relevant)
    few = min(args.queries, args.peer_queries)
    few_qrels = {query: qrels[query] for query in first.query_ids[:few]}
    first_dict, second_dict = as_dict(first, few), as_dict(second, few)
    cutoffs = range(1, args.docs + 1)
    rows: list[dict[str, Any]] = []

    def add(job: str, name: str, seconds: float, queries: int, error: float | None = None) -> None:
        ours = next((row for row in rows if row["job"] == job), None)
        ms = 1000 * seconds / queries
        ratio = ms / ours["ms_per_query"] if ours else 1.0
        rows.append(
            {
                "job": job,
                "system": name,
                "queries": queries,
                "seconds": round(seconds, 3),
                "ms_per_query": ms,
                "times_ours": round(ratio, 2),
                "error": error,
            }
        )

    seconds, seven = timed(lambda: evaluate(first, qrels, SEVEN))
    add("seven measures", "glassrank", seconds, args.queries)
    seconds, at_cutoffs = timed(lambda: evaluate_at_cutoffs(first, qrels, [*AT_CUTOFFS], cutoffs))
    add("four measures at all cutoffs", "glassrank", seconds, args.queries)
    seconds, curves = timed(
        lambda: evaluate_at_depths(first, second, qrels, ["nDCG@10"], cutoffs, per_query=True)
    )
    add("nDCG@10 at all depths", "glassrank", seconds, args.queries)
    seconds, _ = timed(lambda: evaluate_at_depths(first, second, qrels, SEVEN, cutoffs))
    add("seven measures at all depths", "glassrank", seconds, args.queries)

    try:
        import pytrec_eval
    except ImportError:
        print("skipped: pytrec_eval is not installed")
    else:

        def trec(run: dict[str, dict[str, float]], names: set[str]) -> dict[str, dict[str, float]]:
            result: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(
                few_qrels, names
            ).evaluate(run)
            return result

        seconds, found = timed(lambda: trec(first_dict, PYTREC_SEVEN))
        theirs = [found[query]["ndcg_cut_10"] for query in few_qrels]
        error = float(np.abs(seven.per_query["nDCG@10"][:few] - theirs).max())
        add("seven measures", "pytrec_eval (six, no ERR)", seconds, few, error)

        all_names = {f"{n}.{','.join(map(str, cutoffs))}" for n in AT_CUTOFFS.values()}
        seconds, found = timed(lambda: trec(first_dict, all_names))
        error = max(
            float(
                np.abs(at_cutoffs[n][k - 1, :few] - [found[q][f"{t}_{k}"] for q in few_qrels]).max()
            )
            for n, t in AT_CUTOFFS.items()
            for k in cutoffs
        )
        add("four measures at all cutoffs", "pytrec_eval", seconds, few, error)

        def reranked(depth: int) -> dict[str, dict[str, float]]:
            out = {}
            for query, docs in first_dict.items():
                ranked = sorted(docs, key=lambda doc: (docs[doc], doc), reverse=True)
                scores = second_dict[query]
                top = sorted(ranked[:depth], key=lambda doc: (scores[doc], doc), reverse=True)
                out[query] = {doc: -float(i) for i, doc in enumerate(top + ranked[depth:])}
            return trec(out, {"ndcg_cut.10"})

        total, error = 0.0, 0.0
        sampled = [depth for depth in SAMPLED_DEPTHS if depth <= args.docs]
        for depth in sampled:
            seconds, found = timed(partial(reranked, depth))
            total += seconds
            theirs = [found[query]["ndcg_cut_10"] for query in few_qrels]
            ours = curves["nDCG@10"].per_query[depth - 1, :few]
            error = max(error, float(np.abs(ours - theirs).max()))
        name = f"sort + pytrec_eval (from {len(sampled)} depths)"
        add("nDCG@10 at all depths", name, total / len(sampled) * args.docs, few, error)

    try:
        import ir_measures
    except ImportError:
        print("skipped: ir-measures is not installed")
    else:
        wanted = [ir_measures.parse_measure(name) for name in SEVEN]
        try:
            seconds, found = timed(
                lambda: list(ir_measures.iter_calc(wanted, few_qrels, first_dict))
            )
        except ValueError as error_:  # no perl for ERR
            print(f"skipped: ir-measures: {error_}")
        else:
            place = {query: i for i, query in enumerate(few_qrels)}
            error = max(
                abs(m.value - seven.per_query[str(m.measure)][place[m.query_id]]) for m in found
            )
            add("seven measures", "ir-measures (ERR by gdeval)", seconds, few, error)

    print(f"{args.queries} queries x {args.docs} documents, {args.relevant} relevant for each\n")
    print(
        f"{'job':30}{'system':38}{'queries':>8}{'seconds':>9}{'ms/query':>10}{'x ours':>9}  error"
    )
    for row in sorted(rows, key=lambda row: row["job"]):
        error_text = "" if row["error"] is None else f"{row['error']:.0e}"
        print(
            f"{row['job']:30}{row['system']:38}{row['queries']:8}{row['seconds']:9.2f}"
            f"{row['ms_per_query']:10.3f}{row['times_ours']:9.1f}  {error_text}"
        )
    print(json.dumps({"benchmark": "measures", **vars(args), "rows": rows}))


if __name__ == "__main__":
    main()
