"""Whether a cascade is worth its time: its first model alone, its last alone, and both, at budgets.

    glassrank encode my.index --model fast && glassrank encode my.index --model default
    python benchmarks/cascade.py my.index queries.tsv qrels.txt --budgets 5 10 20 50 100

Every query is asked at every budget, by each in turn, a few times, and what had been re-ranked when
the time was up is measured: the mean of all rounds.
"""

import argparse
import warnings

import numpy as np

from glassrank.corpus import read_qrels, read_queries
from glassrank.index import Index
from glassrank.rerank import BudgetWarning, Pipeline, Reranker
from glassrank.research.evaluate import evaluate
from glassrank.types import Ranking, Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("index")
    parser.add_argument("queries")
    parser.add_argument("qrels")
    parser.add_argument("--models", nargs="+", default=["fast", "default"])
    parser.add_argument("--measure", default="nDCG@10")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--budgets", type=float, nargs="+", default=[2, 5, 10, 20, 50, 100])
    parser.add_argument("--rounds", type=int, default=3, help="how often a query is asked")
    options = parser.parse_args()
    warnings.simplefilter("ignore", BudgetWarning)
    measures = [options.measure]
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
        found: dict[str, list[tuple[str, Ranking]]] = {name: [] for name in pipelines}
        for query in (query for _ in range(options.rounds) for query in queries):
            for name, search in pipelines.items():  # in turn: a noisy machine slows all alike
                ranking = search(query.text, options.candidates, budget_ms=budget)
                found[name].append((query.query_id, ranking))
        print(f"{budget:<12g}", end="")
        for rankings in found.values():
            rounds = [
                evaluate(Run.from_rankings(rankings[first : first + len(queries)]), qrels, measures)
                for first in range(0, len(rankings), len(queries))
            ]
            value = np.mean([result.mean[options.measure] for result in rounds])
            depth = np.mean([ranking.depth for _, ranking in rankings])
            print(f"{value:.4f} ({depth:.0f})".rjust(24), end="", flush=True)
        print()


if __name__ == "__main__":
    main()
