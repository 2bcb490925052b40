"""Probabilities of relevance of a model, fitted on dev queries of collections and printed.

python benchmarks/calibration.py MODEL COLLECTION [COLLECTION ...]

A collection is a folder with collection.tsv.gz, queries.dev.tsv.gz and qrels.dev.txt.gz. What is
printed belongs into `usage` of the model's config.json, and the qualities into its card; then
`python -m glassrank.models.seal MODEL`.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from glassrank.models.calibration import JudgedScores, calibrate
from glassrank.ranking import Reranker
from glassrank.retrieve import Index
from glassrank.settings import to_plain
from glassrank.types import Doc

DEPTH = 30
QUERIES = 120


def main() -> None:
    """Half of the queries are fitted on, the others measured on."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    reranker = Reranker.load(sys.argv[1])
    weight = reranker.model.first_stage_weight
    with_first_stage, alone = [], []
    random = np.random.default_rng(0)
    for folder in map(Path, sys.argv[2:]):
        for first, scores, relevant in candidates(reranker, folder, random):
            mixed = 0.0 if weight is None else weight.item() * first
            with_first_stage.append(JudgedScores(scores + mixed, relevant))
            alone.append(JudgedScores(scores, relevant))
        print(f"{folder.name}: {len(alone):,} queries so far", file=sys.stderr)
    fitted = {"calibration": calibrate(with_first_stage)}
    if weight is not None:
        fitted["texts_calibration"] = calibrate(alone, drawn=True)
    print(json.dumps({name: to_plain(found) for name, found in fitted.items()}, indent=1))


def candidates(
    reranker: Reranker, folder: Path, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, ...]]:
    """Of each dev query: the first stage's scores, the model's own, and what is relevant."""
    texts = dict(lines(folder / "collection.tsv.gz"))
    queries = dict(lines(folder / "queries.dev.tsv.gz"))
    relevant: dict[str, set[str]] = {}
    with gzip.open(folder / "qrels.dev.txt.gz", "rt", encoding="utf-8") as file:
        for query_id, _, doc_id, grade in map(str.split, file):
            if int(grade) > 0:
                relevant.setdefault(query_id, set()).add(doc_id)
    judged = [query_id for query_id in queries if query_id in relevant]
    random.shuffle(judged)
    with tempfile.TemporaryDirectory() as place:
        index = Index.build((Doc(*pair) for pair in texts.items()), Path(place) / "index")
        for query_id in judged[:QUERIES]:
            (top,) = index.top_k([queries[query_id]], DEPTH, reranker.usage.first_stage)
            found = [index.snapshot.doc_id(number) for number in top.docs.tolist()]
            scores = reranker.scores(queries[query_id], [texts[doc_id] for doc_id in found]).values
            right = np.array([doc_id in relevant[query_id] for doc_id in found], bool)
            yield top.scores.astype(np.float64), scores.astype(np.float64), right


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """Ids and texts."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            name, _, text = line.rstrip("\n").partition("\t")
            yield name, text


if __name__ == "__main__":
    main()
