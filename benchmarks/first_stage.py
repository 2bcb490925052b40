"""First-stage speed, memory and size beside bm25s and tantivy, in one run on one machine.

    python benchmarks/first_stage.py --docs A.tsv.gz --docs B.tsv.gz --queries Q.tsv.gz
    python benchmarks/first_stage.py --passages 100000          # made-up text, needs no files
    python benchmarks/first_stage.py --passages 1000000 --index-only

Every engine gets the same terms and gives the best 1000 documents; queries per second are medians
of several rounds after a warm-up, and the ratios are within this run. Peers that are not installed
are named and left out. The last line is JSON.
"""

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

from glassrank_bench.measuring import processor

from glassrank.corpus import read_docs, read_queries
from glassrank.index import Index, parse_method
from glassrank.index.search import run_method
from glassrank.text import EnglishAnalyzer
from glassrank.types import Doc

DEPTH = 1000


def made_up_docs(count: int, words: int = 60, seed: int = 0) -> Iterator[Doc]:
    """Passages of Zipf-distributed words from a vocabulary that grows as real ones do."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    for number in range(count):
        text = []
        for _ in range(words):
            rank = int(30 * (rng.paretovariate(0.9) - 1))  # heavy tail: new words keep coming
            rank += 26 * 26  # three letters at least
            word = ""
            while rank:
                rank, letter = divmod(rank, 26)
                word += letters[letter]
            text.append(word)
        yield Doc(f"p{number:08d}", " ".join(text))


def queries_per_second(
    searches: dict[str, Callable[[], object]], queries: int, rounds: int
) -> dict[str, float]:
    """Medians over rounds in which every engine has its turn, so that a noisy neighbour of this
    machine disturbs them alike."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    for turn in range(rounds + 1):
        for name, search in searches.items():
            start = time.perf_counter()
            search()
            if turn:  # the first is the warm-up
                times[name].append(time.perf_counter() - start)
    return {name: queries / statistics.median(seconds) for name, seconds in times.items()}


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def glassrank_searches(
    index: Index, queries: list[list[str]], threads: list[int]
) -> dict[str, Callable[[], object]]:
    return {
        f"glassrank {name}, {n} threads": partial(
            run_method, index.snapshot, queries, DEPTH, parse_method(name), n
        )
        for name in ("bm25", "ql", "bm25+rm3", "ql+rm3")
        for n in threads
    }


def bm25s_searches(
    tokens: list[list[str]], queries: list[list[str]], threads: list[int], folder: Path
) -> dict[str, Callable[[], object]]:
    import bm25s

    engine = bm25s.BM25(k1=0.9, b=0.4, method="lucene", backend="numba")
    engine.index(tokens, show_progress=False)
    engine.save(folder)
    return {
        f"bm25s, {n} threads": partial(
            engine.retrieve, queries, k=DEPTH, n_threads=n, show_progress=False
        )
        for n in threads
    }


def tantivy_searches(
    tokens: list[list[str]], queries: list[list[str]], threads: list[int], folder: Path
) -> dict[str, Callable[[], object]]:
    import tantivy

    folder.mkdir()
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("body", stored=False, tokenizer_name="whitespace")
    index = tantivy.Index(schema.build(), path=str(folder))
    writer = index.writer(200_000_000, 1)
    for terms in tokens:
        writer.add_document(tantivy.Document(body=" ".join(terms)))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    parsed = [
        tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Should, tantivy.Query.term_query(index.schema, "body", term))
                for term in terms
            ]
        )
        for terms in queries
    ]
    return {"tantivy, 1 threads": lambda: [searcher.search(query, DEPTH) for query in parsed]}


def bench(options: argparse.Namespace, work: Path) -> dict[str, object]:
    docs = list(islice(_docs(options), options.passages))
    analyzer = EnglishAnalyzer()
    tokens = [analyzer(doc.text) for doc in docs]
    queries = [terms for text in _query_texts(options, docs) if (terms := analyzer(text))]
    started = time.perf_counter()
    index = Index.build(docs, work / "glassrank")
    indexing = time.perf_counter() - started
    print(
        f"{processor()}, {os.cpu_count()} cores; "
        f"{len(docs):,} passages of {sum(map(len, tokens)) / len(docs):.0f} terms, "
        f"{len(queries):,} queries of {sum(map(len, queries)) / len(queries):.1f}, depth {DEPTH}"
    )
    searches = glassrank_searches(index, queries, options.threads)
    size = {"glassrank": folder_bytes(work / "glassrank") / len(docs)}
    stored = sum(len(doc.text.encode()) for doc in docs) / len(docs)
    size["glassrank without stored text"] = size["glassrank"] - stored
    for peer, make in (("bm25s", bm25s_searches), ("tantivy", tantivy_searches)):
        try:
            searches |= make(tokens, queries, options.threads, work / peer)
        except ImportError:
            print(f"{peer} is not installed and was left out: pip install 'glassrank[bench]'")
            continue
        size[peer] = folder_bytes(work / peer) / len(docs)
    return {
        "passages": len(docs),
        "queries": len(queries),
        "index_seconds": indexing,
        "queries_per_second": queries_per_second(searches, len(queries), options.rounds),
        "bytes_per_document": size,
    }


def index_only(options: argparse.Namespace, work: Path) -> dict[str, object]:
    """Peak resident memory of indexing, in a process that does nothing else."""
    started = time.perf_counter()
    docs = islice(_docs(options), options.passages)
    index = Index.build(docs, work / "glassrank")
    seconds = time.perf_counter() - started
    return {
        "passages": len(index),
        "index_seconds": seconds,
        "docs_per_second": len(index) / seconds,
        "peak_resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bytes_per_document": folder_bytes(work / "glassrank") / len(index),
    }


def _docs(options: argparse.Namespace) -> Iterator[Doc]:
    if not options.docs:
        return made_up_docs(options.passages)
    return chain.from_iterable(read_docs(path) for path in options.docs)


def _query_texts(options: argparse.Namespace, docs: list[Doc]) -> list[str]:
    rng = random.Random(1)
    if options.queries:
        texts = [query.text for path in options.queries for query in read_queries(path)]
    else:
        texts = [" ".join(rng.sample(doc.text.split(), 6)) for doc in rng.sample(docs, 1000)]
    rng.shuffle(texts)
    return texts[: options.most_queries]


def report(result: dict[str, object], threads: list[int]) -> None:
    speed = result["queries_per_second"]
    assert isinstance(speed, dict)
    for name, value in speed.items():
        ours = speed[f"glassrank bm25, {name.split(', ')[1]}"] if ", " in name else value
        print(f"{name:34} {value:10,.0f} queries/s   {value / ours:6.2f} of our BM25")
    for name, value in dict(result["bytes_per_document"]).items():  # type: ignore[call-overload]
        print(f"{name:34} {value:10,.0f} bytes for each document")
    for n in threads:
        if f"bm25s, {n} threads" in speed:
            ratio = speed[f"glassrank bm25, {n} threads"] / speed[f"bm25s, {n} threads"]
            result[f"times_bm25s_{n}_threads"] = ratio
            print(f"BM25 on {n} threads: {ratio:.2f} times bm25s (numba)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="append", help="a document file; may be repeated")
    parser.add_argument("--queries", action="append", help="a query file; may be repeated")
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--most-queries", type=int, default=2000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--index-only", action="store_true", help="memory and speed of indexing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.index_only:
            result = index_only(options, Path(work))
        else:
            result = bench(options, Path(work))
            report(result, options.threads)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
