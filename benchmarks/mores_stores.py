"""What storing a MORES' documents saves and costs: time, room and quality, on a judged collection.

    python benchmarks/mores_stores.py my.model my.index queries.tsv qrels.txt
    python benchmarks/mores_stores.py my.model my.index queries.tsv qrels.txt --depth 50

The first stage's best candidates of each judged query are ranked live in float32, live as the
pipeline does it (rounded where this machine multiplies bfloat16), and from stores of S1 and S2 in
float32, bf16 and int8. A float32 store is ranked in float32, the others as the pipeline does it.
Only candidates are stored, in a folder that is removed at the end: an S2 store in float32 is large.
For each way the table has bytes for each document; RR@10; the share of queries whose ten best
documents are those of live float32, and in the same order; and seconds for each query, its encoding
included and the first stage not: medians, all ways taking turns with each query, after a warm-up.
The last line is JSON.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import read_qrels, read_queries
from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.io.load import load_model
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.evaluate import evaluate
from glassrank.research.papers.mores import MORES
from glassrank.types import Qrels, Query, Ranking, Run

DTYPES = ("float32", "bf16", "int8")
TOP = 10


@dataclass(frozen=True)
class Candidates:
    query: Query
    numbers: NDArray[np.int64]  # (D,), in the small index
    scores: NDArray[np.float32]  # (D,), the first stage's


@dataclass
class Way:
    """One way to rank, and what it gave."""

    name: str
    pipeline: Pipeline
    bytes_per_doc: float = 0.0
    rankings: dict[str, Ranking] = field(default_factory=dict)

    def rank(self, asked: Candidates) -> None:
        ranking = self.pipeline.rerank(asked.query.text, asked.numbers, asked.scores)
        self.rankings[asked.query.query_id] = ranking

    def top(self, query_id: str) -> list[str]:
        return [hit.doc_id for hit in self.rankings[query_id].hits[:TOP]]

    def seconds(self) -> float:
        times = [r.timing["query"] + r.timing["scoring"] for r in self.rankings.values()]
        return statistics.median(times) / 1000


def candidates(
    index: Index, queries: Sequence[Query], depth: int, folder: Path
) -> tuple[Index, list[Candidates]]:
    """Each query's best by the first stage, and an index of those documents alone."""
    found = index.top_k([query.text for query in queries], depth)
    ids = [[index.snapshot.doc_id(number) for number in one.docs.tolist()] for one in found]
    needed = dict.fromkeys(doc_id for own in ids for doc_id in own)
    small = Index.build(map(index.doc, needed), folder)
    return small, [
        Candidates(query, np.array([small.snapshot.find(i) for i in own], np.int64), one.scores)
        for query, own, one in zip(queries, ids, found, strict=True)
        if own
    ]


def all_ways(index: Index, model: Path, folder: Path) -> Iterator[Way]:
    saved = load_model(model)
    if not isinstance(saved.model, MORES):
        raise InputError(f"{model} holds a {saved.model.name}, a MORES was expected")
    exact, fast = Reranker(saved, exact=True), Reranker(saved)
    yield Way("live float32", Pipeline(index, exact, use_store=False))
    yield Way("live", Pipeline(index, fast, use_store=False))
    for reuse in ("s1", "s2"):
        for dtype in DTYPES:
            name = f"{reuse.upper()} {dtype}"
            report = encode_index(index, saved, folder / name, dtype, reuse=reuse)
            print(
                f"{name}: {report.documents:,} documents in {report.seconds:.1f} s; "
                f"{report.cut:,} are longer than the model reads",
                flush=True,
            )
            store = Store.open(folder / name, saved.model, index.snapshot)
            ranks = exact if dtype == "float32" else fast
            pipeline = Pipeline(index, ranks, store=store)
            yield Way(name, pipeline, report.bytes_per_document)


def result(way: Way, live: Way, qrels: Qrels) -> dict[str, float | str]:
    run = {
        query_id: {hit.doc_id: hit.score for hit in ranking}
        for query_id, ranking in way.rankings.items()
    }
    tops = [(way.top(query_id), live.top(query_id)) for query_id in run]
    return {
        "way": way.name,
        "bytes for each document": way.bytes_per_doc,
        "RR@10": evaluate(Run.from_dict(run), qrels, ["RR@10"]).mean["RR@10"],
        "same ten": statistics.mean(set(own) == set(wanted) for own, wanted in tops),
        "same order": statistics.mean(own == wanted for own, wanted in tops),
        "seconds": way.seconds(),
        "ratio": live.seconds() / way.seconds(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="a folder with a trained MORES")
    parser.add_argument("index", type=Path)
    parser.add_argument("queries_file", help="TSV, JSONL or TREC topics")
    parser.add_argument("qrels")
    parser.add_argument("--queries", type=int, default=100, help="the first so many judged ones")
    parser.add_argument("--depth", type=int, default=100, help="candidates of each")
    parser.add_argument("--folder", help="where there is room for stores; the system's own if none")
    options = parser.parse_args()
    qrels = read_qrels(options.qrels)
    queries = [query for query in read_queries(options.queries_file) if query.query_id in qrels]
    queries = queries[: options.queries]
    with tempfile.TemporaryDirectory(prefix="mores-stores-", dir=options.folder) as folder:
        small, asked = candidates(
            Index(options.index), queries, options.depth, Path(folder) / "index"
        )
        ways = list(all_ways(small, options.model, Path(folder)))
        for one in (asked[0], *asked):  # the first once more, as a warm-up
            for way in ways:
                way.rank(one)
        own = {one.query.query_id: qrels[one.query.query_id] for one in asked}
        rows = [result(way, ways[0], own) for way in ways]
    print(f"{len(asked):,} queries, {options.depth} candidates each of {len(small):,} documents")
    print(
        f"{'way':14} {'bytes':>10} {'RR@10':>7} {'same ten':>9} {'same order':>11} {'seconds':>9}"
    )
    for row in rows:
        print(
            f"{row['way']:14} {row['bytes for each document']:10,.0f} {row['RR@10']:7.4f} "
            f"{row['same ten']:9.2f} {row['same order']:11.2f} {row['seconds']:9.4f} "
            f"{row['ratio']:6.1f}x"
        )
    print(json.dumps({"queries": len(asked), "depth": options.depth, "rows": rows}))


if __name__ == "__main__":
    main()
