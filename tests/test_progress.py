"""Progress in lines: how far long work is, and how long the rest takes."""

from collections.abc import Iterator

from glassrank.progress import say_progress


def ticks(seconds: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += seconds


def test_a_line_every_ten_seconds_estimates_the_rest() -> None:
    said: list[str] = []
    clock = ticks(4.0)
    items = say_progress(
        range(8), "texts", 2048, said.append, at_once=256, clock=lambda: next(clock)
    )
    assert list(items) == list(range(8))
    assert said == [
        "texts: 512 of 2,048, 43 a second, 0:00:36 left",
        "texts: 1,280 of 2,048, 53 a second, 0:00:14 left",
    ]


def test_without_a_total_nothing_is_estimated() -> None:
    said: list[str] = []
    clock = ticks(10.0)
    list(say_progress("abc", "texts", None, said.append, clock=lambda: next(clock)))
    assert said == ["texts: 0, 0 a second", "texts: 1, 0 a second", "texts: 2, 0 a second"]


def test_quick_work_says_nothing() -> None:
    said: list[str] = []
    assert list(say_progress("abc", "texts", 3, said.append)) == ["a", "b", "c"]
    assert said == []
