"""What a list of texts gains from its budget: `gr.rank` against BM25 over the same list.

    python benchmarks/lists.py collection.tsv queries.tsv qrels.txt --budgets 50 200 1000
    python benchmarks/lists.py collection.tsv queries.tsv qrels.txt --texts 10 30 100 300 \\
        --model tiny "tiny>default" MiniLM-L-12=FOLDER --plot docs/lists.svg

Each list has one relevant text and others that BM25 finds in the collection, in random order, cut
to so many words. `--model` adds others to the default models: names, folders of published models,
or `A>B` for a cascade. Models and budgets take turns, so that a noisy machine slows all alike.
"""

import argparse
import json
import random
import tempfile
import time
import warnings
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from glassrank_bench.measuring import machine

import glassrank as gr
from glassrank.index.list_bm25 import rank_by_bm25
from glassrank.rerank import BudgetWarning

OURS = "glassrank"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("collection")
    parser.add_argument("queries")
    parser.add_argument("qrels")
    parser.add_argument("--count", type=int, default=100, help="queries")
    parser.add_argument("--texts", type=int, nargs="+", default=[300], help="in a list")
    parser.add_argument("--words", type=int, default=62, help="of a text")
    parser.add_argument("--budgets", type=float, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--model", nargs="+", default=[], metavar="[NAME=]MODEL[>MODEL]")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", BudgetWarning)
    models: dict[str, list[gr.Reranker] | None] = {OURS: None}
    for given in options.model:
        name, _, files = given.rpartition("=")
        models[name or files] = [gr.load(file) for file in files.split(">")]
    tables = {}
    for texts in options.texts:
        lists = make_lists(options, texts)
        tables[texts] = measure(lists, models, options.budgets)
        print(f"{len(lists)} lists of {texts} texts of {options.words} words; {machine()}")
        print(f"{'':32}{'RR@10':>8}{'nDCG@10':>9}{'ms':>10}  depths (mean)")
        for name, row in tables[texts].items():
            print(f"{name:32}{row['RR@10']:8.4f}{row['nDCG@10']:9.4f}{row['ms']:10.2f}", end="  ")
            print(row["depths"], flush=True)
    if options.plot:
        peers = {given.partition("=")[0] for given in options.model if "=" in given}
        draw(tables, list(models), peers, options.budgets, options.plot)
    print(json.dumps({"benchmark": "lists", "lists": options.count, "tables": tables}))


def measure(
    lists: Sequence[tuple[str, list[str], int]],
    models: dict[str, list[gr.Reranker] | None],
    budgets: Sequence[float],
) -> dict[str, dict[str, Any]]:
    """Means of measures and depths, and the median time, of BM25 and each model at each budget."""
    for query, texts, _ in lists[:3]:  # what is learned from the first lists is there for all
        for loaded in models.values():
            gr.rank(query, texts, model=loaded, budget_ms=max(budgets))
    ranks: dict[str, list[int]] = {}
    took: dict[str, list[float]] = {}
    depths: dict[str, list[tuple[int, ...]]] = {}

    def note(name: str, began: float, order: list[int], relevant: int) -> None:
        took.setdefault(name, []).append(1e3 * (time.perf_counter() - began))
        ranks.setdefault(name, []).append(1 + order.index(relevant))

    for query, texts, relevant in lists:
        began = time.perf_counter()
        note("BM25", began, rank_by_bm25(query, texts).docs.tolist(), relevant)
        for budget in budgets:
            for model, loaded in models.items():
                began = time.perf_counter()
                ranking = gr.rank(query, texts, model=loaded, budget_ms=budget)
                name = f"{model}, {budget:g} ms"
                note(name, began, [hit.doc_id for hit in ranking], relevant)
                depths.setdefault(name, []).append(ranking.depths)
    rows = {}
    for name, found in ranks.items():
        rank = np.array(found)
        rows[name] = {
            "RR@10": round(float(np.mean((rank <= 10) / rank)), 4),
            "nDCG@10": round(float(np.mean((rank <= 10) / np.log2(1 + rank))), 4),
            "ms": round(float(np.median(took[name])), 2),
            "depths": np.mean(depths.get(name, [()]), axis=0).round(1).tolist(),
        }
    return rows


def draw(
    tables: dict[int, dict[str, dict[str, Any]]],
    models: list[str],
    peers: Container[str],
    budgets: Sequence[float],
    to: Path,
) -> None:
    """nDCG@10 against the budget, a panel for each length of the list; peers dotted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(tables), figsize=(3.2 * len(tables), 3.6), sharey=True)
    for axes, (texts, rows) in zip(np.atleast_1d(panels), tables.items(), strict=True):
        for model in models:
            values = [rows[f"{model}, {budget:g} ms"]["nDCG@10"] for budget in budgets]
            axes.plot(budgets, values, ":s" if model in peers else "-o", markersize=3, label=model)
        axes.axhline(rows["BM25"]["nDCG@10"], color="#bbbbbb", linewidth=1, label="BM25")
        axes.set_xscale("log")
        axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets], fontsize=7)
        axes.set_title(f"{texts} texts", fontsize=9)
        axes.set_xlabel("budget in ms", fontsize=8)
        axes.grid(alpha=0.25)
    np.atleast_1d(panels)[0].set_ylabel("nDCG@10")
    np.atleast_1d(panels)[-1].legend(fontsize=7, frameon=False)
    figure.text(0.5, 0.0, machine(), ha="center", fontsize=7)
    figure.tight_layout()
    figure.savefig(to)


def make_lists(options: argparse.Namespace, count: int) -> list[tuple[str, list[str], int]]:
    """Queries, texts, and the place of the relevant one; the same every time."""
    draw = random.Random(7)
    docs = {doc.doc_id: doc for doc in gr.read_docs(options.collection)}
    qrels = gr.read_qrels(options.qrels)
    queries = sorted(gr.read_queries(options.queries))
    draw.shuffle(queries)
    lists: list[tuple[str, list[str], int]] = []
    with tempfile.TemporaryDirectory() as folder:
        index = gr.Index.build(docs.values(), Path(folder) / "index")
        for query in queries:
            relevant = [name for name, grade in qrels.get(query.query_id, {}).items() if grade > 0]
            if not relevant or len(lists) == options.count:
                continue
            others = [
                hit.doc_id for hit in index.search(query.text, 1000) if hit.doc_id not in relevant
            ]
            chosen = [relevant[0], *draw.sample(others, min(len(others), count - 1))]
            draw.shuffle(chosen)
            texts = [" ".join(docs[name].text.split()[: options.words]) for name in chosen]
            lists.append((query.text, texts, chosen.index(relevant[0])))
    return lists


if __name__ == "__main__":
    main()
