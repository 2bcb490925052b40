"""What a list of texts gains from its budget: `gr.rank` against BM25 over the same list.

    python benchmarks/lists.py collection.tsv queries.tsv qrels.txt --budgets 50 200 1000

Each list has one relevant text and others that BM25 finds in the collection, in random order, cut
to so many words. Budgets are taken in turn, so that a noisy machine slows all alike.
"""

import argparse
import json
import random
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import glassrank as gr
from glassrank.index.list_bm25 import rank_by_bm25
from glassrank.rerank import BudgetWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("collection")
    parser.add_argument("queries")
    parser.add_argument("qrels")
    parser.add_argument("--count", type=int, default=100, help="queries")
    parser.add_argument("--texts", type=int, default=300, help="in a list")
    parser.add_argument("--words", type=int, default=62, help="of a text")
    parser.add_argument("--budgets", type=float, nargs="+", default=[50, 200, 1000])
    options = parser.parse_args()
    lists = make_lists(options)
    warnings.simplefilter("ignore", BudgetWarning)
    for query, texts, _ in lists[:3]:  # what is learned from the first lists is there for all
        gr.rank(query, texts, budget_ms=max(options.budgets))

    values: dict[str, list[float]] = {}
    took: dict[str, list[float]] = {}
    depths: dict[str, list[tuple[int, ...]]] = {}
    for query, texts, relevant in lists:
        began = time.perf_counter()
        order = rank_by_bm25(query, texts).docs.tolist()
        took.setdefault("BM25", []).append(1e3 * (time.perf_counter() - began))
        values.setdefault("BM25", []).append(reciprocal_rank(order, relevant))
        for budget in options.budgets:
            name = f"{budget:g} ms"
            began = time.perf_counter()
            ranking = gr.rank(query, texts, budget_ms=budget)
            took.setdefault(name, []).append(1e3 * (time.perf_counter() - began))
            order = [hit.doc_id for hit in ranking]
            values.setdefault(name, []).append(reciprocal_rank(order, relevant))
            depths.setdefault(name, []).append(ranking.depths)

    print(f"{len(lists)} lists of {options.texts} texts of {options.words} words")
    print(f"{'':10}{'RR@10':>8}{'ms':>10}  depths (mean)")
    rows = {}
    for name, found in values.items():
        mean = np.mean(depths[name], axis=0) if name in depths else np.zeros(0)
        rows[name] = {
            "RR@10": round(float(np.mean(found)), 4),
            "ms": round(float(np.median(took[name])), 2),
            "depths": mean.round(1).tolist(),
        }
        print(
            f"{name:10}{rows[name]['RR@10']:8.4f}{rows[name]['ms']:10.2f}  {rows[name]['depths']}"
        )
    print(json.dumps({"benchmark": "lists", "lists": len(lists), "rows": rows}))


def make_lists(options: argparse.Namespace) -> list[tuple[str, list[str], int]]:
    """Queries, texts, and the place of the relevant one; the same every time."""
    draw = random.Random(7)
    docs = {doc.doc_id: doc for doc in gr.read_docs(options.collection)}
    qrels = gr.read_qrels(options.qrels)
    queries = sorted(gr.read_queries(options.queries))
    draw.shuffle(queries)
    lists = []
    with tempfile.TemporaryDirectory() as folder:
        index = gr.Index.build(docs.values(), Path(folder) / "index")
        for query in queries:
            relevant = [name for name, grade in qrels.get(query.query_id, {}).items() if grade > 0]
            if not relevant or len(lists) == options.count:
                continue
            others = [
                hit.doc_id for hit in index.search(query.text, 1000) if hit.doc_id not in relevant
            ]
            chosen = [relevant[0], *draw.sample(others, min(len(others), options.texts - 1))]
            draw.shuffle(chosen)
            texts = [" ".join(docs[name].text.split()[: options.words]) for name in chosen]
            lists.append((query.text, texts, chosen.index(relevant[0])))
    return lists


def reciprocal_rank(order: list[int], relevant: int) -> float:
    """Of the relevant one, if it is among the first ten."""
    best = order[:10]
    return 1 / (1 + best.index(relevant)) if relevant in best else 0.0


if __name__ == "__main__":
    main()
