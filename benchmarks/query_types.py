"""Table 3 of the TK paper for any number of systems: what each is worth on which kind of query.

    python benchmarks/query_types.py TABLE.json ... --queries queries.test.tsv.gz
    python benchmarks/query_types.py BM25.run P1.run ... --queries queries.tsv --qrels qrels.txt

Tables are those of `glassrank experiment`, all of the same queries; of run files, the first is the
first stage. Several files of queries, judgments and of each system's runs (`2019.run,2020.run`)
are taken together. Queries are grouped as by
`glassrank clusters`; a figure is the mean of a measure over a group's queries, and a star says that
the last system differs there from the one before it (paired t-test, Holm's correction for all
groups).
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import read_qrels, read_queries, read_run
from glassrank.errors import GlassrankError
from glassrank.rerank import Reranker
from glassrank.research.commands.clusters import query_vectors
from glassrank.research.evaluate.clusters import (
    candidate_ks,
    compute_inertias,
    find_elbow,
    k_means,
    label_clusters,
)
from glassrank.research.evaluate.evaluate import evaluate
from glassrank.research.evaluate.significance import correct, paired_t_test

Values = dict[str, NDArray[np.float64]]
"""Of each system, a value for each query."""


def of_tables(paths: Sequence[str], measure: str) -> Values:
    tables = [json.loads(Path(path).read_text("utf-8")) for path in paths]
    values = {"first stage": np.array(tables[0]["first_stage_per_query"][measure])}
    for table in tables:
        for name, seeds in table["systems"].items():
            values[name] = np.mean([seed["per_query"][measure] for seed in seeds], 0)
    return values


def of_runs(names: Sequence[str], qrels: Sequence[str], ids: Sequence[str], measure: str) -> Values:
    values: Values = {}
    for number, paths in enumerate(names):
        by_id: dict[str, float] = {}
        for path, judgments in zip(paths.split(","), qrels, strict=True):
            result = evaluate(read_run(path), read_qrels(judgments), [measure])
            by_id |= dict(zip(result.query_ids, result.per_query[measure].tolist(), strict=True))
        name = Path(paths.split(",")[0]).name.split(".")[0]
        values[name if number else "first stage"] = np.array([by_id[query] for query in ids])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("systems", nargs="+", help="JSON of glassrank experiment, or run files")
    parser.add_argument("--queries", required=True, nargs="+", help="files of their test queries")
    parser.add_argument("--qrels", nargs="+", default=[], help="of run files: as many")
    parser.add_argument("--measure", default="RR@10")
    parser.add_argument("--model", default="fast", help="whose query vectors are grouped")
    parser.add_argument("--k", type=int, help="how many groups; by the elbow unless given")
    options = parser.parse_args()
    queries = [query for path in options.queries for query in read_queries(path)]
    if options.qrels:
        judged = {query for path in options.qrels for query in read_qrels(path)}
        queries = [query for query in queries if query.query_id in judged]
        ids = [query.query_id for query in queries]
        values = of_runs(options.systems, options.qrels, ids, options.measure)
    else:
        values = of_tables(options.systems, options.measure)
    texts = [query.text for query in queries]
    if {len(row) for row in values.values()} != {len(texts)}:
        parser.error("these tables are of other queries than --queries has")
    points = query_vectors(Reranker.load(options.model), texts, quiet=True)
    ks = candidate_ks(len(texts))
    grouping = k_means(points, options.k or find_elbow(ks, compute_inertias(points, ks)))
    names = label_clusters(texts, grouping.labels.tolist())
    groups = [np.flatnonzero(grouping.labels == label) for label in range(len(names))]
    *_, before, last = values
    tests = [paired_t_test(values[last][group], values[before][group]) for group in groups]
    corrected = correct([test.p_value for test in tests])
    print(f"| queries | | {' | '.join(values)} |\n|---|---|{'---|' * len(values)}")
    gains = [float(np.mean(values[last][g] - values["first stage"][g])) for g in groups]
    for place in np.argsort(gains)[::-1].tolist():
        group = groups[place]
        cells = [f"{np.mean(row[group]):.3f}" for row in values.values()]
        star = "*" if corrected[place] < 0.05 else ""
        print(f"| {' '.join(names[place])} | {len(group)} | {' | '.join(cells)}{star} |")
    print(f"| all | {len(texts)} | {' | '.join(f'{row.mean():.3f}' for row in values.values())} |")


if __name__ == "__main__":
    try:
        main()
    except (GlassrankError, OSError) as error:
        raise SystemExit(str(error)) from None
