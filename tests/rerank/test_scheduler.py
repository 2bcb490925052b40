"""With a fake clock the rule is exact."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.deadline import NEVER, Deadline, now
from glassrank.rerank.scheduler import Chunk, CostModel, Scheduler, scoring_reserve_ms


class FakeClock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def run(
    scheduler: Scheduler,
    score: Callable[[Chunk], None],
    sizes: np.ndarray,
    cost: CostModel,
    deadline: Deadline,
    max_size: float,
    is_interruptible: bool = False,
) -> int:
    """Scores chunk after chunk; how many candidates have a score."""
    depth = 0
    for chunk in scheduler.chunks(
        sizes, cost, deadline, max_size, is_interruptible=is_interruptible
    ):
        score(chunk)
        depth = depth if chunk.is_late else chunk.stop
    return depth


times = st.floats(0, 20, allow_nan=False)


@given(
    budget=st.floats(0, 100),
    sizes=st.lists(st.floats(0.5, 300), max_size=60),
    base=times,
    rate=times,
    took=st.lists(st.floats(0, 50), min_size=60, max_size=60),
    most=st.floats(1, 1000),
)
def test_no_chunk_begins_whose_prediction_passes_the_deadline(
    budget: float, sizes: list[float], base: float, rate: float, took: list[float], most: float
) -> None:
    clock = FakeClock()
    cost = CostModel(base, rate)
    deadline = Deadline.after(budget, clock)
    chunks: list[tuple[int, int]] = []

    grace = scoring_reserve_ms(budget) / 2  # of what a pipeline keeps beside this budget

    def score(chunk: Chunk) -> None:
        start, stop = chunk.start, chunk.stop
        size, end = sum(sizes[start:stop]), budget * (1 + 1e-9) + 1e-9
        assert clock.time + cost.expect(size) <= end
        assert clock.time + cost.predict(size) <= end + (grace if stop == start + 1 else 0)
        clock.time += took[len(chunks)]
        chunks.append((start, stop))

    depth = run(Scheduler(clock), score, np.array(sizes), cost, deadline, most)
    # Without a gap, from the first candidate on, each once.
    assert [n for start, stop in chunks for n in range(start, stop)] == list(range(depth))
    if depth < len(sizes):  # it stopped because the next one alone would be late
        following = np.array(sizes[depth : depth + 1])
        assert cost.fitting(following, deadline.remaining()) == 0


@given(
    sizes=st.lists(st.floats(1, 300), min_size=1, max_size=60),
    base=st.floats(0.01, 2),
    rate=st.floats(0.001, 0.1),
)
def test_known_costs_use_the_budget_to_the_last_candidate_that_fits(
    sizes: list[float], base: float, rate: float
) -> None:
    clock = FakeClock()
    cost = CostModel(base, rate)
    budget = base + rate * sum(sizes) / 2

    def score(chunk: Chunk) -> None:
        clock.time += base + rate * sum(sizes[chunk.start : chunk.stop])

    deadline = Deadline.after(budget, clock)
    depth = run(Scheduler(clock), score, np.array(sizes), cost, deadline, 1e9)
    assert clock.time <= budget * (1 + 1e-6)
    if depth < len(sizes):
        assert clock.time + base + rate * sizes[depth] > budget * (1 - 1e-6)


def test_candidates_longer_than_a_chunk_come_one_by_one() -> None:
    """All that are left as one chunk could not be stopped."""
    clock, cost = FakeClock(), CostModel(0.0, 0.1)
    counts: list[int] = []

    def score(chunk: Chunk) -> None:
        counts.append(chunk.stop - chunk.start)
        clock.time += 0.1 * 120 * counts[-1]

    deadline = Deadline.after(50, clock)
    assert run(Scheduler(clock), score, np.full(9, 120.0), cost, deadline, 1e9) == 4
    assert counts == [1] * 4


def test_a_margin_alone_does_not_refuse_the_last_candidate() -> None:
    """Half of the reserve is as good as a margin."""
    depths = []
    for margin in (0.08, 0.2):  # 9.5 ms are 10.26 with the one, and 11.4 with the other
        clock, cost = FakeClock(), CostModel(0.0, 0.1)
        cost.margin = margin
        deadline = Deadline.after(10, clock)
        depths.append(run(Scheduler(clock), ignore, np.full(1, 95.0), cost, deadline, 1e9))
    assert depths == [1, 0]


def ignore(chunk: Chunk) -> None:
    """Takes no time."""


def test_without_a_budget_all_are_scored_in_chunks_that_fit_in_memory() -> None:
    chunks = Scheduler().chunks(np.full(10, 4.0), CostModel(), Deadline.after(None), 12)
    assert [chunk.stop - chunk.start for chunk in chunks] == [3, 3, 3, 1]


def test_chunks_begin_where_the_last_ones_ended() -> None:
    chunks = Scheduler().chunks(np.full(10, 4.0), CostModel(), NEVER, 12, start=5)
    assert [(chunk.start, chunk.stop) for chunk in chunks] == [(5, 8), (8, 10)]


def test_costs_are_learned_from_what_was_seen() -> None:
    cost = CostModel()
    rng = np.random.default_rng(0)
    for size in rng.uniform(10, 500, 100):
        cost.learn(size, 2 + 0.03 * size)
    assert cost.base == pytest.approx(2, rel=0.01) and cost.rate == pytest.approx(0.03, rel=0.01)
    assert cost.margin < 0.01


def test_one_pause_does_not_spoil_the_predictions() -> None:
    cost = CostModel()
    for size in range(10, 200):
        cost.learn(size, 1 + 0.1 * size)
    before = cost.predict(100)
    cost.learn(100, 5000)
    assert cost.predict(100) < 4 * before
    for size in range(10, 100):
        cost.learn(size, 1 + 0.1 * size)
    assert cost.predict(100) == pytest.approx(before, rel=0.1)


@given(seen=st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 100)), max_size=30))
def test_predictions_are_numbers_that_grow_with_size(seen: list[tuple[float, float]]) -> None:
    cost = CostModel()
    for size, took in seen:
        cost.learn(size, took)
    predicted = [cost.predict(size) for size in (0, 1, 10, 1000)]
    assert all(np.isfinite(predicted)) and predicted == sorted(predicted) and predicted[0] >= 0


def test_time_is_kept_for_what_comes_after() -> None:
    """What it has cost, and something to spare; but never so much that nothing is done."""
    clock = FakeClock()
    scheduler = Scheduler(clock)
    assert scheduler.response_deadline(arrived=0.0, budget_ms=100.0).at == pytest.approx(94)
    deadline = Deadline.after(100.0, clock)
    assert scheduler.ranking_deadline(deadline, snippets=10).at == 100
    assert scheduler.scoring_deadline(deadline, candidates=50).at == pytest.approx(95)
    assert scheduler.scoring_deadline(Deadline.after(10.0, clock), 50).at == pytest.approx(9.2)
    assert scheduler.counting_deadline(deadline).at == pytest.approx(20)
    for _ in range(50):
        scheduler.learn("sending", 1, 4.0)
        scheduler.learn("snippets", 10, 20.0)
        scheduler.learn("response", 10, 30.0)
        scheduler.learn("sorting", 50, 2.0)
    assert scheduler.response_deadline(0.0, 100.0).at == pytest.approx(90, abs=0.1)
    assert scheduler.response_deadline(0.0, 10.0).at == pytest.approx(7.5)
    assert scheduler.ranking_deadline(deadline, 10).at == pytest.approx(80, abs=0.1)
    assert scheduler.ranking_deadline(Deadline.after(30.0, clock), 10).at == pytest.approx(15)
    assert scheduler.ranking_deadline(Deadline.after(-5.0, clock), 10).at == -5
    assert scheduler.scoring_deadline(deadline, 50).at == pytest.approx(93, abs=0.1)
    assert scheduler.min_response_ms(10) == pytest.approx(30, abs=0.1)


def test_work_is_timed_by_the_wall_whatever_clock_a_deadline_has() -> None:
    """A deadline may count what a thread has computed; what a chunk costs is how long it took."""
    wall, cost = FakeClock(), CostModel()

    def score(chunk: Chunk) -> None:
        wall.time += 10.0

    stands_still = Deadline(lambda: 0.0, 1e6)
    run(Scheduler(wall), score, np.full(1, 5.0), cost, stands_still, 100.0)
    assert cost.predict(5.0) == pytest.approx(10.0)


def test_no_chunk_follows_one_that_was_interrupted() -> None:
    """Each knows when it must end; what was scored before it stays."""
    ends: list[float] = []
    deadline = Deadline.after(1_000.0)

    def score(chunk: Chunk) -> None:
        ends.append(chunk.deadline.at)
        chunk.is_late = chunk.start >= 40

    cost = CostModel(base=0.1, rate=0.01)
    assert run(Scheduler(), score, np.full(100, 5.0), cost, deadline, 100.0, True) == 40
    assert len(ends) == 3 and all(1.0 < at - deadline.at <= 5.0 for at in ends)


def test_only_the_wall_clock_interrupts_a_chunk() -> None:
    """A model, which looks at no other one, would take the time of another for its own."""
    clock = FakeClock()
    deadline = Deadline.after(10.0, clock)
    (chunk,) = Scheduler(clock).chunks(
        np.ones(3), CostModel(), deadline, 9.0, is_interruptible=True
    )
    assert chunk.deadline is NEVER and Deadline.after(1.0).clock is now


@pytest.mark.parametrize(
    ("ms", "is_interruptible", "tried"),
    [(9_900, False, 1), (10_002, False, 0), (10_002, True, 1), (10_010, True, 0)],
)
def test_what_can_be_interrupted_may_use_the_reserve(
    ms: float, is_interruptible: bool, tried: int
) -> None:
    """Of 10 s, 5 ms are reserved beside the budget."""
    deadline, cost = Deadline.after(10_000.0), CostModel(rate=1.0)
    sizes = np.array([ms])
    assert run(Scheduler(), ignore, sizes, cost, deadline, 1e9, is_interruptible) == tried


def test_a_chunk_that_was_interrupted_does_not_look_cheap() -> None:
    cost = CostModel(rate=10.0)

    def interrupt(chunk: Chunk) -> None:
        chunk.is_late = True

    deadline = Deadline.after(600.0)
    assert not run(Scheduler(), interrupt, np.array([50.0]), cost, deadline, 1e9, True)
    assert cost.expect(50.0) >= 499.0
