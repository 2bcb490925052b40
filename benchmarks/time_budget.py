"""Quality by time, as Figure 2 of the TK paper, from the tables of `glassrank experiment`.

    python benchmarks/time_budget.py TABLE.json ... --configs configs/insuranceqa \\
        --data ../shared/data/insuranceqa --plot budget.svg --json budget.json

A table has the quality of its models when 1, 2, … candidates are re-ranked. How many that are in a
millisecond is measured here, on the CPU or with `--device cuda`: models of the same shapes, whose
weights are not trained, score the best 100 documents of a few test queries, live and from a store.
The depth that marks a line is the table's, chosen on dev queries. With `--speeds FILE` what was
measured is kept, and taken from there the next time: `docs/speeds-h200.json` is of another machine.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from glassrank.backends.threads import num_threads
from glassrank.corpus import read_docs, read_queries
from glassrank.embeddings import Store, encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import SPECIAL_WORDS, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.pretrained import read_pretrained
from glassrank.rerank import Pipeline, Reranker
from glassrank.rerank.pipeline import find_candidates
from glassrank.research.commands.budget_report import draw
from glassrank.research.evaluate.budget_curve import Speed, TimeCurve
from glassrank.research.evaluate.measures import Measure
from glassrank.research.evaluate.timed_models import (
    BudgetReport,
    JudgedQuery,
    Line,
    TimedModel,
    Variant,
    default_max_ms,
    time_models,
)
from glassrank.research.train.build import build_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import read_config
from glassrank.research.train.prepared import Prepared, Split
from glassrank.storage.mapped_arrays import Ragged
from glassrank.text import split_words

DEPTH, SIZE = 100, 300


def sample(data: Path, folder: Path, count: int) -> tuple[Index, list[JudgedQuery]]:
    """An index of what the first stage finds for a few test queries, and these."""
    docs = {doc.doc_id: doc for doc in read_docs(data / "collection.tsv.gz")}
    asked = list(read_queries(data / "queries.test.tsv.gz"))
    some = [asked[place] for place in np.linspace(0, len(asked) - 1, count).astype(int)]
    whole = Index.build(docs.values(), folder / "whole")
    found = whole.top_k([query.text for query in some], DEPTH)
    lists = [[whole.snapshot.doc_id(int(n)) for n in best.docs] for best in found]
    found_ids = sorted({doc_id for ids in lists for doc_id in ids})
    index = Index.build([docs[doc_id] for doc_id in found_ids], folder / "sample")
    return index, [
        JudgedQuery(
            query.query_id, query.text, *find_candidates(index, ids, best.scores.astype(np.float64))
        )
        for query, ids, best in zip(some, lists, found, strict=True)
    ]


def untrained(config: TrainConfig, base: Path, words: Sequence[str], folder: Path) -> Path:
    """A model of a config's shape."""
    vectors = np.random.default_rng(0).normal(size=(len(words), SIZE)).astype(np.float32)
    nothing = Ragged.from_rows([], np.int32)
    numbers = np.zeros(0, np.int32)
    scores = numbers.astype(np.float32)
    split = Split(numbers, nothing, numbers, numbers, scores, queries=nothing)
    if config.start.bert is not None:
        words, vectors = read_pretrained(config.start.bert, base).vocabulary, vectors[:0]
    idf = np.ones(len(words), np.float32)
    prepared = Prepared(list(words), vectors, idf, nothing, split, split, {})
    usage = Usage(config.query_length, config.doc_length, None, "bm25")
    save_model(folder, build_model(config, prepared, base), usage, list(words), "not trained")
    return folder


def timed(index: Index, folders: dict[str, Path], device: str) -> list[TimedModel]:
    """Each model live and, where it gains by it, from a store."""
    models = []
    for name, folder in folders.items():
        reranker = Reranker.load(folder, device)
        live = Pipeline(index, reranker, use_store=False, candidates=DEPTH, calibrate=False)
        variants = [Variant("on the fly", live)]
        if not reranker.model.info.is_cross_encoder:
            saved = load_model(folder)
            path = encode_index(index, saved, index.path / "stores" / name, device=device).path
            store = Store.open(path, reranker.model, index.snapshot)
            stored = Pipeline(index, reranker, store=store, candidates=DEPTH, calibrate=False)
            variants.append(Variant(f"stored, {store.dtype}", stored))
        models.append(TimedModel(name, variants))
    return models


def measured(names: Sequence[str], options: argparse.Namespace) -> dict[str, dict[str, Speed]]:
    """Of each model, each way: all of them in turn, over the same documents."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        index, queries = sample(options.data, folder, options.queries)
        texts = (index.snapshot.doc(number).text for number in range(len(index)))
        words = [*SPECIAL_WORDS, *sorted({word for text in texts for word in split_words(text)})]
        folders = {}
        for name in names:
            path = options.configs / f"{name}.toml"
            folders[name] = untrained(read_config(path), path.parent, words, folder / name)
        models = timed(index, folders, options.device)
        speeds = time_models(models, queries, options.repeats, lambda items, _: iter(items))
    return {
        model.label: {way.name: speed for way, speed in zip(model.variants, variants, strict=True)}
        for model, variants in zip(models, speeds, strict=True)
    }


def line(
    name: str, way: str, speed: Speed, seeds: list[dict[str, Any]], first: dict[str, float]
) -> Line:
    """Quality as the table has it, a mean over seeds, at this speed."""
    curves = {}
    for measure in first:
        rows = [np.array(seed["by_depth"][measure]) for seed in seeds]
        values = np.concatenate([[first[measure]], np.mean(rows, 0)])
        depths = [depth for seed in seeds for depth in seed.get("depths", [seed.get("depth")])]
        curves[measure] = TimeCurve(Measure.parse(measure), values, speed, int(np.median(depths)))
    return Line(name, way, speed, curves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", type=Path, help="JSON of glassrank experiment")
    parser.add_argument("--configs", required=True, type=Path, help="the folder of their configs")
    parser.add_argument("--data", required=True, type=Path, help="the folder of the collection")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:1")
    parser.add_argument("--queries", type=int, default=8, help="how many are timed")
    parser.add_argument("--repeats", type=int, default=5, help="of each; a first one more")
    parser.add_argument("--speeds", type=Path, help="JSON: read if it is there, else written")
    parser.add_argument("--max-ms", type=int, help="where time ends in the picture")
    parser.add_argument("--plot", type=Path, help="a picture: .svg, .png or .pdf")
    parser.add_argument("--json", type=Path, help="a file for all numbers")
    options = parser.parse_args()
    tables = [json.loads(path.read_text("utf-8")) for path in options.tables]
    systems = {name: rows for table in tables for name, rows in table["systems"].items()}
    if options.speeds is not None and options.speeds.exists():
        kept = json.loads(options.speeds.read_text("utf-8"))
        speeds = {name: {w: Speed(**s) for w, s in kept[name].items()} for name in systems}
    else:
        speeds = measured(list(systems), options)
        if options.speeds is not None:
            plain = {
                n: {w: asdict(s) for w, s in variants.items()} for n, variants in speeds.items()
            }
            options.speeds.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    first = tables[0]["first_stage"]
    lines = [
        line(name, way, speed, systems[name], first)
        for name, variants in speeds.items()
        for way, speed in variants.items()
    ]
    for row in lines:
        curve = next(iter(row.curves.values()))
        print(
            f"{row.label:32} {row.speed.docs_per_ms:9.3f} documents/ms, "
            f"query {row.speed.query_ms:6.2f} ms, "
            f"best {curve.chosen_value:.4f} after {curve.chosen_ms:8.1f} ms"
        )
    report = BudgetReport(
        judged=tables[0]["queries"],
        deepest=DEPTH,
        chosen_on="dev",
        machine={"device": options.device, "threads": num_threads()},
        max_ms=options.max_ms or default_max_ms(lines),
        lines=lines,
    )
    if options.json is not None:
        options.json.write_text(json.dumps(report.to_json()), "utf-8")
    if options.plot is not None:
        draw(report, options.plot)


if __name__ == "__main__":
    main()
