"""Team-draft interleaving, and the interval that one may look at after every click."""

import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from math import comb

import pytest
from small_service import in_process
from starlette.testclient import TestClient

from glassrank.errors import InputError
from glassrank.serve import Options
from glassrank.serve.interleaving import (
    ALPHA,
    Interleaving,
    confidence_interval,
    draft_teams,
    is_decided,
)


def test_each_model_adds_its_best_documents_in_its_order() -> None:
    coin = random.Random(1)
    for _ in range(200):
        rankings = [coin.sample(range(12), 10) for _ in range(2)]
        drafted = draft_teams(*rankings, 10, coin)
        assert len({doc for doc, _ in drafted}) == len(drafted) == 10
        for team, ranking in enumerate(rankings):
            places = [ranking.index(doc) for doc, owner in drafted if owner == team]
            assert places == sorted(places)
        sizes = Counter(owner for _, owner in drafted)
        assert abs(sizes[0] - sizes[1]) <= 1


def test_teams_are_fair() -> None:
    """Whoever swaps the two models swaps the teams, and nothing else."""
    coin = random.Random(2)
    first = Counter(draft_teams("abcd", "dcba", 4, coin)[0][1] for _ in range(4_000))
    assert abs(first[0] - 2_000) < 4 * 32  # four standard deviations


def test_short_rankings_end() -> None:
    coin = random.Random(0)
    assert draft_teams("ab", "ab", 5, coin) == [("a", None), ("b", None)]
    assert {doc for doc, _ in draft_teams("a", "bcd", 9, coin)} == set("abcd")
    assert draft_teams("", "", 5, coin) == []


def test_the_interval_is_what_the_mixture_does_not_refute() -> None:
    """The definition: a uniform mixture of likelihoods against that of p, below 1 / alpha."""
    for wins, trials in ((0, 5), (3, 10), (60, 100), (100, 100)):
        low, high = confidence_interval(wins, trials)

        def ratio(p: float, wins: int = wins, trials: int = trials) -> float:
            mixture = 1 / ((trials + 1) * comb(trials, wins))
            likelihood: float = p**wins * (1 - p) ** (trials - wins)
            return mixture / likelihood

        for p in (number / 200 for number in range(1, 200)):
            if abs(p - low) > 1e-6 and abs(p - high) > 1e-6:
                assert (low < p < high) == (ratio(p) < 1 / ALPHA)


def test_equal_models_are_rarely_told_apart() -> None:
    coin = random.Random(3)
    decided = 0
    for _ in range(100):
        wins = accumulate(coin.random() < 0.5 for _ in range(1_000))
        decided += any(is_decided(won, trials) for trials, won in enumerate(wins, 1))
    assert decided <= 0.05 * 100


@pytest.mark.slow
def test_equal_models_are_not_told_apart_in_twenty_thousand_searches() -> None:
    """Two rankers that are different, and equally good: users click on what is relevant."""
    coin = random.Random(4)
    decided = 0
    for _ in range(200):
        interleaving = Interleaving(("a", "b"), 1.0, 10)
        for search in range(20_000):
            click_one(interleaving, str(search), (1.0, 1.0), coin)
        decided += interleaving.state()["decided"] is not None
    assert decided <= 0.05 * 200


def click_one(
    interleaving: Interleaving, query_id: str, noise: tuple[float, float], coin: random.Random
) -> None:
    """One search of a simulated user: documents are relevant to some degree, each ranker sees that
    through its own noise, and the user clicks on the first that seems good."""
    relevance = [coin.random() for _ in range(6)]
    rankings = [
        sorted(range(6), key=lambda doc: -relevance[doc] - sigma * coin.random()) for sigma in noise
    ]
    for doc in interleaving.draft(query_id, *rankings, 4):
        if coin.random() < relevance[doc] / 2:
            interleaving.click(query_id, doc)
            break


def test_a_better_model_wins_soon() -> None:
    coin = random.Random(5)
    for _ in range(5):
        interleaving = Interleaving(("worse", "better"), 1.0, 100)
        for search in range(2_000):
            click_one(interleaving, str(search), (2.0, 0.2), coin)
        assert interleaving.state()["decided"] == "better"


def test_only_the_first_click_of_a_search_counts() -> None:
    interleaving = Interleaving(("a", "b"), 1.0, 100)
    ids = interleaving.draft("q", ["x", "y", "z"], ["x", "z", "y"], 3)
    for doc_id in ("x", "unknown", *ids, *ids):
        interleaving.click("q", doc_id)
    interleaving.click("no such query", "y")
    assert sum(interleaving.state()["wins"]) == 1


@pytest.fixture(scope="module")
def comparing(options: Options) -> TestClient:
    with in_process(replace(options, interleave="knrm", interleave_share=1.0)) as client:
        yield client


def test_a_search_shows_both_models_and_clicks_are_counted(comparing: TestClient) -> None:
    alone = [
        [hit["doc_id"] for hit in comparing.get(f"/search?query=cat&model={name}").json()["hits"]]
        for name in ("tk", "knrm")
    ]
    wins = Counter[str]()
    for _ in range(6):
        found = comparing.get("/search?query=cat").json()
        assert found["interleaved"] and "interleaving" in found["timing_ms"]
        ids = [hit["doc_id"] for hit in found["hits"]]
        assert [hit["rank"] for hit in found["hits"]] == list(range(1, 11))
        assert all(hit["snippet"]["text"] for hit in found["hits"])
        assert set(ids) <= set(alone[0]) | set(alone[1])
        chosen = next(i for i in ids if (i in alone[0]) != (i in alone[1]))
        wins["tk" if chosen in alone[0] else "knrm"] += 1
        body = {"query_id": found["query_id"], "doc_id": chosen, "action": "click"}
        assert comparing.post("/feedback", json=body).status_code == 200
    state = comparing.get("/info").json()["interleaving"]
    assert dict(zip(state["models"], state["wins"], strict=True)) == {"tk": 0, "knrm": 0, **wins}
    assert state["searches"] == 6 and state["decided"] is None
    metrics = comparing.get("/metrics").text
    for name, count in wins.items():
        assert f'glassrank_interleaving_wins{{model="{name}"}} {count:.1f}' in metrics


def test_a_model_that_is_named_is_shown_alone(comparing: TestClient) -> None:
    found = comparing.get("/search?query=cat&model=tk").json()
    assert not found["interleaved"]
    lines = comparing.get("/search?query=cat&stream=true").text.splitlines()
    assert len(lines) == 2 and '"stage": "final"' in lines[1]


def test_what_cannot_be_compared_is_refused(options: Options) -> None:
    for changes in (
        {"interleave": "tk"},
        {"interleave": "no such"},
        {"interleave": "knrm", "workers": 2},
        {"interleave": "knrm", "interleave_share": 0.0},
    ):
        with pytest.raises(InputError, match="--interleave"):
            replace(options, **changes)  # type: ignore[arg-type]
