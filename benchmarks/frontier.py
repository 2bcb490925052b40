"""Which model is best at which budget: quality on eight collections against time on this machine.

    python benchmarks/frontier.py --plot docs/frontier.svg --json frontier.json
    python benchmarks/frontier.py --peer "bge-small vectors=FOLDER" \\
        --peer "ms-marco-MiniLM-L-12=FOLDER"
    python benchmarks/frontier.py --quality RUNS "fast=fast.run" "default=default.run" \\
        "fast, then default=fast.run>default.run"

What a model is worth does not depend on the machine: `docs/frontier-quality.json` has the mean
nDCG@10 of eight collections when so many of BM25's candidates are re-ranked. How long that takes
is measured here: a query, and each of 100 passages of about 64 words, stored or encoded live,
everybody's turn after everybody else's. The first stage's time is in none of it.

A cascade, `fast, then default`, lets its first model order all candidates, and the second as many
of the best as there is time for; before that it is its first model.

A `--peer` is the folder of a published model with its int8 `model.onnx`: ONNX Runtime computes it.

With `--quality`, the file is written: RUNS has a folder for each collection, with `qrels.txt`, the
first stage's `first.run`, and the runs that are named (`A>B`: what B makes of the order of A).
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from glassrank_bench.measuring import Work, machine, medians_ms
from glassrank_bench.workloads import passages, questions
from numpy.typing import NDArray

from glassrank.backends.threads import num_threads
from glassrank.corpus import read_qrels, read_run
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.models.io.load import published_graph
from glassrank.models.onnx_models import OnnxSession
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.evaluate.budget_curve import Speed, evaluate_by_depth
from glassrank.research.evaluate.timed_models import JudgedQuery, TimedModel, Variant, time_models

QUALITY = Path(__file__).parents[1] / "docs" / "frontier-quality.json"
MEASURE, CANDIDATES, FEW, QUERIES = "nDCG@10", 100, 5, 8
BUDGETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def qualities(folder: Path, runs: dict[str, str]) -> dict[str, Any]:
    """The mean over collections at depth 0, 1, … of each system; and at all depths of each one."""
    found: dict[str, Any] = {name: {} for name in runs}
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        qrels = read_qrels(str(place / "qrels.txt"))
        for name, files in runs.items():
            first, second = (
                read_run(place / file) for file in f"first.run>{files}".split(">")[-2:]
            )
            values = evaluate_by_depth(first, second, qrels, [MEASURE], CANDIDATES)
            found[name][place.name] = values[MEASURE]
    return {
        name: {
            "at_depth": np.mean(list(sets.values()), axis=0).round(4).tolist(),
            "at_all": {place: round(float(values[-1]), 4) for place, values in sets.items()},
        }
        for name, sets in found.items()
    }


def our_speeds(models: dict[str, str], repeats: int) -> dict[str, Speed]:
    """By name and way, `fast (stored)`: all in turn over the same passages. Live, a large model
    takes long enough for few passages to tell its speed."""
    with tempfile.TemporaryDirectory(prefix="glassrank-frontier-") as folder:
        index = Index.build(passages(2 * CANDIDATES), Path(folder) / "index")
        stored, live = [], []
        for number, (name, model) in enumerate(models.items()):
            reranker = Reranker.load(model)
            encode_index(index, reranker.saved, index.path / "stores" / f"model-{number}")
            stored.append(TimedModel(name, [Variant("stored", Pipeline(index, reranker))]))
            live.append(
                TimedModel(
                    name, [Variant("on the fly", Pipeline(index, reranker, use_store=False))]
                )
            )
        speeds = {}
        for timed, depth in ((stored, CANDIDATES), (live, FEW)):
            asked = (_candidates(index, query, depth) for query in questions(200))
            full = [query for query in asked if len(query.numbers) == depth][:QUERIES]
            for model, (speed,) in zip(
                timed, time_models(timed, full, repeats, _in_turn), strict=True
            ):
                speeds[f"{model.label} ({model.variants[0].name})"] = speed
    return speeds


def _candidates(index: Index, query: str, depth: int) -> JudgedQuery:
    (top,) = index.top_k([query], depth, "bm25")
    return JudgedQuery(query, query, np.asarray(top.docs, np.int64), np.asarray(top.scores, float))


def _in_turn(items: Sequence[Any], _: str) -> Iterator[Any]:
    return iter(items)


def peer_speeds(peers: dict[str, str], repeats: int) -> dict[str, Speed]:
    """Published models at their best: ONNX Runtime computes their int8 graphs. Of bi-encoders the
    vectors of passages lie in memory, and a query takes one thread or all, whichever is faster.
    Cross-encoders read a text on each thread."""
    texts = [doc.text for doc in passages(2 * FEW)]
    asked = questions(QUERIES)
    speeds = {}
    for name, folder in peers.items():
        reranker = Reranker.load(folder)
        if reranker.model.info.is_cross_encoder:
            (pairs_ms,) = medians_ms([partial(reranker.rank, asked[0], texts)], repeats)
            speeds[f"{name} (on the fly)"] = Speed(len(texts) / pairs_ms, 0.0)
            continue
        turns = cycle(asked)
        size = reranker.encode_query(asked[0]).vectors.shape[-1]
        rows = np.random.default_rng(0).normal(size=(CANDIDATES, size)).astype(np.float32)
        one_ms, all_ms, score_ms = medians_ms(
            [
                lambda r=reranker, t=turns: r.encode_query(next(t)),
                all_threads(reranker, Path(folder), asked),
                lambda r=rows: np.argsort(-(r @ r[0])),
            ],
            repeats * QUERIES,
            warm_ups=QUERIES,
        )
        speeds[f"{name} (stored)"] = Speed(CANDIDATES / score_ms, min(one_ms, all_ms))
    return speeds


def all_threads(reranker: Reranker, folder: Path, asked: Sequence[str]) -> Work:
    """Computes the graph of a query by as many threads as there are."""
    graph = published_graph(folder)
    if graph is None:
        raise SystemExit(f"{folder} holds no ONNX graph")
    session = OnnxSession((folder / graph).read_bytes(), threads=num_threads())
    turns = cycle(reranker.read_query(query).ids for query in asked)

    def run() -> None:
        ids = np.asarray(next(turns), np.int64)[None]
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        session.run({name: given.get(name, np.zeros_like(ids)) for name in session.inputs})

    return run


def cascades(
    quality: dict[str, Any], speeds: dict[str, Speed], ms: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Of two models that are stored: the second begins when the first has ordered all."""
    lines = {}
    for name in quality:
        first, _, second = name.partition(", then ")
        pair = [speeds.get(f"{model} (stored)") for model in (first, second)]
        if pair[0] is None or pair[1] is None:
            continue
        begin = float(pair[0].ms(CANDIDATES))
        reordered = np.minimum(pair[1].depth(ms - begin), CANDIDATES)
        alone = curve(quality[first], pair[0], ms)
        both = np.array(quality[name]["at_depth"])[reordered]
        lines[f"{name} (stored)"] = np.where(reordered > 0, both, alone)
    return lines


def curve(quality: dict[str, Any], speed: Speed, ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quality at each budget. Of some systems only the end is known: they have it when all is done,
    and what the first stage has before that."""
    values = np.array(quality["at_depth"])
    depth = np.minimum(speed.depth(ms), CANDIDATES)
    if len(values) == 2:
        return np.where(depth >= CANDIDATES, values[1], values[0])
    return np.array(values[depth])


def draw(lines: dict[str, NDArray[np.float64]], ours: Sequence[str], ms: Any, to: Path) -> None:
    """Ours in colour, with the best of them at each budget behind; others grey and dotted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 4.4))
    best = np.max([lines[name] for name in ours], axis=0)
    axes.plot(ms, best, color="#56b4e9", linewidth=9, alpha=0.3, label="the best of ours")
    colours = cycle(["#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#000000"])
    dots = iter([(0, (1, 1.5)), (0, (1, 4)), (0, (4, 1.5, 1, 1.5)), (0, (6, 4))] * 3)
    for name, values in lines.items():
        if values.max() == values.min():
            continue  # it does not get anywhere in this time
        mine, cascade = name in ours, ", then " in name
        colour = next(colours) if mine else "#666666"
        dashes = (0, (4, 2)) if name.endswith("(on the fly)") else (0, (1, 2)) if cascade else "-"
        style = dashes if mine else next(dots)
        width = 2.4 if cascade else 1.6
        axes.plot(ms, values, color=colour, linestyle=style, linewidth=width, label=name)
    axes.set_xscale("log")
    axes.set_xticks(BUDGETS, [f"{ms:,}" for ms in BUDGETS])
    axes.set_xlabel(f"milliseconds for the second stage, {machine()}")
    axes.set_ylabel(f"{MEASURE}, mean of eight collections")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.tight_layout()
    figure.savefig(to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="NAME=FILE", help="with --quality")
    parser.add_argument("--quality", type=Path, metavar="RUNS")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quality is not None:
        known = json.loads(QUALITY.read_text("utf-8")) if QUALITY.exists() else {}
        known |= qualities(options.quality, dict(run.split("=", 1) for run in options.runs))
        QUALITY.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
        return
    named = {name: name for name in ("tiny", "fast", "default", "strong")}
    named |= dict(model.split("=", 1) for model in options.model)
    peers = dict(peer.split("=", 1) for peer in options.peer)
    quality = json.loads(QUALITY.read_text("utf-8"))
    for name in (*named, *peers):
        if name not in quality:
            raise SystemExit(f"{QUALITY} has no {name!r}, only {', '.join(quality)}; see --quality")
    ours = our_speeds(named, options.repeats)
    speeds = ours | peer_speeds(peers, options.repeats)
    ms = np.geomspace(1, 2000, 400)
    at = np.array(BUDGETS, float)
    alone = {name: quality[name.rsplit(" (", 1)[0]] for name in speeds}
    curves = {name: curve(alone[name], speed, ms) for name, speed in speeds.items()}
    table = {name: curve(alone[name], speed, at).tolist() for name, speed in speeds.items()}
    both = cascades(quality, ours, ms)
    curves |= both
    table |= {name: values.tolist() for name, values in cascades(quality, ours, at).items()}
    print(f"{machine()}; ms of a query, documents a ms, {MEASURE} at each budget")
    print(f"{'':34}{'query':>8}{'docs/ms':>9}  " + "".join(f"{budget:>6}" for budget in BUDGETS))
    for name, values in table.items():
        speed = speeds.get(name)
        cost = f"{speed.query_ms:8.2f}{speed.docs_per_ms:9.2f}" if speed else " " * 17
        print(f"{name:34}{cost}  ", end="")
        print("".join(f"{value:6.3f}" for value in values))
    if options.plot:
        draw(curves, [*ours, *both], ms, options.plot)
    if options.json:
        rows = {
            name: {
                **(asdict(speeds[name]) if name in speeds else {}),
                MEASURE: dict(zip(BUDGETS, values, strict=True)),
            }
            for name, values in table.items()
        }
        options.json.write_text(json.dumps({"machine": machine(), "systems": rows}, indent=1))


if __name__ == "__main__":
    main()
