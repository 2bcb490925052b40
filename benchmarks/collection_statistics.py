"""Table 1 of the TK paper for the collections that configs train on: documents, terms, queries.

    python benchmarks/collection_statistics.py configs/{insuranceqa,wiki-headings}/tk-2.toml

A row for each config: several collections are taken together. Words are split as the config's
model reads them; terms are words that occur `vectors.min_count` times or more in whole documents.
Queries are those with judgments.
"""

import argparse
from collections import Counter
from pathlib import Path

from glassrank.corpus import read_docs, read_qrels, read_queries
from glassrank.corpus.irds import resolve_source
from glassrank.models.doc_reader import join_title
from glassrank.research.train.config_files import read_config
from glassrank.research.train.texts import word_splitter

COLUMNS = (
    *("collection", "documents", "words in each", "cut", "terms", "queries: train", "dev", "test"),
    *("words in each", "relevant for each"),
)


def row(path: Path) -> list[str]:
    config = read_config(path)
    split = word_splitter(config)
    terms, queries = Counter[str](), Counter[str]()
    docs = cut = query_words = relevant = 0
    for collection in config.collections:
        for doc in read_docs(resolve_source(path.parent, collection.docs), skip_bad=True):
            words = split(join_title(doc))
            terms.update(words)
            docs += 1
            cut += len(words) > config.doc_length
        for name in ("train", "dev", "test"):
            source = getattr(collection, f"{name}_queries")
            if source is None:
                continue
            qrels = read_qrels(resolve_source(path.parent, getattr(collection, f"{name}_qrels")))
            for query in read_queries(resolve_source(path.parent, source), collection.topic_field):
                if query.query_id in qrels:
                    queries[name] += 1
                    query_words += len(split(query.text))
                    relevant += sum(grade > 0 for grade in qrels[query.query_id].values())
    return [
        ", ".join(collection.name for collection in config.collections),
        f"{docs:,}",
        f"{terms.total() / docs:.1f}",
        f"{cut / docs:.1%} at {config.doc_length}",
        f"{sum(count >= config.vectors.min_count for count in terms.values()):,}",
        *(f"{queries[name]:,}" if queries[name] else "" for name in ("train", "dev", "test")),
        f"{query_words / queries.total():.1f}",
        f"{relevant / queries.total():.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, nargs="+")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for path in parser.parse_args().config:
        print(f"| {' | '.join(row(path))} |", flush=True)


if __name__ == "__main__":
    main()
