"""The first query is as good as the tenth: what has to be done once is done before the clock."""

import subprocess
import sys
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from step_clock import StepClock
from test_pipeline import texts, tiny_model

import glassrank
from glassrank.deadline import Deadline, now
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import BudgetWarning, CostModel, Pipeline, Reranker, load, rank, warm_up
from glassrank.text import detection
from glassrank.types import Doc, Ranking

SLOW_START_MS = 1500.0


class Compiling(Reranker):
    """The first text takes as long as if code had to be compiled, and so does the first query."""

    compiled: frozenset[str] = frozenset()

    def _compile(self, what: str) -> None:
        if what not in self.compiled:
            self.compiled |= {what}
            time.sleep(SLOW_START_MS / 1e3)

    def score_passages(self, *given: Any) -> Any:
        self._compile("texts")
        return super().score_passages(*given)

    def encode_query(self, query: str) -> Any:
        self._compile("query")
        return super().encode_query(query)


@pytest.fixture
def compiling() -> Compiling:
    return Compiling(tiny_model(), exact=True)


@pytest.mark.quiet
def test_the_first_texts_are_ranked_in_time(compiling: Compiling) -> None:
    ranking = rank("the cat sat", texts(12), model=compiling, budget_ms=SLOW_START_MS)
    assert ranking.depth == 12 and not ranking.cut_short
    assert ranking.timing["total"] < SLOW_START_MS


def test_what_detects_languages_is_loaded_before_the_first_texts(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Identifier:
        def classify(self, _: str) -> tuple[str, float]:
            return "de", 1.0

    @cache
    def slow_start(_: tuple[str, ...]) -> Identifier:
        time.sleep(SLOW_START_MS / 1e3)
        return Identifier()

    monkeypatch.setattr(detection, "_identifier", slow_start)
    ranking = rank(
        "the cat sat", texts(12), model=compiling, budget_ms=SLOW_START_MS, language="auto"
    )
    assert ranking.depth == 12
    assert slow_start.cache_info().misses == 1


def test_a_cost_is_known_before_the_first_texts(compiling: Compiling) -> None:
    before = compiling.cost.predict(100)
    warm_up(compiling)
    assert compiling.cost.predict(100) != before
    assert compiling.cost.predict(100) < SLOW_START_MS  # and not what compiling takes
    learned = compiling.cost.base, compiling.cost.rate
    warm_up(compiling)
    assert (compiling.cost.base, compiling.cost.rate) == learned  # once is enough


def test_a_clock_that_runs_already_is_not_kept_waiting(compiling: Compiling) -> None:
    """Who gives a deadline has warmed up before; nothing else begins inside it."""
    rank("the cat", ["the cat"], model=compiling, deadline=Deadline(now, now() - 1))
    assert compiling.compiled == frozenset() and not compiling.is_warm


def test_a_model_can_be_warmed_when_it_is_loaded(tmp_path: Path) -> None:
    saved = tiny_model()
    save_model(tmp_path / "m", saved.model, saved.usage, saved.vocabulary, "")
    cold = load(tmp_path / "m")
    assert not cold.is_warm
    assert load(str(tmp_path / "m"), warm=True) is cold and cold.is_warm
    assert load(model=tmp_path / "m", device="cpu") is cold


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.quiet
def test_the_first_query_of_a_pipeline_is_in_time(
    compiling: Compiling, tmp_path: Path, stored: bool
) -> None:
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(40))], tmp_path / "i")
    if stored:
        encode_index(index, compiling.saved)
        index.add([Doc("new", "the cat sat on the warm mat")])  # which is encoded live
    began = now()
    search = Pipeline(index, compiling, budget_ms=SLOW_START_MS)
    assert now() - began > SLOW_START_MS
    ranking = search("the cat sat", k=3)
    assert ranking.depth == 40 + stored and not ranking.cut_short
    assert ranking.timing["total"] < SLOW_START_MS


def test_the_first_stage_is_compiled_before_the_first_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(9))], tmp_path / "i")
    methods: list[Any] = []
    original = Index.top_k

    def noted(self: Index, queries: Any, k: int, method: Any = "bm25", **more: Any) -> Any:
        methods.append(method)
        return original(self, queries, k, method, **more)

    monkeypatch.setattr(Index, "top_k", noted)
    Pipeline(index, Reranker(tiny_model()), method="ql")
    assert methods == ["ql"]


def late_pipeline(tmp_path: Path) -> Pipeline:
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(40))], tmp_path / "i")
    pipeline = Pipeline(index, Reranker(tiny_model()), clock=StepClock(), calibrate=False)
    pipeline.stages[0].cost = CostModel(base=1.0, rate=0.1)
    return pipeline


def test_what_was_cut_short_says_so(tmp_path: Path) -> None:
    pipeline = late_pipeline(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        asked = [pipeline("the cat sat", budget_ms=budget) for budget in range(2, 40)]
    parts = [ranking for ranking in asked if 0 < ranking.depth < 40]
    assert parts and all(ranking.found == 40 for ranking in asked)
    for ranking in asked:
        assert ranking.cut_short == (ranking.depth < 40) == ranking.to_json()["cut_short"]
    whole = pipeline("the cat sat")
    assert whole.depth == 40 and not whole.cut_short
    assert not Pipeline(pipeline.index)("the cat sat").cut_short  # nothing else was asked for
    assert not pipeline("zebra", budget_ms=40).cut_short  # nothing was found


def test_nothing_reached_is_a_warning_once_for_each_place(tmp_path: Path) -> None:
    pipeline = late_pipeline(tmp_path)

    def ask() -> Ranking:
        return pipeline("the cat sat", budget_ms=0.5)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        assert ask().depth == 0
        assert ask().cut_short
    assert [warning.category for warning in seen] == [BudgetWarning]
    assert "nothing could be re-ranked in 0.5 ms" in str(seen[0].message)
    assert seen[0].filename == __file__
    with pytest.warns(BudgetWarning):
        rank("cat", ["cat"] * 9, model=pipeline.reranker, budget_ms=0.5, clock=StepClock())


_FRESH = """
import random, statistics
import glassrank as gr
words = "read write a csv file row reader from the module with open text lines class socket".split()
draw = random.Random(0)
texts = [" ".join(draw.choices(words, k=draw.randint(30, 150))) for _ in range(1000)]
depths = [gr.rank("how do I read a csv file?", texts, budget_ms=200).depth for _ in range(10)]
print(depths[0], statistics.median(depths[1:]))
"""


@pytest.mark.slow
def test_in_a_new_process_the_first_ranking_is_as_deep_as_later_ones() -> None:
    root = Path(glassrank.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", _FRESH], cwd=root, capture_output=True, text=True, timeout=300
    )
    first, later = map(float, done.stdout.split())
    assert first > 0.4 * later > 0, done.stdout  # a busy machine varies that much by itself
