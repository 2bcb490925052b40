"""Table 3 of the TK paper for any number of systems: what each is worth on which kind of query.

    python benchmarks/query_types.py TABLE.json ... --queries queries.test.tsv.gz

Tables are those of `glassrank experiment`, all of the same queries. Queries are grouped as by
`glassrank clusters`; a figure is the mean of a measure over a group's queries, and a star says that
the last system differs there from the one before it (paired t-test, Holm's correction for all
groups).
"""

import argparse
import json
from pathlib import Path

import numpy as np

from glassrank.cli.clusters import query_vectors
from glassrank.corpus import read_queries
from glassrank.measure.clusters import candidate_ks, elbow, inertias, k_means, telling_terms
from glassrank.measure.significance import correct, paired_t_test
from glassrank.ranking import Reranker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", type=Path, help="JSON of glassrank experiment")
    parser.add_argument("--queries", required=True, help="the file of their test queries")
    parser.add_argument("--measure", default="RR@10")
    parser.add_argument("--model", default="fast", help="whose query vectors are grouped")
    parser.add_argument("--k", type=int, help="how many groups; by the elbow unless given")
    options = parser.parse_args()
    tables = [json.loads(path.read_text("utf-8")) for path in options.tables]
    values = {"first stage": np.array(tables[0]["first_stage_per_query"][options.measure])}
    for table in tables:
        for name, seeds in table["systems"].items():
            values[name] = np.mean([seed["per_query"][options.measure] for seed in seeds], 0)
    texts = [query.text for query in read_queries(options.queries)]
    if {len(row) for row in values.values()} != {len(texts)}:
        parser.error("these tables are of other queries than --queries has")
    points = query_vectors(Reranker.load(options.model), texts, quiet=True)
    ks = candidate_ks(len(texts))
    grouping = k_means(points, options.k or elbow(ks, inertias(points, ks)))
    names = telling_terms(texts, grouping.labels.tolist())
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
    main()
