"""What small stores cost in quality: known documents, searched for by some of their own words."""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from glassrank.bench.results import Result
from glassrank.bench.texts import texts
from glassrank.measure import evaluate
from glassrank.rank import Pipeline, load
from glassrank.retrieve import Index
from glassrank.store import Store, encode_index
from glassrank.types import Doc, Qrels, Run

DOCS, QUERIES, QUERY_WORDS, CANDIDATES = 2000, 400, 3, 100


def small_stores() -> Sequence[Result]:
    docs = [Doc(str(n), text) for n, text in enumerate(texts()) if len(text.split()) > 10][:DOCS]
    rng = random.Random(0)
    wanted = rng.sample(docs, min(QUERIES, len(docs)))
    queries = {doc.doc_id: " ".join(rng.sample(doc.text.split(), QUERY_WORDS)) for doc in wanted}
    qrels: Qrels = {doc.doc_id: {doc.doc_id: 1} for doc in wanted}
    reranker = load()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="glassrank-bench-") as folder:
        index = Index.build(docs, Path(folder) / "index")
        exact = 0.0
        for dtype in ("float32", "bf16", "int8"):
            path = Path(folder) / dtype
            report = encode_index(index, reranker.saved, path, dtype)
            store = Store.open(path, reranker.model, index.snapshot)
            pipeline = Pipeline(index, reranker, store=store, candidates=CANDIDATES)
            run = {
                query_id: {hit.doc_id: hit.score for hit in pipeline(text, CANDIDATES)}
                for query_id, text in queries.items()
            }
            found = evaluate(Run.from_dict(run), qrels, ["RR@10"]).mean["RR@10"]
            if dtype == "float32":
                exact = found
                continue
            share = report.of_float32 or 0.0
            bytes_name = f"{dtype} store: bytes, of float32's"
            least = 0.28 if dtype == "int8" else None
            results.append(Result(bytes_name, share, "of it", least, at_most=True))
            details: dict[str, float | str] = {"RR@10": found, "RR@10_float32": exact}
            loss = 100 * (1 - found / exact)
            name = f"{dtype} store: RR@10 lost"
            results.append(Result(name, loss, "%", 0.5, at_most=True, details=details))
    return results
