"""What is found within a time: BM25 and re-ranking, vectors, both fused, and the neighbour graph.

    python benchmarks/finding.py DATA/scifact DATA/nfcorpus --folder BUILT --plot docs/finding.svg
    python benchmarks/finding.py DATA/nfcorpus --folder BUILT --split dev --queries 50
    python benchmarks/finding.py DATA/scifact --folder BUILT --vectors bge-small=FOLDER \\
        --cross-encoder FOLDER
    python benchmarks/finding.py DATA/scifact DATA/nfcorpus --folder BUILT --million

A collection is a folder with `collection.tsv.gz`, `queries.SPLIT.tsv.gz` and `qrels.SPLIT.txt.gz`.
Indexes and stores are made in `--folder` where they are missing, and kept there: what vectors and
graph add to a store in bytes and seconds is measured by itself. Then each query goes through every
system in turn, at every budget: all queries for 100 hits (nDCG@10, R@100, the times), and then for
1,000 (R@1000), since the time that hits take is learned, too. "top 1,000" and "all" re-rank so many
without a budget. With `--depths` so many candidates are re-ranked in place of budgets: what then is
found is the same on every machine.

`--vectors` are other people's, in FAISS, fused with BM25 by reciprocal ranks; below what they need
for a query they are BM25. `--cross-encoder` ranks what the first of them finds in what time is
left. `--million` builds and searches a million short documents: pieces of the collections' texts
with the stored embeddings of their words, each moved a little at random. The last line is JSON.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from glassrank_bench.measuring import machine
from numpy.typing import NDArray

from glassrank.corpus import read_docs, read_qrels, read_queries
from glassrank.deadline import now
from glassrank.embeddings import Part, Store, encode_index
from glassrank.embeddings import encode as encoding
from glassrank.embeddings.doc_encoder import DocEncoder
from glassrank.embeddings.rows import EncodedPassages, pack, unpack
from glassrank.index import Index
from glassrank.index.first_stage import FirstStage, Hybrid, IndexFirstStage
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.evaluate import evaluate
from glassrank.storage.mapped_arrays import concat_ranges
from glassrank.types import Doc, Qrels, Query, Ranking, Run

BUDGETS = (5, 10, 20, 50, 100)
MEASURES = ("nDCG@10", "R@100", "R@1000")
SYSTEMS: dict[str, dict[str, Any]] = {
    "BM25": {"first_stage": "bm25", "adaptive": False},
    "BM25 + graph": {"first_stage": "bm25", "adaptive": True},
    "dense": {"first_stage": "dense", "adaptive": False},
    "hybrid": {"first_stage": "hybrid", "adaptive": False},
    "hybrid + graph": {"first_stage": "hybrid", "adaptive": True},
}
FEW, MANY, WARM_UPS = 100, 1000, 10
_MILLION, _PIECE_WORDS, _STORED_ROWS, _NOISE = 1_000_000, 10, 200_000, 0.3
Search = Callable[..., Ranking]
"""Of a query and k, and perhaps of `budget_ms`."""


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def build(data: Path, folder: Path, reranker: Reranker) -> tuple[Index, dict[str, float]]:
    """The index with its store, vectors and graph; seconds and bytes of what was not there."""
    path = folder / f"{data.name}.index"
    if not path.exists():
        Index.build(read_docs(str(data / "collection.tsv.gz")), path)
    index = Index(path)
    return index, encode(index, reranker)


def encode(index: Index, reranker: Reranker) -> dict[str, float]:
    """Seconds and bytes of a store, and of what vectors and graph add to it; of what is there
    already, nothing."""
    built = {}
    for step, graph in (("store", False), ("vectors and graph", True)):
        before, began = folder_bytes(index.path), time.perf_counter()
        encode_index(index, reranker.saved, graph=graph)
        if added := folder_bytes(index.path) - before:
            built[f"{step}: bytes a document"] = added / len(index)
            built[f"{step}: seconds"] = time.perf_counter() - began
    return built


def read_judged(data: Path, split: str, most: int | None) -> tuple[list[Query], Qrels]:
    qrels = read_qrels(data / f"qrels.{split}.txt.gz")
    queries = read_queries(data / f"queries.{split}.tsv.gz")
    return [query for query in queries if query.query_id in qrels][:most], qrels


def measure(
    searches: dict[str, dict[str, Search]], queries: Sequence[Query], qrels: Qrels
) -> dict[str, dict[str, dict[str, float]]]:
    """By system and limit, as `searches` has them by limit and system. Systems take turns query by
    query: what disturbs one disturbs all."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for limit, systems in searches.items():
        runs: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
        times: dict[str, list[float]] = {name: [] for name in systems}
        depths: dict[str, list[int]] = {name: [] for name in systems}
        for k, query in product((FEW, MANY), (*queries[:WARM_UPS], *queries)):
            for name, search in systems.items():
                began = now()
                ranking = search(query.text, k)
                took = now() - began
                runs.setdefault((name, k), {})[query.query_id] = _ranks(ranking)
                if k == FEW:
                    times[name].append(took)
                    depths[name].append(ranking.depth)
        for name in systems:
            values = _values(runs[name, FEW], qrels, MEASURES[:2])
            values |= _values(runs[name, MANY], qrels, MEASURES[2:])
            p50, p99 = np.percentile(times[name][WARM_UPS:], [50, 99]).tolist()
            depth = float(np.mean(depths[name][WARM_UPS:]))
            values |= {"p50 ms": p50, "p99 ms": p99, "depth": depth}
            found.setdefault(name, {})[limit] = values
    return found


def _ranks(ranking: Ranking) -> dict[str, float]:
    return {hit.doc_id: -float(hit.rank) for hit in ranking}


def _values(
    run: dict[str, dict[str, float]], qrels: Qrels, measures: Sequence[str]
) -> dict[str, float]:
    judged = {query_id: qrels[query_id] for query_id in run}
    return dict(evaluate(Run.from_dict(run), judged, list(measures)).mean)


def without_budget(search: Search, queries: Sequence[Query], qrels: Qrels) -> dict[str, float]:
    run = {query.query_id: _ranks(search(query.text, MANY)) for query in queries}
    return _values(run, qrels, MEASURES)


def answer_by(pipeline: Pipeline, bm25: Pipeline) -> Search:
    """A first stage of others is not stopped, since its thread would disturb the next query. If it
    takes longer than the budget, the answer is BM25's."""

    def search(query: str, k: int, budget_ms: float) -> Ranking:
        began = now()
        found = pipeline.top_k(query, k)
        left = budget_ms - (now() - began)
        if left <= 0:
            return bm25(query, k)
        return pipeline.rerank(query, found.docs, found.scores, budget_ms=left)

    return search


def peers(
    index: Index, vectors: dict[str, str], cross_encoder: str | None
) -> tuple[dict[str, Search], dict[str, dict[str, float]]]:
    """Vectors of other models in FAISS, fused with BM25; over the first a cross-encoder."""
    if not vectors:
        return {}, {}
    import faiss

    from glassrank.integrations.vector_index import MeanVectors, VectorIndex

    searches: dict[str, Search] = {}
    built = {}
    for name, folder in vectors.items():
        reranker = Reranker.load(folder)
        began = time.perf_counter()
        report = encode_index(index, reranker.saved, dtype="float32", graph=False)
        seconds = time.perf_counter() - began
        store = Store.open(report.path, reranker.model, index.snapshot)
        rows = [first_rows(store, segment.record.name) for segment in index.snapshot.segments]
        flat = faiss.IndexFlatIP(rows[0].shape[1])
        flat.add(np.concatenate(rows))
        ids = [index.snapshot.doc_id(number) for number in range(len(index))]
        dense: FirstStage = VectorIndex(flat, ids, MeanVectors(reranker))
        hybrid = Hybrid([IndexFirstStage(index), dense])
        alone, bm25 = Pipeline(index, first_stage=hybrid), Pipeline(index)
        searches[f"BM25 + {name} in FAISS"] = answer_by(alone, bm25)
        built[name] = {"bytes a document": 4.0 * rows[0].shape[1]}
        if report.encoded:
            built[name]["seconds"] = seconds
        if cross_encoder and len(searches) == 1:
            model = Reranker.load(cross_encoder)
            both = Pipeline(index, model, use_store=False, first_stage=hybrid, candidates=FEW)
            searches[f"BM25 + {name} in FAISS, cross-encoder"] = answer_by(both, bm25)
    return searches, built


def first_rows(store: Store, segment: str) -> NDArray[np.float32]:
    """(N, E): the first embedding of each document's first passage."""
    part = store.part(segment)
    starts, lengths = part.passage_rows(part.passages[:-1])
    return unpack(part.rows(starts, np.minimum(lengths, 1)), store.layout)


class PerturbedEncoder(DocEncoder):
    """Gives documents the stored embeddings of others, moved a little: to encode a million takes
    hours, and shows nothing new."""

    def __init__(self, parts: Sequence[Part], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rng = np.random.default_rng(0)
        rows, self._starts, before = [], np.empty(0, np.int64), 0
        for part in parts:
            count = min(len(part.vectors), _STORED_ROWS)
            rows.append(unpack(part.rows(np.zeros(1, np.int64), np.array([count])), self.layout))
            starts = part.offsets[part.offsets < count - self.layout.doc_length]
            self._starts = np.append(self._starts, starts + before)
            before += count
        self._rows = np.concatenate(rows)

    def encode(self, ids: Sequence[NDArray[np.int32]]) -> Iterator[EncodedPassages]:
        lengths = np.array([len(passage) for passage in ids], np.int64)
        places = concat_ranges(self._rng.choice(self._starts, len(ids)), lengths)
        noise = self._rng.standard_normal((len(places), self._rows.shape[1]), np.float32)
        rows = self._rows[places] + _NOISE / self._rows.shape[1] ** 0.5 * noise
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        yield EncodedPassages(np.arange(len(ids)), lengths, pack(rows, self.layout))


def build_million(
    sources: Sequence[Index], folder: Path, reranker: Reranker, count: int, queries: Sequence[str]
) -> dict[str, float]:
    """Seconds to build, bytes a document, and percentiles of queries at 50 ms."""
    path = folder / f"pieces-{count}.index"
    if not path.exists():
        Index.build(_pieces(sources, count), path)
    index = Index(path)
    parts = []
    for source in sources:
        if (store := Store.find(source, reranker.model)) is not None:
            parts.append(store.part(source.snapshot.segments[0].record.name))
    with patch.object(encoding, "DocEncoder", partial(PerturbedEncoder, parts)):
        built = encode(index, reranker)
    pipeline = Pipeline(index, reranker, verify=False)
    times, depths = [], []
    for query in (*queries[:WARM_UPS], *queries):
        began = now()
        ranking = pipeline(query, 10, budget_ms=50)
        times.append(now() - began)
        depths.append(ranking.depth)
    p50, p99 = np.percentile(times[WARM_UPS:], [50, 99]).tolist()
    return {**built, "p50 ms": p50, "p99 ms": p99, "depth": float(np.mean(depths[WARM_UPS:]))}


def _pieces(sources: Sequence[Index], count: int) -> Iterator[Doc]:
    """A few words that stand together somewhere in the collections' texts."""
    rng = np.random.default_rng(1)
    words = [
        word
        for index in sources
        for number in range(len(index))
        for word in index.snapshot.doc(number).text.split()
    ]
    for number, start in enumerate(rng.integers(0, len(words) - _PIECE_WORDS, count)):
        yield Doc(f"p{number}", " ".join(words[start : start + _PIECE_WORDS]))


def mean_tables(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over collections, entry by entry, of what all of them have."""
    first = tables[0]
    return {
        key: mean_tables([table[key] for table in tables])
        if isinstance(value, dict)
        else float(np.mean([table[key] for table in tables]))
        for key, value in first.items()
        if all(key in table for table in tables)
    }


def print_table(name: str, systems: dict[str, Any], references: dict[str, Any]) -> None:
    print(f"\n{name}: nDCG@10 R@100 R@1000 (p50 ms, documents scored)")
    for reference, values in references.items():
        print(f"  {reference:34}" + " ".join(f"{values[m]:.3f}" for m in MEASURES))
    for system, limits in systems.items():
        print(f"  {system}")
        for limit, values in limits.items():
            figures = " ".join(f"{values[m]:.3f}" for m in MEASURES)
            print(f"  {limit:>16}  {figures}  ({values['p50 ms']:.1f}, {values['depth']:.0f})")


def draw(means: dict[str, Any], budgets: Sequence[float], collections: int, to: Path) -> None:
    """nDCG@10 and R@100 against the budget."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4))
    for axes, name in zip(panels, MEASURES, strict=False):
        for system, limits in means["systems"].items():
            ours = system in SYSTEMS
            axes.plot(budgets, [limits[f"{b:g} ms"][name] for b in budgets],
                      "-o" if ours else ":s", color=None if ours else "#666666",
                      markersize=3, label=system)  # fmt: skip
        for reference, values in means["references"].items():
            axes.axhline(values[name], color="#bbbbbb", linewidth=1)
            axes.annotate(reference, (budgets[0], values[name]), fontsize=7, va="bottom")
        axes.set_xscale("log")
        axes.set_xticks(budgets, [f"{b:g}" for b in budgets])
        axes.set_xlabel(f"budget of a query in ms, {machine()}", fontsize=8)
        axes.set_ylabel(f"{name}, mean of {collections} collections")
        axes.grid(alpha=0.25)
    panels[1].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="where indexes are kept")
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, help="the first so many of each collection")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, metavar="MS")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--depths", type=int, nargs="*", default=[], metavar="DOCUMENTS")
    parser.add_argument("--vectors", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--cross-encoder", metavar="FOLDER")
    parser.add_argument("--no-all", action="store_true", help="do not re-rank all documents")
    parser.add_argument("--million", nargs="?", type=int, const=_MILLION, metavar="DOCUMENTS")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    reranker = Reranker.load("default")
    chosen = {name: SYSTEMS[name] for name in options.systems}
    vectors = dict(peer.split("=", 1) for peer in options.vectors)
    options.folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {}
    indexes, asked = [], []
    print(f"{machine()}; {options.split} queries", flush=True)
    for data in options.collections:
        index, built = build(data, options.folder, reranker)
        queries, qrels = read_judged(data, options.split, options.queries)
        indexes.append(index)
        asked += [query.text for query in queries]
        if options.million:
            continue
        others, other_built = peers(index, vectors, options.cross_encoder)
        bm25 = Pipeline(index, reranker, **SYSTEMS["BM25"])
        references = {"top 1,000": without_budget(bm25, queries, qrels)}
        if not options.no_all:
            every = Pipeline(index, reranker, **SYSTEMS["hybrid"], candidates=len(index))
            references["all"] = without_budget(every, queries, qrels)
        searches: dict[str, dict[str, Search]] = {}
        for depth in options.depths:
            searches[f"{depth} documents"] = {
                name: Pipeline(index, reranker, **settings, candidates=depth)
                for name, settings in chosen.items()
            }
        if not options.depths:
            ours = {name: Pipeline(index, reranker, **how) for name, how in chosen.items()}
            for budget in options.budgets:
                searches[f"{budget:g} ms"] = {
                    name: partial(search, budget_ms=budget)
                    for name, search in (ours | others).items()
                }
        systems = measure(searches, queries, qrels)
        print_table(f"{data.name}, {len(queries)} queries", systems, references)
        print("  built:", built, other_built, flush=True)
        tables[data.name] = {
            "systems": systems,
            "references": references,
            "built": {**built, **other_built},
        }
    result: dict[str, Any] = {"machine": machine(), "collections": tables}
    if options.million:
        some = list(islice(np.random.default_rng(0).permutation(asked).tolist(), 500))
        result["million"] = build_million(indexes, options.folder, reranker, options.million, some)
        print(result["million"])
    else:
        means = mean_tables(list(tables.values()))
        print_table(f"mean of {len(tables)}", means["systems"], means["references"])
        if options.plot:
            draw(means, options.budgets, len(tables), options.plot)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
