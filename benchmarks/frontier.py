"""Which system is best at which budget: quality on eight collections against time on this machine.

    python benchmarks/frontier.py --plot docs/frontier.svg --json frontier.json
    python benchmarks/frontier.py --peer "bge-small vectors=FOLDER" --scores FOLDER

What a model is worth does not depend on the machine: `docs/frontier-quality.json` has the mean
nDCG@10 and R@100 of eight collections when so many of BM25's first 1,000 candidates are re-ranked.
How long that takes is measured here: a query, and passages of about 64 words, stored or encoded
live, everybody's turn after everybody else's. The first stage's time is in none of it.

A cascade, `fast, then default`, lets its first model order 100, 300 or 1,000 candidates, and the
second as many of the best as there is time for; at each budget the best of the three counts.

A `--peer` is the folder of a published model with its int8 `model.onnx`: ONNX Runtime computes it.

With `--scores`, the file of qualities is written from what frontier_scores.py has left in FOLDER,
and the best of ours is compared with each other system over the same queries. A published model
that it has not scored there keeps its values, and is not compared. Ours draw the scores of similar
documents together, as a search does, and this time counts.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from glassrank_bench.measuring import Work, machine, medians_ms
from glassrank_bench.workloads import passages, questions
from numpy.typing import NDArray

from glassrank.backends.threads import num_threads
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.models.io.load import published_graph
from glassrank.models.onnx_models import OnnxSession
from glassrank.rerank import Pipeline, Reranker
from glassrank.rerank.regularization import pick_best, regularize
from glassrank.research.evaluate.budget_curve import Speed
from glassrank.research.evaluate.timed_models import JudgedQuery, TimedModel, Variant, time_models

QUALITY = Path(__file__).parents[1] / "docs" / "frontier-quality.json"
OURS = ("tiny", "fast", "default", "strong")
CASCADES = tuple((first, last) for first, last in product(OURS, OURS[2:]) if first != last)[:-1]
PEERS = {
    "MiniLM vectors": "minilm",
    "bge-small vectors": "bge",
    "mpnet vectors": "mpnet",
    "ms-marco-MiniLM-L-12": "ce",
}
MEASURES = ("nDCG@10", "R@100")
DEPTHS = np.unique([0, *np.geomspace(1, 1000, 60).round().astype(int), 5, 50, 100, 300, 500])
FIRST_DEPTHS = (100, 300, 1000)
WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)
FEW, QUERIES = 5, 8
BUDGETS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
Floats = NDArray[np.float64]
Values = dict[str, NDArray[np.float32]]
"""Of each collection: (depths, queries, measures)."""


class Lists(NamedTuple):
    """The candidates of all queries of a collection, in the first stage's order."""

    ends: NDArray[np.int64]  # (Q + 1,)
    docs: NDArray[np.int64]  # numbers in the collection
    bm25: Floats
    grades: NDArray[np.int64]
    ideal: NDArray[np.int64]  # (Q, 10) the best grades there are
    relevant: NDArray[np.int64]  # (Q,) relevant documents of the collection

    def rows(self) -> Iterator[slice]:
        """Where each query's candidates stand."""
        return (slice(*ends) for ends in zip(self.ends[:-1], self.ends[1:], strict=True))

    def standardized(self, scores: Floats) -> Floats:
        """Mean 0 and deviation 1 over each query's first hundred."""
        result = np.empty_like(scores)
        for row in self.rows():
            first = scores[row][:100]
            result[row] = (scores[row] - first.mean()) / (first.std() + 1e-9)
        return result

    def values(self, orders: Callable[[slice], Iterator[NDArray[np.int64]]]) -> NDArray[np.float32]:
        """Measures of the orders of each query's candidates: (orders, Q, 2)."""
        discount = 1 / np.log2(np.arange(2, 12))
        found = []
        for number, row in enumerate(self.rows()):
            grades, best = self.grades[row].clip(0), (self.ideal[number] * discount).sum()
            share = 1 / max(1, self.relevant[number])
            mine = []
            for order in orders(row):
                gain = grades[order[:10]]
                ndcg = (gain * discount[: len(gain)]).sum() / max(best, 1e-9)
                mine.append((ndcg, (grades[order[:100]] > 0).sum() * share))
            found.append(mine)
        return np.array(found, np.float32).swapaxes(0, 1)

    def by_depth(self, model: "Scores", first: "Scores | None" = None, depth: int = 0) -> Any:
        """Values when as many as `DEPTHS` are re-ranked; with `first`, of the order that it makes
        of so many candidates."""

        def orders(row: slice) -> Iterator[NDArray[np.int64]]:
            given = np.arange(row.stop - row.start)
            if first is not None:
                given[:depth] = first.order(row, self.docs[row], given[:depth])
            known = int(np.isfinite(model.scores[row]).sum()) if first is None else len(given)
            for deep in DEPTHS.tolist():
                order, many = given[: max(deep, 100)].copy(), min(deep, known)
                order[:many] = model.order(row, self.docs[row], given[:many])
                yield order

        return self.values(orders)


class Scores(NamedTuple):
    """What a system gives all candidates of a collection."""

    scores: Floats
    vectors: NDArray[np.float16] | None = None  # (documents, E), of systems that compare documents

    def order(
        self, row: slice, docs: NDArray[np.int64], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """These places of a query's candidates, best first."""
        own = self.scores[row][places]
        if self.vectors is not None and len(own):
            best = pick_best(own)
            vectors = self.vectors[docs[places[best]]].astype(np.float32)
            own[best] += regularize(own[best], vectors)
        return places[np.argsort(-own, kind="stable")]


def read_lists(folder: Path) -> tuple[dict[str, Lists], dict[str, Lists]]:
    """Collections of dev queries, and of test queries."""
    arrays = np.load(folder / "frontier.npz")
    parts = sorted(key.removesuffix("/counts") for key in arrays if key.endswith("/counts"))
    lists = {
        part: Lists(
            np.concatenate([[0], np.cumsum(arrays[f"{part}/counts"].astype(np.int64))]),
            *(
                arrays[f"{part}/{name}"].astype(kind)
                for name, kind in (
                    ("candidates", np.int64),
                    ("bm25", np.float64),
                    ("grades", np.int64),
                    ("ideal", np.int64),
                    ("relevant", np.int64),
                )
            ),
        )
        for part in parts
    }
    dev = {part: mine for part, mine in lists.items() if part.endswith("/dev")}
    return dev, {part: mine for part, mine in lists.items() if part not in dev}


def add_first_stage(folder: Path, file: str) -> dict[str, Scores]:
    """Scores of a published model and BM25's, added in the way and with the weight that are best
    on dev queries."""
    scores = np.load(folder / f"scores-{file}.npz")
    dev, test = read_lists(folder)

    def added(part: str, lists: Lists, weight: float, standardized: bool) -> Scores:
        own = scores[part].astype(np.float64)
        if standardized:
            return Scores(lists.standardized(own) + weight * lists.standardized(lists.bm25))
        return Scores(own + weight * spread * lists.bm25)

    ratios = [scores[part][:1000].std() / lists.bm25[:1000].std() for part, lists in dev.items()]
    spread = float(np.mean(ratios))
    tried = {
        (weight, standardized): np.mean(
            [
                lists.by_depth(added(part, lists, weight, standardized))[-1, :, 0].mean()
                for part, lists in dev.items()
            ]
        )
        for weight, standardized in product(WEIGHTS, (False, True))
    }
    best = max(tried, key=lambda way: tried[way])
    print(f"{file}: BM25 with {best[0]}, {'z-scores' if best[1] else 'raw'}; dev {tried[best]:.4f}")
    return {part: added(part, lists, *best) for part, lists in test.items()}


def read_scores(folder: Path, name: str) -> dict[str, Scores]:
    """Scores of a model of the package, which have BM25's in them."""
    arrays, (_, test) = np.load(folder / f"scores-{name}.npz"), read_lists(folder)
    return {
        part: Scores(arrays[part].astype(float), arrays[f"{part.split('/')[0]}/vectors"])
        for part in test
    }


def evaluate_systems(folder: Path) -> dict[str, Values]:
    """Each query's values of all systems, a cascade under the depth of its first model."""
    _, test = read_lists(folder)
    systems = {name: read_scores(folder, name) for name in OURS}
    systems |= {
        name: add_first_stage(folder, file)
        for name, file in PEERS.items()
        if (folder / f"scores-{file}.npz").exists()
    }
    found = {
        name: {part: lists.by_depth(own[part]) for part, lists in test.items()}
        for name, own in systems.items()
    }
    for (first, last), depth in product(CASCADES, FIRST_DEPTHS):
        found[cascade_name(first, last, depth)] = {
            part: lists.by_depth(systems[last][part], systems[first][part], depth)
            for part, lists in test.items()
        }
    return found


def cascade_name(first: str, last: str, depth: int) -> str:
    return f"{first} of {depth:,}, then {last}"


def write_quality(values: dict[str, Values]) -> None:
    """Means over collections; systems without new values keep theirs."""
    means = {
        name: np.mean([v.mean(1) for v in parts.values()], 0) for name, parts in values.items()
    }
    rows = {
        name: {
            measure: mean[:, number].round(4).tolist() for number, measure in enumerate(MEASURES)
        }
        for name, mean in means.items()
    }
    systems = json.loads(QUALITY.read_text("utf-8"))["systems"] | rows
    QUALITY.write_text(json.dumps({"depths": DEPTHS.tolist(), "systems": systems}) + "\n", "utf-8")


def compare(
    ours: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]
) -> tuple[float, float]:
    """The difference of means over collections, and half its 95% interval over queries."""
    differences = [one - two for one, two in zip(ours, other, strict=True)]
    variance = sum(float(each.var(ddof=1)) / len(each) for each in differences)
    mean = float(np.mean([each.mean() for each in differences]))
    return mean, 1.96 * math.sqrt(variance) / len(differences)


def our_speeds(models: Sequence[str], repeats: int) -> dict[str, Speed]:
    """By name and way, `fast (stored)`: all in turn over the same passages. Live, a large model
    takes long enough for few passages to tell its speed."""
    with tempfile.TemporaryDirectory(prefix="glassrank-frontier-") as folder:
        index = Index.build(passages(2000), Path(folder) / "index")
        stored, live = [], []
        for number, name in enumerate(models):
            reranker = Reranker.load(name)
            encode_index(index, reranker.saved, index.path / "stores" / f"model-{number}")
            stored.append(TimedModel(name, [Variant("stored", Pipeline(index, reranker))]))
            live.append(
                TimedModel(
                    name, [Variant("on the fly", Pipeline(index, reranker, use_store=False))]
                )
            )
        speeds = {}
        for timed, depth in ((live, FEW), (stored, 500)):
            asked = (_candidates(index, query, depth) for query in questions(400))
            full = [query for query in asked if len(query.numbers) == depth][:QUERIES]
            for model, (speed,) in zip(
                timed, time_models(timed, full, repeats, _in_turn), strict=True
            ):
                speeds[f"{model.label} ({model.variants[0].name})"] = speed
        for model in stored:
            name, pipeline = f"{model.label} (stored)", model.variants[0].pipeline
            added = regularization_ms(pipeline, full, repeats)
            speeds[name] = replace(speeds[name], query_ms=speeds[name].query_ms + added)
    return speeds


def regularization_ms(pipeline: Pipeline, queries: Sequence[JudgedQuery], repeats: int) -> float:
    """How much longer a query takes since similar documents draw each other's scores together."""
    plain = Pipeline(pipeline.index, pipeline.reranker, store=pipeline.store, regularization=0)
    sorting = [
        [one.rerank(query.text, query.numbers, query.scores).timing["sorting"] for one in both]
        for both in [(plain, pipeline)] * repeats
        for query in queries
    ]
    without, with_it = np.median(sorting, axis=0)
    return float(with_it - without)


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
        size = reranker.encode_query(asked[0]).vectors.shape[-1]
        rows = np.random.default_rng(0).normal(size=(1000, size)).astype(np.float32)
        one_ms, all_ms, score_ms = medians_ms(
            [
                partial(encode_next, reranker, cycle(asked)),
                all_threads(reranker, Path(folder), asked),
                partial(sort_by_first, rows),
            ],
            repeats * QUERIES,
            warm_ups=QUERIES,
        )
        speeds[f"{name} (stored)"] = Speed(len(rows) / score_ms, min(one_ms, all_ms))
    return speeds


def encode_next(reranker: Reranker, queries: Iterator[str]) -> None:
    reranker.encode_query(next(queries))


def sort_by_first(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """The vectors nearest to the first, which stands for a query."""
    return np.argsort(-(rows @ rows[0]))


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


def reached(speeds: dict[str, Speed], ms: float) -> dict[str, list[tuple[str, int]]]:
    """How far each system comes in this time: names in the file of qualities, with the place in
    `DEPTHS`. A cascade has one for each depth of its first model that is done in time."""

    def place(depth: int) -> int:
        return int(np.searchsorted(DEPTHS, depth, "right")) - 1

    found = {
        name: [(name.rsplit(" (", 1)[0], place(int(speed.depth(ms))))]
        for name, speed in speeds.items()
    }
    for first, last in CASCADES:
        pair = speeds[f"{first} (stored)"], speeds[f"{last} (stored)"]
        left = {depth: ms - float(pair[0].ms(depth)) for depth in FIRST_DEPTHS}
        found[f"{first}, then {last}"] = [
            (cascade_name(first, last, depth), place(int(pair[1].depth(rest))))
            for depth, rest in left.items()
            if rest > pair[1].query_ms
        ] or found[f"{first} (stored)"]
    return found


def draw(lines: dict[str, Floats], ours: Sequence[str], best: Floats, ms: Any, to: Path) -> None:
    """Ours in colour, with the best of them at each budget behind; others grey and dotted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 4.4))
    axes.plot(ms, best, color="#56b4e9", linewidth=9, alpha=0.3, label="the best of ours")
    colours = cycle(["#0072b2", "#009e73", "#d55e00", "#cc79a7"])
    dots = iter([(0, (1, 1.5)), (0, (1, 4)), (0, (4, 1.5, 1, 1.5)), (0, (6, 4))] * 3)
    for name, values in lines.items():
        mine = name in ours
        if values.max() == values.min() or ", then " in name:
            continue  # it does not get anywhere in this time; or it is a part of the best
        colour = next(colours) if mine else "#666666"
        style = ("--" if name.endswith("(on the fly)") else "-") if mine else next(dots)
        axes.plot(ms, values, color=colour, linestyle=style, linewidth=1.6, label=name)
    axes.set_xscale("log")
    axes.set_xticks(BUDGETS, [f"{ms:,}" for ms in BUDGETS])
    axes.set_xlabel(f"milliseconds for the second stage, {machine()}")
    axes.set_ylabel(f"{MEASURES[0]}, mean of eight collections")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.tight_layout()
    figure.savefig(to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scores", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers = dict(peer.split("=", 1) for peer in options.peer)
    if unknown := peers.keys() - PEERS.keys():
        raise SystemExit(f"no quality is known of {', '.join(unknown)}, only of {', '.join(PEERS)}")
    each: dict[str, Values] = {}
    if options.scores is not None:
        each = evaluate_systems(options.scores)
        write_quality(each)
    quality = json.loads(QUALITY.read_text("utf-8"))["systems"]
    speeds = our_speeds(OURS, options.repeats)
    ours = [*speeds, *(f"{first}, then {last}" for first, last in CASCADES)]
    speeds |= peer_speeds(peers, options.repeats)

    def best(places: list[tuple[str, int]], measure: str = MEASURES[0]) -> tuple[str, int]:
        return max(places, key=lambda at: quality[at[0]][measure][at[1]])

    def curve(name: str, ms: Iterable[float], measure: str = MEASURES[0]) -> Floats:
        at = [best(reached(speeds, budget)[name]) for budget in ms]
        return np.array([quality[system][measure][place] for system, place in at])

    systems = list(reached(speeds, 1))
    print(f"{machine()}; ms of a query, documents a ms, {MEASURES[0]} at each budget")
    print(f"{'':34}{'query':>8}{'docs/ms':>9}  " + "".join(f"{budget:>7}" for budget in BUDGETS))
    table = {name: {m: curve(name, BUDGETS, m).tolist() for m in MEASURES} for name in systems}
    for name, row in table.items():
        speed = speeds.get(name)
        cost = f"{speed.query_ms:8.2f}{speed.docs_per_ms:9.2f}" if speed else " " * 17
        print(f"{name:34}{cost}  " + "".join(f"{value:7.3f}" for value in row[MEASURES[0]]))
    differences = {}
    for budget in BUDGETS if each else ():
        at = {name: best(places) for name, places in reached(speeds, budget).items()}
        worth = {name: quality[system][MEASURES[0]][place] for name, (system, place) in at.items()}
        mine = max(ours, key=worth.__getitem__)
        for name in (name for name in systems if name not in ours and at[name][0] in each):
            pair = [
                [values[place, :, 0] for values in each[system].values()]
                for system, place in (at[mine], at[name])
            ]
            difference, half = compare(*pair)
            differences[f"{budget} ms: {mine} - {name}"] = difference, half
            print(f"{budget:6,} ms: {mine} - {name}: {difference:+.4f} ± {half:.4f}")
    ms = np.geomspace(1, BUDGETS[-1], 1000)
    lines = {name: curve(name, ms) for name in systems}
    frontier = np.max([lines[name] for name in ours], 0)
    for name in (name for name in systems if name not in ours):
        lead = lines[name] - frontier
        if len(ahead := ms[lead > 0]):
            print(
                f"{name}: ahead between {ahead[0]:.1f} and {ahead[-1]:.1f} ms, by {lead.max():.4f}"
            )
    if options.plot:
        draw(lines, ours, frontier, ms, options.plot)
    if options.json:
        rows = {
            name: {**(asdict(speeds[name]) if name in speeds else {}), **row}
            for name, row in table.items()
        }
        found = {"machine": machine(), "budgets": BUDGETS, "systems": rows, "ahead": differences}
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
