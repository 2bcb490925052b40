"""Probabilities of relevance of a model: fitted on judged queries of some collections, measured on
others, and printed.

python benchmarks/calibration.py MODEL --fit python wiki-sections ... --report cranfield:test ...

A collection is a folder with collection.tsv.gz, queries.SPLIT.tsv.gz and qrels.SPLIT.txt.gz (`dev`
unless `:SPLIT` says otherwise, and BM25's run in run.bm25-top100.SPLIT.txt.gz where it is given);
`python` is the demo's corpus with its sixty questions. What is printed first belongs into `usage`
of the model's config.json, the rest into its card; then `python -m glassrank.models.seal MODEL`.

Candidates are BM25's first hundred. All of the first ten are scored, of a collection that is fitted
on all that were judged too, and `--drawn` of the others, which stand for the rest; with
`--cache FOLDER` scores are kept there.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import (
    PYTHON_QUESTIONS,
    python_docs,
    read_docs,
    read_qrels,
    read_queries,
    read_run,
)
from glassrank.index import Index
from glassrank.models.calibration import Calibration
from glassrank.models.model import aggregate_passages, make_batch
from glassrank.models.text_batches import batch_by_length
from glassrank.rerank import Reranker
from glassrank.research.train.fit_calibration import (
    JudgedScores,
    concatenate,
    fit,
    measure_quality,
    weigh_ranks,
)
from glassrank.types import Doc, Qrels

DEPTH, FIRST, LISTS = 100, 10, (1, 2, 10, 100)
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Where the steps of the page's bar begin."""
DOCS_AT_ONCE, TOKENS_AT_ONCE = 256, 2048
RELEVANT = {"python": 2, "trec-dl-2019-2020": 2}
"""The least grade that is relevant, where it is not 1: below, a document is about the question and
does not answer it."""


@dataclass(frozen=True)
class Candidates:
    """Of a collection's queries, one below the other."""

    query: NDArray[np.int64]  # (n,)
    rank: NDArray[np.int64]  # (n,) of BM25, from 1
    first: NDArray[np.float64]  # (n,) its score
    grade: NDArray[np.int64]  # (n,) -1 where nobody judged it
    weight: NDArray[np.float64]  # (n,) for how many candidates it stands
    own: NDArray[np.float64]  # (n,) the model's score, without the first stage's share


def main() -> None:
    """Fits, measures, prints."""
    options = _options()
    reranker = Reranker.load(options.model)
    loaded = {
        spec: load(reranker, options.model, spec, options)
        for spec in dict.fromkeys([*options.fit, *options.report])
    }
    parts = [judged(loaded[spec], spec) for spec in options.fit]
    weighted = [
        JudgedScores(part.scores, part.relevant, part.weights * weigh_ranks(loaded[spec].rank))
        for part, spec in zip(parts, options.fit, strict=True)
    ]
    calibration = fit(concatenate(weighted))
    if calibration is None:
        sys.exit("these scores do not tell what is relevant")
    print(json.dumps({"calibration": asdict(calibration)}, indent=1))
    weight = reranker.model.first_stage_weight
    mix = 0.0 if weight is None else weight.item()
    for spec in options.report:
        report(calibration, loaded[spec], spec, mix)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--fit", nargs="+", required=True)
    parser.add_argument("--report", nargs="*", default=[])
    parser.add_argument("--queries", type=int, default=60, help="of each collection, at most")
    parser.add_argument("--drawn", type=int, default=8)
    parser.add_argument("--cache", type=Path)
    return parser.parse_args()


def judged(candidates: Candidates, spec: str) -> JudgedScores:
    """What nobody judged counts as not relevant."""
    least = RELEVANT.get(_name(spec)[0], 1)
    return JudgedScores(candidates.own, candidates.grade >= least, candidates.weight)


def report(calibration: Calibration, candidates: Candidates, spec: str, mix: float) -> None:
    """How well it tells lists of BM25's first candidates, of each length. A document that is drawn
    from a list has the same probability alone, so that the last line holds for any such lists."""
    name = " ".join(_name(spec))
    all_of = judged(candidates, spec)
    probabilities = calibration.probabilities(candidates.own)
    random = np.random.default_rng(0)
    for length in LISTS:
        which = np.flatnonzero(candidates.rank <= length)
        part = JudgedScores(all_of.scores[which], all_of.relevant[which], all_of.weights[which])
        chances = probabilities[which]
        found = measure_quality(chances, part)
        drawn = [
            measure_quality(
                chances,
                JudgedScores(part.scores, random.random(len(which)) < chances, part.weights),
            )
            for _ in range(100)
        ]
        share = part.weights / part.weights.sum()
        print(
            f"{name:22} lists of {length:3}: relevant {share @ part.relevant:.3f}, "
            f"told {share @ chances:.3f}; Brier score {found.brier:.3f} "
            f"({found.brier_of_mean:.3f} of the mean), calibration error {found.error:.3f} "
            f"(by chance {np.mean([one.error for one in drawn]):.3f})"
        )
    order = np.lexsort((-candidates.own - mix * candidates.first, candidates.query))
    shown = order[candidates.rank[order] <= FIRST]  # lists of ten, as they are ranked
    chances, relevant = probabilities[shown], all_of.relevant[shown]
    neighbours = np.diff(candidates.query[shown]) == 0
    rises = [(np.diff(chances)[neighbours] > most).mean() for most in (0.01, 0.05)]
    steps = (np.diff(np.digitize(chances, THRESHOLDS))[neighbours] > 0).mean()
    print(
        f"{name:22} lists of  10: of neighbours the lower is more probable "
        f"{rises[0]:.3f} by .01, {rises[1]:.3f} by .05, {steps:.3f} by a step of the page's bar"
    )
    for least in THRESHOLDS:
        kept = chances >= least
        precision = relevant[kept].mean() if kept.any() else float("nan")
        print(
            f"{name:22} lists of  10: at least {least} have {kept.mean():.3f}, of which relevant "
            f"{precision:.3f}; of the relevant {kept[relevant].mean():.3f}"
        )


def _name(spec: str) -> tuple[str, str]:
    folder, _, split = spec.partition(":")
    return Path(folder).name, split or "dev"


def load(reranker: Reranker, model: str, spec: str, options: argparse.Namespace) -> Candidates:
    """From the cache, or scored now."""
    name, split = _name(spec)
    cached = options.cache and options.cache / f"{Path(model).name}.{name}.{split}.npz"
    if cached and cached.exists():
        with np.load(cached) as arrays:
            return Candidates(**{field: arrays[field] for field in Candidates.__annotations__})
    print(f"scoring {spec}", file=sys.stderr)
    all_judged = spec in options.fit
    candidates = score(reranker, spec, options.queries, options.drawn, all_judged=all_judged)
    if cached:
        np.savez(cached, **asdict(candidates))
    return candidates


def score(
    reranker: Reranker, spec: str, most_queries: int, drawn: int, *, all_judged: bool
) -> Candidates:
    """The first ten candidates of each query, and some of the others."""
    docs, queries, qrels, given = collection(spec)
    random = np.random.default_rng(0)
    names = sorted(name for name in queries if name in qrels)
    names = [names[place] for place in sorted(random.permutation(len(names))[:most_queries])]
    rows, texts = [], []
    with tempfile.TemporaryDirectory() as place:
        index = None if given else Index.build(docs.values(), Path(place) / "index")
        for number, name in enumerate(names):
            if index is None:
                top = given[name][:DEPTH]
            else:
                (found,) = index.top_k([queries[name]], DEPTH, reranker.usage.first_stage)
                ids = [index.snapshot.doc_id(doc) for doc in found.docs.tolist()]
                top = list(zip(ids, found.scores.tolist(), strict=True))
            kept = qrels[name] if all_judged else ()
            sure = [at for at, (doc, _) in enumerate(top) if at < FIRST or doc in kept]
            others = sorted(set(range(len(top))) - set(sure))
            chosen = sorted(random.permutation(others)[:drawn].tolist())
            stands_for = {
                **dict.fromkeys(sure, 1.0),
                **dict.fromkeys(chosen, len(others) / max(1, len(chosen))),
            }
            for at, count in sorted(stands_for.items()):
                doc, first = top[at]
                rows.append((number, at + 1, first, qrels[name].get(doc, -1), count))
                texts.append(docs[doc])
    query, rank, first, grade, weight = (np.array(column) for column in zip(*rows, strict=True))
    own = own_scores(reranker, [queries[name] for name in names], query, texts)
    return Candidates(query, rank, first, grade, weight, own)


def collection(
    spec: str,
) -> tuple[dict[str, Doc], dict[str, str], Qrels, dict[str, list[tuple[str, float]]]]:
    """Documents, queries, judgments, and BM25's run where it is given."""
    name, split = _name(spec)
    if name == "python":
        docs = list(python_docs())
        queries, qrels = PYTHON_QUESTIONS / "queries.tsv", PYTHON_QUESTIONS / "qrels.txt"
        run = None
    else:
        folder = Path(spec.partition(":")[0])
        docs = list(read_docs(folder / "collection.tsv.gz"))
        queries, qrels = folder / f"queries.{split}.tsv.gz", folder / f"qrels.{split}.txt.gz"
        run = folder / f"run.bm25-top100.{split}.txt.gz"
    given = {}
    if run is not None and run.exists():
        ranked = read_run(run)
        for query_id, (begin, end) in zip(ranked.query_ids, pairwise(ranked.offsets), strict=True):
            found = zip(ranked.doc_ids[begin:end], ranked.scores[begin:end].tolist(), strict=True)
            given[query_id] = sorted(found, key=lambda row: -row[1])
    asked = {query.query_id: query.text for query in read_queries(queries)}
    return {doc.doc_id: doc for doc in docs}, asked, read_qrels(qrels), given


def own_scores(
    reranker: Reranker, queries: list[str], query: NDArray[np.int64], docs: list[Doc]
) -> NDArray[np.float64]:
    """Of pairs of a query, by its number, and a document. Each document is encoded once."""
    encoded = [reranker.encode_query(text) for text in queries]
    pairs = defaultdict(list)
    for pair, doc in enumerate(docs):
        pairs[doc.doc_id].append(pair)
    how = reranker.usage.passages
    own = np.zeros(len(docs))
    for some in _chunks(sorted(pairs)):
        read = [doc.all() for doc in reranker.read([docs[pairs[doc_id][0]] for doc_id in some])]
        owner = np.repeat(np.arange(len(read)), [len(doc.passages) for doc in read])
        ids = [passage.ids for doc in read for passage in doc.passages]
        scores: dict[int, dict[int, float]] = defaultdict(dict)  # by pair and passage
        for batch in batch_by_length(np.array([len(passage) for passage in ids]), TOKENS_AT_ONCE):
            words = reranker.encode_doc(make_batch([ids[at] for at in batch], reranker.device))
            asked = defaultdict(list)
            for row, at in enumerate(batch.tolist()):
                for pair in pairs[some[owner[at]]]:
                    asked[int(query[pair])].append((row, at, pair))
            for number, wanted in asked.items():
                rows = words.rows(np.array([row for row, _, _ in wanted]))
                values = reranker.score_embeddings(encoded[number], rows, None)
                for (_, at, pair), value in zip(wanted, values.tolist(), strict=True):
                    scores[pair][at] = value
        for pair, found in scores.items():
            values = np.array([found[at] for at in sorted(found)], np.float32)
            none = np.zeros(1, np.float32)
            whose = np.zeros(len(values), np.int64)
            own[pair] = aggregate_passages(values, whose, none, how.best, how.first).scores[0]
    return own


def _chunks(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), DOCS_AT_ONCE):
        yield names[start : start + DOCS_AT_ONCE]


if __name__ == "__main__":
    main()
