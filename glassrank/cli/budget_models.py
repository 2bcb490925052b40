"""The models of `glassrank budget`: each scores all candidates once, and all are timed in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassrank.cli import console
from glassrank.cli.budget_queries import Candidates, JudgedQueries
from glassrank.deadline import now
from glassrank.errors import InputError
from glassrank.measure.budget_curve import Speed
from glassrank.rank import Pipeline, Reranker
from glassrank.retrieve import Index
from glassrank.store import Store
from glassrank.types import Ranking, Run

_TIMED_QUERIES = 8


@dataclass(frozen=True)
class Way:
    """One way to score documents with a model: encoded live, or read from a store."""

    name: str
    """`live`, or `stored` and how."""
    pipeline: Pipeline


@dataclass(frozen=True)
class TimedModel:
    label: str
    ways: list[Way]

    @property
    def used(self) -> Pipeline:
        """From the store if there is one, as it would be in use, and far faster than live."""
        return self.ways[-1].pipeline

    def scored(self, queries: JudgedQueries, *, quiet: bool) -> Run:
        """One scoring pass over all candidates."""
        asked = queries.candidates
        tracked = console.track(asked, f"Scoring with {self.label}", total=len(asked), quiet=quiet)
        return Run.from_rankings((one.query_id, _rerank(self.used, one)) for one in tracked)


def open_models(models: Sequence[str], index: Index, deepest: int, device: str) -> list[TimedModel]:
    opened = []
    for model, label in zip(models, labels(models), strict=True):
        reranker = Reranker.load(model, device)
        store = Store.find(index, reranker.model)
        live = Pipeline(index, reranker, store=None, candidates=deepest, calibrate=False)
        ways = [Way("live", live)]
        if store is not None:
            stored = Pipeline(index, reranker, store=store, candidates=deepest, calibrate=False)
            ways.append(Way(f"stored, {store.dtype}", stored))
        opened.append(TimedModel(label, ways))
    return opened


def labels(models: Sequence[str]) -> list[str]:
    """Folders' names; of those that share a name, the paths.

    >>> labels(["runs/a/model", "runs/b/model", "runs/tk/", "default"])
    ['runs/a/model', 'runs/b/model', 'tk', 'default']
    """
    paths = [Path(model) for model in models]
    if len(set(paths)) < len(paths):
        twice = next(str(path) for path in paths if paths.count(path) > 1)
        raise InputError(f"--model {twice} is given twice; give each model once")
    names = [path.resolve().name for path in paths]
    return [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, paths, strict=True)
    ]


def measure_speeds(
    models: Sequence[TimedModel], queries: Sequence[Candidates], repeats: int, *, quiet: bool
) -> list[list[Speed]]:
    """The speed of each way of each model: medians over some queries, each again and again.

    A first round is not counted: it compiles and fills caches. All models have their turn with each
    query, so that what else the machine does slows them alike.
    """
    ways = [way for model in models for way in model.ways]
    some = _timed(queries)
    docs, scoring, encoding = (np.zeros((len(ways), repeats, len(some))) for _ in range(3))
    turns = [(again, number) for again in range(-1, repeats) for number in range(len(some))]
    for again, number in console.track(turns, "Timing", total=len(turns), quiet=quiet):
        for position, way in enumerate(ways):
            timing = _rerank(way.pipeline, some[number]).timing
            if again >= 0:
                docs[position, again, number] = len(some[number].numbers)
                scoring[position, again, number] = timing["scoring"]
                encoding[position, again, number] = timing["query"]
    speeds = iter(map(Speed.median, docs, scoring, encoding))
    return [[next(speeds) for _ in model.ways] for model in models]


def first_stage_ms(index: Index, method: str, queries: Sequence[Candidates], depth: int) -> float:
    """What it takes to find candidates: a median, of which the first round is not counted."""
    took = []
    for again in range(2):
        for one in _timed(queries):
            began = now()
            index.top_k([one.text], depth, method)
            took += [now() - began] if again else []
    return float(np.median(took))


def _timed(queries: Sequence[Candidates]) -> list[Candidates]:
    """Some of those with no fewer candidates than most have: a short list says little of speed."""
    usual = np.median([len(one.numbers) for one in queries])
    long = [one for one in queries if len(one.numbers) >= usual]
    places = np.linspace(0, len(long) - 1, min(_TIMED_QUERIES, len(long))).astype(int)
    return [long[place] for place in places]


def _rerank(pipeline: Pipeline, one: Candidates) -> Ranking:
    return pipeline.rerank(one.text, one.numbers, one.scores)
