"""What smaller stores lose: bf16 against int8 and int3, and stores without words that say little.

    python benchmarks/store_kinds.py FOLDER [FOLDER …]
    python benchmarks/store_kinds.py FOLDER --model my.model --depth 100

FOLDER is a judged collection: `collection.tsv.gz`, and `queries.SPLIT.tsv.gz` and
`qrels.SPLIT.txt.gz`. The first stage's best documents of each query are encoded in every way and
ranked without a budget. The table has bytes for each document, nDCG@10, and what is lost against
bf16, in parts of a hundred. The last line is JSON.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from glassrank.embeddings import Store, encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_named
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.evaluate import evaluate
from glassrank.types import Doc, Qrels, Run

MEASURE = "nDCG@10"
WAYS = (
    ("bf16", "bf16", ""),
    ("int8", "int8", ""),
    ("int3", "int3", ""),
    ("int8 without punctuation", "int8", "punctuation"),
    ("int8 without function words", "int8", "function-words"),
)


@dataclass(frozen=True)
class Row:
    collection: str
    way: str
    bytes_per_document: float
    value: float
    lost: float
    """Against bf16, as a share of its value."""


def lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def measured(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    texts = dict(line.split("\t", 1) for line in lines(folder / "collection.tsv.gz"))
    asked = dict(line.split("\t", 1) for line in lines(folder / f"queries.{options.split}.tsv.gz"))
    qrels: Qrels = {}
    for line in lines(folder / f"qrels.{options.split}.txt.gz"):
        query_id, _, doc_id, grade = line.split()
        qrels.setdefault(query_id, {})[doc_id] = int(grade)
    saved = load_named(options.model)
    with tempfile.TemporaryDirectory() as place:
        whole = Index.build([Doc(*pair) for pair in texts.items()], Path(place) / "whole")
        found = dict(zip(asked, whole.top_k(list(asked.values()), options.depth), strict=True))
        ids = {q: [whole.snapshot.doc_id(n) for n in top.docs.tolist()] for q, top in found.items()}
        needed = dict.fromkeys(doc_id for own in ids.values() for doc_id in own)
        index = Index.build([Doc(doc_id, texts[doc_id]) for doc_id in needed], Path(place) / "few")
        best = 0.0
        for name, dtype, leave_out in WAYS:
            path = Path(place) / name.replace(" ", "-")
            report = encode_index(index, saved, path, dtype, leave_out=leave_out)
            store = Store.open(path, saved.model, index.snapshot)
            pipeline = Pipeline(index, Reranker(saved), store=store, calibrate=False)
            rankings = [
                (
                    query_id,
                    pipeline.rerank(
                        asked[query_id],
                        np.array([index.snapshot.find(doc_id) for doc_id in ids[query_id]], int),
                        found[query_id].scores,
                    ),
                )
                for query_id in qrels
                if ids[query_id]
            ]
            value = evaluate(Run.from_rankings(rankings), qrels, [MEASURE]).mean[MEASURE]
            best = best or value
            yield Row(folder.name, name, report.bytes_per_document, value, 1 - value / best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--model", default="default")
    parser.add_argument("--split", default="test")
    parser.add_argument("--depth", type=int, default=100)
    options = parser.parse_args()
    rows = []
    print(f"{'collection':<16}{'store':<30}{'bytes':>9}{MEASURE:>9}{'lost':>8}")
    for folder in options.folders:
        for row in measured(folder, options):
            rows.append(row)
            print(
                f"{row.collection:<16}{row.way:<30}{row.bytes_per_document:>9,.0f}"
                f"{row.value:>9.4f}{row.lost:>8.2%}",
                flush=True,
            )
    print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
