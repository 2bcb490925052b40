"""`glassrank budget`: score judged queries once with each model, time the models, report both."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import read_qrels, read_queries, read_run
from glassrank.deadline import now
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline
from glassrank.rerank.pipeline import find_candidates
from glassrank.research.evaluate.budget_curve import Speed, TimeCurve
from glassrank.types import Qrels, Ranking, Run

Item = TypeVar("Item")
Say = Callable[[str], None]
_FORMAT = 1
_TIMED_QUERIES = 8


class Track(Protocol):
    """Shows progress."""

    def __call__(self, items: Sequence[Item], what: str, /) -> Iterator[Item]:
        """Yield the items, and count them."""


class JudgedQuery(NamedTuple):
    """A query and its candidates, best first."""

    query_id: str
    text: str
    numbers: NDArray[np.int64]  # (D,), in the index
    scores: NDArray[np.float64]  # (D,), the first stage's


@dataclass(frozen=True)
class JudgedQueries:
    """The queries of a run that have judgments."""

    run: Run
    qrels: Qrels
    queries: list[JudgedQuery]

    @classmethod
    def read(
        cls, run: Path, qrels: str, queries: str, index: Index, depth: int | None, say: Say
    ) -> "JudgedQueries":
        """Read them with at most `depth` candidates each; None: all of the run's."""
        rows, judgments = read_run(run), read_qrels(qrels)
        texts = {query.query_id: query.text for query in read_queries(queries)}
        judged = []
        for query_id, doc_ids, scores in rows.items():
            if query_id not in judgments:  # it would change nothing
                continue
            if query_id not in texts:
                raise InputError(
                    f"{queries} has no query {query_id!r} of {run}; give the run's queries"
                )
            rows_here = find_candidates(index, doc_ids, scores, depth, run=str(run))
            judged.append(JudgedQuery(query_id, texts[query_id], *rows_here))
        if not judged:
            raise InputError(f"{qrels} has no judgment for a query of {run}; give the run's qrels")
        if len(judged) < len(judgments):
            say(
                f"{len(judgments) - len(judged):,} of the {len(judgments):,} queries of {qrels} "
                f"are not in {run} and count 0"
            )
        return cls(rows, judgments, judged)

    @property
    def deepest(self) -> int:
        """The most candidates that a query has."""
        return max(len(query.numbers) for query in self.queries)


@dataclass(frozen=True)
class Variant:
    """A model with its documents encoded on the fly, or read from a store."""

    name: str
    """`on the fly`, or `stored` and the dtype."""
    pipeline: Pipeline


@dataclass(frozen=True)
class TimedModel:
    """A model with its variants."""

    label: str
    variants: list[Variant]

    def score_all(self, judged: JudgedQueries, track: Track) -> Run:
        """Score all candidates once, from the store if there is one: that is faster."""
        queries = track(judged.queries, f"Scoring with {self.label}")
        return Run.from_rankings(
            (query.query_id, _rerank(self.variants[-1], query)) for query in queries
        )


def make_labels(models: Sequence[str]) -> list[str]:
    """Names of folders; paths where a name is not unique.

    >>> make_labels(["runs/a/model", "runs/b/model", "runs/tk/", "default"])
    ['runs/a/model', 'runs/b/model', 'tk', 'default']
    """
    paths = [Path(model) for model in models]
    if len(set(paths)) < len(paths):
        twice = next(str(path) for path in paths if paths.count(path) > 1)
        raise InputError(f"--model {twice} was given twice; give each model once")
    names = [path.resolve().name for path in paths]
    return [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, paths, strict=True)
    ]


def time_models(
    models: Sequence[TimedModel], queries: Sequence[JudgedQuery], repeats: int, track: Track
) -> list[list[Speed]]:
    """The speed of each variant of each model: medians over a few queries, with repeats.

    The first round does not count: it compiles and fills caches. Models take turns with each query,
    so that other work on the machine slows all of them.
    """
    variants = [way for model in models for way in model.variants]
    some = _sample_queries(queries)
    timed = np.zeros((3, len(variants), repeats, len(some)))
    turns = [(again, number) for again in range(-1, repeats) for number in range(len(some))]
    for again, number in track(turns, "Timing"):
        for position, way in enumerate(variants):
            timing = _rerank(way, some[number]).timing
            if again >= 0:
                docs = len(some[number].numbers)
                timed[:, position, again, number] = docs, timing["scoring"], timing["query"]
    speeds = iter(map(Speed.median, *timed))
    return [[next(speeds) for _ in model.variants] for model in models]


def time_first_stage(
    index: Index, method: str, queries: Sequence[JudgedQuery], depth: int
) -> float:
    """The median time of the first stage, without the first round."""
    took = []
    for again in range(2):
        for query in _sample_queries(queries):
            began = now()
            index.top_k([query.text], depth, method)
            took += [now() - began] if again else []
    return float(np.median(took))


def _sample_queries(queries: Sequence[JudgedQuery]) -> list[JudgedQuery]:
    """A few queries with at least the median number of candidates."""
    usual = np.median([len(query.numbers) for query in queries])
    long = [query for query in queries if len(query.numbers) >= usual]
    places = np.linspace(0, len(long) - 1, min(_TIMED_QUERIES, len(long))).astype(int)
    return [long[place] for place in places]


def _rerank(way: Variant, query: JudgedQuery) -> Ranking:
    return way.pipeline.rerank(query.text, query.numbers, query.scores)


@dataclass(frozen=True)
class Line:
    """One line of the plot: a variant of a model."""

    model: str
    variant: str
    speed: Speed
    curves: dict[str, TimeCurve]
    """By measure."""

    @property
    def label(self) -> str:
        """Unique among the lines of a plot."""
        return f"{self.model} ({self.variant})"


@dataclass(frozen=True)
class BudgetReport:
    """All lines, over the same candidates."""

    judged: int
    """Queries with judgments."""
    deepest: int
    """The most candidates that a query has."""
    chosen_on: str
    """`dev` if depths were chosen on dev queries, else `run`."""
    machine: dict[str, Any]
    max_ms: int
    lines: list[Line]

    @property
    def first_stage(self) -> dict[str, float]:
        """Each measure before any re-ranking."""
        return {name: float(curve.at_depth[0]) for name, curve in self.lines[0].curves.items()}

    def to_json(self) -> dict[str, Any]:
        """`docs/reference/formats.md` describes the fields."""
        ms = np.arange(self.max_ms + 1)
        return {
            "format": _FORMAT,
            "queries": self.judged,
            "candidates": self.deepest,
            "chosen_on": self.chosen_on,
            "machine": self.machine,
            "first_stage": self.first_stage,
            "ms": ms.tolist(),
            "models": [
                {
                    "label": line.label,
                    "model": line.model,
                    "way": line.variant,
                    "docs_per_ms": line.speed.docs_per_ms,
                    "query_ms": line.speed.query_ms,
                    "depth": np.minimum(line.speed.depth(ms), self.deepest).tolist(),
                    "measures": {
                        name: {
                            "at_ms": curve.at_ms(ms).tolist(),
                            "at_depth": curve.at_depth.tolist(),
                            "best": {
                                "depth": curve.chosen,
                                "ms": curve.chosen_ms,
                                "value": curve.chosen_value,
                            },
                        }
                        for name, curve in line.curves.items()
                    },
                }
                for line in self.lines
            ],
        }


def default_max_ms(lines: Sequence[Line]) -> int:
    """The time of the slowest for all candidates, at most a second."""
    slowest = max(curve.all_ms for line in lines for curve in line.curves.values())
    return int(np.clip(np.ceil(slowest), 1, 1000))
