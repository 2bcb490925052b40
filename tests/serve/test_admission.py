"""Time shared among those who wait: everybody less deep, before anybody is refused."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from glassrank.deadline import Deadline
from glassrank.serve.admission import AdmissionController, QueuedRequest

BUDGET = 45.0
PIECE = 0.5
DOCS = 10
CANDIDATES = 1000


@dataclass
class Machine:
    """One thread and clients that ask again as soon as they are answered, on a clock of its own."""

    least: float
    """Milliseconds of an answer that nothing is re-ranked for."""
    time: float = 0.0
    refused: int = 0
    depths: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = AdmissionController(1, lambda: self.time)
        self._queue: deque[tuple[QueuedRequest, float]] = deque()

    def ask(self) -> None:
        request = self.admission.new_request(Deadline.after(BUDGET, lambda: self.time), self.least)
        expected = self.admission.expected_wait()
        if expected and expected + request.needs_ms > request.deadline.remaining():
            self.refused += 1
            return
        self.admission.enqueue(request)
        self._queue.append((request, self.time))

    def answer(self) -> None:
        request, arrived = self._queue.popleft()
        deadline = self.admission.start(request)
        self.time += self.least
        depth = 0
        while depth < CANDIDATES and deadline.remaining() >= PIECE:
            self.time += PIECE
            depth += DOCS
        self.admission.finish(request, succeeded=True)
        self.depths.append(depth)
        self.latencies.append(self.time - arrived)

    def run(self, clients: int, answers: int = 400) -> None:
        for _ in range(clients):
            self.ask()
        for _ in range(answers):
            self.answer()
            self.ask()


@pytest.mark.parametrize("clients", [1, 2, 8, 20])
def test_everybody_is_answered_in_time_while_the_least_fits(clients: int) -> None:
    machine = Machine(least=2.0)
    machine.run(clients)
    assert machine.refused == 0
    assert max(machine.latencies) <= BUDGET
    if clients > 1:  # some is left for pauses of the machine
        assert max(machine.latencies[clients:]) <= 0.95 * BUDGET


def test_depth_is_given_up_first_and_evenly() -> None:
    depths = []
    for clients in (1, 4, 8, 16):
        machine = Machine(least=2.0)
        machine.run(clients)
        settled = machine.depths[clients:]
        depths.append(sum(settled) / len(settled))
        assert max(settled) - min(settled) <= max(2 * DOCS, 0.2 * depths[-1])
    assert depths[0] >= 800  # all of the time
    assert depths[0] > depths[1] > depths[2] > depths[3] > 0
    # Eight answers in their budget: what the least leaves, divided by eight.
    assert depths[2] == pytest.approx(0.7 * (BUDGET / 8 - 2.0) / PIECE * DOCS, rel=0.5)


def test_refusals_begin_where_not_even_the_least_fits() -> None:
    machine = Machine(least=2.0)
    machine.run(30)  # sixty milliseconds of the least alone
    assert 8 <= machine.refused <= 10
    assert max(machine.latencies) <= BUDGET


def test_one_that_runs_gets_less_when_others_come() -> None:
    machine = Machine(least=2.0)
    first = machine.admission.new_request(Deadline.after(BUDGET, lambda: machine.time), 2.0)
    machine.admission.enqueue(first)
    deadline = machine.admission.start(first)
    assert deadline.remaining() == BUDGET
    machine.time = 5.0
    assert deadline.remaining() == BUDGET - 5
    machine.ask()
    # From its beginning on, its least, and half of what may be shared beyond both leasts.
    assert deadline.remaining() == pytest.approx(2 + 0.7 * (50 - 2 - 2) / 2 - 5)
    for _ in range(30):
        machine.ask()
    assert deadline.remaining() < 0  # it has had more than its share, and ends


def test_a_short_budget_is_kept_before_a_long_one() -> None:
    machine = Machine(least=2.0)
    long = machine.admission.new_request(Deadline.after(1000, lambda: machine.time), 2.0)
    machine.admission.enqueue(long)
    deadline = machine.admission.start(long)
    machine.ask()
    assert deadline.remaining() == pytest.approx(2 + 0.7 * (BUDGET - 4) / 2)


def test_predictions_that_were_spoilt_refuse_nobody_on_an_idle_machine() -> None:
    """A slow moment has taught that an answer takes a second. Two requests at once, as a page may
    have, are still taken."""
    machine = Machine(least=1000.0)
    machine.ask()
    machine.admission.start(machine._queue.popleft()[0])
    machine.ask()
    assert machine.refused == 0
