"""Whether a cascade is worth its time: its first model alone, its last alone, and both, at budgets.

    glassrank encode my.index --model fast && glassrank encode my.index --model default
    python benchmarks/cascade.py my.index queries.tsv qrels.txt --budgets 5 10 20 50 100

Every query is asked at every budget, and what had been re-ranked when the time was up is measured.
"""

import argparse

import numpy as np

from glassrank.corpus import read_qrels, read_queries
from glassrank.measure import evaluate
from glassrank.ranking import Pipeline, Reranker
from glassrank.retrieve import Index
from glassrank.types import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("index")
    parser.add_argument("queries")
    parser.add_argument("qrels")
    parser.add_argument("--models", nargs="+", default=["fast", "default"])
    parser.add_argument("--measure", default="nDCG@10")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--budgets", type=float, nargs="+", default=[2, 5, 10, 20, 50, 100])
    options = parser.parse_args()
    index, qrels = Index(options.index), read_qrels(options.qrels)
    queries = [query for query in read_queries(options.queries) if query.query_id in qrels]
    models = [Reranker.load(name) for name in options.models]
    pipelines = {
        name: Pipeline(index, chosen, candidates=options.candidates)
        for name, chosen in (
            (options.models[0], models[0]),
            (options.models[-1], models[-1]),
            (", then ".join(options.models), models),
        )
    }
    print(f"{options.measure} (documents that the first model reached); {len(queries)} queries")
    print("budget, ms".ljust(12) + "".join(name.rjust(24) for name in pipelines))
    for budget in options.budgets:
        print(f"{budget:<12g}", end="")
        for search in pipelines.values():
            rankings = [
                (query.query_id, search(query.text, options.candidates, budget_ms=budget))
                for query in queries
            ]
            value = evaluate(Run.from_rankings(rankings), qrels, [options.measure])
            depth = np.mean([ranking.depth for _, ranking in rankings])
            print(f"{value.mean[options.measure]:.4f} ({depth:.0f})".rjust(24), end="", flush=True)
        print()


if __name__ == "__main__":
    main()
