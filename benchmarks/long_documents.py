"""Whether documents read in passages are ranked better than documents that are cut.

    python benchmarks/long_documents.py FOLDER
    python benchmarks/long_documents.py FOLDER --model my.model --budget-ms 50 --dtype int8
    python benchmarks/long_documents.py FOLDER --write runs/long-documents/collection

FOLDER is a collection of short passages in the order of the articles that they come from, each
judged for one query, "title" or "title heading", as `wiki-headings` is: `collection.tsv.gz`, and
`queries.SPLIT.tsv.gz` and `qrels.SPLIT.txt.gz` of each split. Passages of one title are joined to a
document, which is relevant where one of its passages was. The model ranks them twice, with the same
first stage and budget, from stores of one kind: each document cut at what the model reads, and in
passages. The budget counts what one thread computes, so that other programs do not matter. Measures
are compared by the test of `glassrank evaluate`. The last line is JSON.

With `--write`, the documents are written instead, without their titles and with the queries of all
splits, as the collection that `configs/long-documents` trains on.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from glassrank.deadline import thread_time
from glassrank.embeddings import Store, encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_named
from glassrank.models.io.model_folder import Passages, SavedModel
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.evaluate import evaluate
from glassrank.research.evaluate.significance import Comparison, compare
from glassrank.types import Doc, Qrels, Run

MEASURES = ["nDCG@10", "RR@10"]


def lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def joined(folder: Path, split: str, *, titles: bool) -> tuple[list[Doc], dict[str, str], Qrels]:
    """Documents, and the queries and judgments of a split."""
    texts = dict(line.split("\t", 1) for line in lines(folder / "collection.tsv.gz"))
    asked: dict[str, str] = {}
    own: set[str] = set()
    query_of: dict[str, str] = {}
    for path in sorted(folder.glob("queries.*.tsv.gz")):
        name = path.name.split(".")[1]
        found = dict(line.split("\t", 1) for line in lines(path))
        asked |= found
        own |= set(found) if name == split else set()
        for line in lines(folder / f"qrels.{name}.txt.gz"):
            query_id, _, doc_id, _ = line.split()
            query_of[doc_id] = query_id
    articles: list[tuple[str, list[str]]] = []
    for doc_id in texts:
        query = asked[query_of[doc_id]]
        if not articles or not f"{query} ".startswith(f"{articles[-1][0]} "):
            articles.append((query, []))
        articles[-1][1].append(doc_id)
    docs = [
        Doc(f"a{number}", " ".join(texts[p] for p in passages), title if titles else "")
        for number, (title, passages) in enumerate(articles)
    ]
    qrels: Qrels = {}
    for number, (_, passages) in enumerate(articles):
        for doc_id in passages:
            if query_of[doc_id] in own:
                qrels.setdefault(query_of[doc_id], {})[f"a{number}"] = 1
    return docs, {query_id: asked[query_id] for query_id in qrels}, qrels


def write(folder: Path, out: Path) -> None:
    """The documents, and the queries and judgments of each split."""
    out.mkdir(parents=True, exist_ok=True)
    files = {}
    for split in sorted(path.name.split(".")[1] for path in folder.glob("queries.*.tsv.gz")):
        docs, queries, qrels = joined(folder, split, titles=False)
        files["collection.tsv.gz"] = [f"{doc.doc_id}\t{doc.text}" for doc in docs]
        files[f"queries.{split}.tsv.gz"] = [f"{q}\t{text}" for q, text in queries.items()]
        files[f"qrels.{split}.txt.gz"] = [
            f"{q} 0 {doc_id} {grade}"
            for q, grades in qrels.items()
            for doc_id, grade in grades.items()
        ]
    for name, content in files.items():
        text = "".join(f"{line}\n" for line in content)
        (out / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def ranked(
    index: Index, saved: SavedModel, queries: dict[str, str], options: argparse.Namespace, name: str
) -> tuple[Run, dict[str, float]]:
    """A run, and how deep and how much of the documents it read."""
    report = encode_index(index, saved, index.path / "stores" / name, options.dtype)
    store = Store.open(report.path, saved.model, index.snapshot)
    pipeline = Pipeline(
        index,
        Reranker(saved),
        store=store,
        budget_ms=options.budget_ms,
        candidates=options.depth,
        clock=thread_time,
    )
    rankings = [(query_id, pipeline(text, k=100)) for query_id, text in queries.items()]
    count = len(rankings)
    hits = [hit for _, ranking in rankings for hit in ranking]
    return Run.from_rankings(rankings), {
        "passages": report.passages,
        "bytes": report.bytes,
        "depth": sum(ranking.depth for _, ranking in rankings) / count,
        "truncated": sum(hit.truncated for hit in hits) / len(hits),
        "ms": sum(ranking.timing["total"] for _, ranking in rankings) / count,
    }


def measured(options: argparse.Namespace) -> tuple[dict[str, Comparison], dict[str, object]]:
    """Passages against documents that are cut."""
    torch.set_num_threads(1)
    docs, queries, qrels = joined(options.folder, options.split, titles=options.titles)
    saved = load_named(options.model)
    settings = replace(saved.usage.passages, overlap=options.overlap, best=options.best)
    with tempfile.TemporaryDirectory() as folder:
        index = Index.build(docs, Path(folder) / "index")
        runs, facts = {}, {}
        for name, passages in (("cut", Passages(most=1)), ("passages", settings)):
            own = replace(saved, usage=replace(saved.usage, passages=passages))
            runs[name], facts[name] = ranked(index, own, queries, options, name)
    cut, divided = (evaluate(runs[name], qrels, MEASURES) for name in ("cut", "passages"))
    words = sum(len(doc.text.split()) for doc in docs) / len(docs)
    about = {"documents": len(docs), "words": words, "queries": len(queries), **facts}
    return compare(divided, cut), about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--split", default="test")
    parser.add_argument("--budget-ms", type=float, default=50.0)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--overlap", type=int, default=Passages().overlap)
    parser.add_argument("--best", type=int, default=1)
    parser.add_argument("--titles", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only write the documents")
    options = parser.parse_args()
    if options.write is not None:
        write(options.folder, options.write)
        return
    found, about = measured(options)
    print(f"{'measure':<10}{'cut':>10}{'passages':>10}{'difference':>12}{'p':>12}")
    for name, row in found.items():
        print(
            f"{name:<10}{row.baseline:>10.4f}{row.system:>10.4f}{row.difference:>+12.4f}"
            f"{row.p_value:>12.2g}"
        )
    print(json.dumps({**about, "measures": {name: asdict(row) for name, row in found.items()}}))


if __name__ == "__main__":
    main()
