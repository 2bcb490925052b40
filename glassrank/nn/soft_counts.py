"""Soft counts and scores from similarities, compiled: the inner loops of `pool_cpu`.

Sixteen query words stand side by side in a vector, document words come one after another, so
nothing is ever summed across a vector. Two document words share each visit to the sums.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from glassrank.nn.kernels import FLOOR
from glassrank.nn.lanes import (
    LANES,
    from_on,
    larger,
    load,
    load_one,
    multiply_add,
    smaller,
    spread,
    spread_at,
    store,
)
from glassrank.nn.vector_math import exp2, exp2_both, log

_FLOOR = np.float32(FLOOR)
_ZERO = np.float32(0)
_ONE = np.float32(1)


class Pooling(NamedTuple):
    """Kernels in the order of `kernel_runs`, and what their counts are worth; in compiled code,
    pointers stand in the place of arrays."""

    curves: Any
    steps: Any
    runs: int
    kernels: int
    order: Any
    constants: Any
    log: Any
    length: Any
    at_least: bool
    borders: Any
    """Centers, in that order; where kernels count what is at least as similar, `tops` are their
    values from there on, without their constants."""
    tops: Any


@njit
def _distance(similarity: Any, middle: Any, limit: Any) -> Any:
    return larger(smaller(similarity - middle, limit), spread(_ZERO) - limit)


@njit
def _add(sums: Any, place: int, values: Any) -> int:
    """Adds to the sums of one kernel; says where the next one's are."""
    store(sums, place, load(sums, place) + values)
    return place + LANES


@njit(inline="always")
def count_pair(first: Any, second: Any, times: Any, pooling: Any, sums: Any, place: int) -> None:
    """Adds what two document words count for in every kernel, the second one `times` times."""
    for run in range(pooling.runs):
        above, half, below = (
            pooling.steps[3 * run],
            pooling.steps[3 * run + 1],
            pooling.steps[3 * run + 2],
        )
        middle, limit = spread_at(pooling.curves, 4 * run), spread_at(pooling.curves, 4 * run + 3)
        x, y = _distance(first, middle, limit), _distance(second, middle, limit)
        curve = spread_at(pooling.curves, 4 * run + 1)
        x_low = x_high = exp2(curve * x * x)
        y_low = y_high = exp2(curve * y * y) * times
        place = _add(sums, place, x_low + y_low)
        if above + below > 0:
            slope = spread_at(pooling.curves, 4 * run + 2)
            x_root, x_down = exp2_both(slope * x)
            y_root, y_down = exp2_both(slope * y)
            x_up, y_up = x_root * x_root, y_root * y_root
            x_down, y_down = x_down * x_down, y_down * y_down
            for _ in range(above):
                x_high, y_high = x_high * x_up, y_high * y_up
                place = _add(sums, place, x_high + y_high)
            if half:
                place = _add(sums, place, multiply_add(x_high, x_root, y_high * y_root))
            for _ in range(below):
                x_low, y_low = x_low * x_down, y_low * y_down
                place = _add(sums, place, x_low + y_low)


@njit
def _reach(pooling: Any, place: int, similarity: Any, value: Any, times: Any) -> Any:
    """A kernel's value, which stays as high as it can be once its center is reached."""
    top = spread_at(pooling.tops, place) * times
    return from_on(similarity, spread_at(pooling.borders, place), top, value)


@njit(inline="always")
def count_pair_at_least(
    first: Any, second: Any, times: Any, pooling: Any, sums: Any, place: int
) -> None:
    """The same for kernels that count what is at least as similar as their center."""
    once = spread(_ONE)
    kernel = 0
    for run in range(pooling.runs):
        above, half, below = (
            pooling.steps[3 * run],
            pooling.steps[3 * run + 1],
            pooling.steps[3 * run + 2],
        )
        middle, limit = spread_at(pooling.curves, 4 * run), spread_at(pooling.curves, 4 * run + 3)
        x, y = _distance(first, middle, limit), _distance(second, middle, limit)
        curve = spread_at(pooling.curves, 4 * run + 1)
        x_low = x_high = exp2(curve * x * x)
        y_low = y_high = exp2(curve * y * y) * times
        x_up = x_root = x_down = y_up = y_root = y_down = once
        if above + below > 0:
            slope = spread_at(pooling.curves, 4 * run + 2)
            x_root, x_down = exp2_both(slope * x)
            y_root, y_down = exp2_both(slope * y)
            x_up, y_up = x_root * x_root, y_root * y_root
            x_down, y_down = x_down * x_down, y_down * y_down
        for number in range(1 + above + half + below):
            if number > above + half:
                x_low, y_low = x_low * x_down, y_low * y_down
                x_value, y_value = x_low, y_low
            elif number > above:
                x_value, y_value = x_high * x_root, y_high * y_root
            else:
                if number > 0:
                    x_high, y_high = x_high * x_up, y_high * y_up
                x_value, y_value = x_high, y_high
            x_value = _reach(pooling, kernel, first, x_value, once)
            place = _add(sums, place, x_value + _reach(pooling, kernel, second, y_value, times))
            kernel += 1


@njit
def clear(sums: Any, groups: int, pooling: Any) -> None:
    for place in range(groups * pooling.kernels):
        store(sums, place * LANES, spread(_ZERO))


@njit
def read_out(sums: Any, query: Any, pooling: Any, words: int, spare: Any) -> Any:
    """The score of a document of so many words from its sums, which become its soft counts."""
    score = spread(_ZERO)
    shorter = spread(_ONE / np.float32(words + 1))
    for group in range(query.groups):
        share = spread(_ZERO)
        for kernel in range(pooling.kernels):
            at = (group * pooling.kernels + kernel) * LANES
            count = load(sums, at) * spread_at(pooling.constants, kernel)
            store(sums, at, count)
            logarithm = log(larger(count, spread(_FLOOR)))
            share = multiply_add(logarithm, spread_at(pooling.log, kernel), share)
            share = multiply_add(count * shorter, spread_at(pooling.length, kernel), share)
        score = multiply_add(share, load(query.weights, group * LANES), score)
    store(spare, 0, score)
    total = _ZERO
    for lane in range(LANES):
        total += load_one(spare, lane)
    return total
