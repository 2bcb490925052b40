"""Work in several threads at once: all of it is done, also after a fork, and errors come out."""

import os
import threading

import pytest
import torch

from glassrank.backends.threads import map_parallel, run_parallel


@pytest.mark.parametrize("count", [1, 2, 7])
def test_each_share_is_done_once(count: int) -> None:
    done: list[int] = []
    for _ in range(20):
        run_parallel(done.append, count)
    assert sorted(done) == sorted(list(range(count)) * 20)


def test_the_first_share_is_this_threads_own() -> None:
    names: dict[int, str] = {}
    run_parallel(lambda number: names.update({number: threading.current_thread().name}), 2)
    assert names[0] == threading.current_thread().name != names[1]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_comes_out_when_all_have_ended(failing: int) -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        if number == failing:
            raise ValueError(f"share {number}")
        ended.append(number)

    with pytest.raises(ValueError, match=f"share {failing}"):
        run_parallel(work, 2)
    assert ended == [1 - failing]


def test_callers_do_not_wait_for_each_other_for_ever() -> None:
    def caller() -> None:
        for _ in range(50):
            run_parallel(lambda _: None, 3)

    callers = [threading.Thread(target=caller) for _ in range(6)]
    for one in callers:
        one.start()
    for one in callers:
        one.join(timeout=30)
        assert not one.is_alive()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    run_parallel(lambda _: None, 2)
    child = os.fork()
    if child == 0:
        done: list[int] = []
        run_parallel(done.append, 2)
        os._exit(0 if sorted(done) == [0, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_work_apart_leaves_torchs_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    seen: dict[int, tuple[int, bool]] = {}

    def work(number: int) -> None:
        seen[number] = torch.get_num_threads(), torch.is_grad_enabled()

    map_parallel(work, [0, 1])
    assert seen == {0: (1, False), 1: (1, False)}
    assert map_parallel(str.upper, ["a", "b", "c"]) == ["A", "B", "C"]
    assert torch.get_num_threads() == before and torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError):
        map_parallel(lambda number: 1 // number, [0, 1])
    assert torch.get_num_threads() == before
