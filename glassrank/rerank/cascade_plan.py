"""A cascade plan: how deep each model goes within a budget. Kept as JSON.

`glassrank budget --plan` fits one on judged queries and writes it. Where nobody has, `plan_depths`
plans for the time that is left: what models cost here is learned while they run; what a depth is
worth is a rule of thumb, fitted on dev queries. So it is known before any model begins whether the
first one is of use: where the second reads as many documents in the same time, as with stored ones,
it is not.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.settings import from_plain, to_plain
from glassrank.storage.files import read_file

FORMAT = 1
_MAX_BYTES, _MAX_ROWS, _MAX_DEPTH = 1 << 20, 1000, 1 << 30


@dataclass(frozen=True)
class Planned:
    """For one budget, of the whole query."""

    budget_ms: float
    depths: tuple[int, ...]
    """Of each model; 0 where it is not asked."""
    value: float
    """The measure on the queries that the plan was learned on."""
    first_alone: float
    """The same for the first model alone, in the same time."""


@dataclass(frozen=True)
class CascadePlan:
    """For each budget, how deep each model of a cascade goes."""

    models: tuple[str, ...]
    """Their fingerprints, in their order."""
    measure: str
    budgets: tuple[Planned, ...]
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise InputError(f"a plan of format {self.format} is not known here, only {FORMAT}")
        if not 0 < len(self.budgets) <= _MAX_ROWS:
            raise InputError(f"budgets: expected 1 to {_MAX_ROWS}, found {len(self.budgets)}")
        for row in self.budgets:
            if not (row.budget_ms > 0 and len(row.depths) == len(self.models)):
                raise InputError(
                    f"budgets: expected a budget above 0 with {len(self.models)} depths, "
                    f"found {row.budget_ms:g} with {len(row.depths)}"
                )
            if not all(0 <= depth <= _MAX_DEPTH for depth in row.depths):
                raise InputError(f"budgets: expected depths of 0 or more, found {row.depths}")

    @classmethod
    def read(cls, path: str | Path) -> "CascadePlan":
        """What `glassrank budget --plan` wrote."""
        try:
            plain = json.loads(read_file(path, _MAX_BYTES))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read as JSON: {error}") from None
        if not isinstance(plain, dict):
            raise InputError(f"{path}: expected a plan that glassrank budget --plan wrote")
        return from_plain(cls, plain, str(path))

    def to_json(self) -> dict[str, Any]:
        """As `read` takes it."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def depths(self, budget_ms: float) -> tuple[int, ...]:
        """Those of the next larger budget, or of the largest. Depths of a smaller one would stop a
        model that has time to go on; the clock stops one that has not."""
        rows = sorted(self.budgets, key=lambda row: row.budget_ms)
        return next((row for row in rows if row.budget_ms >= budget_ms), rows[-1]).depths


_DEPTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000)
"""That are tried for all models but the last, which takes what is left."""
_WEAKER = 0.75
"""What a model gains over the first stage, as a share of what the next one of a cascade gains."""
_HALF, _HALF_RANKED = 15.0, 7.0
"""Documents that hold half of what can be gained: of the first stage's best, and of a model's."""
_DEEP, _DEEPEST = 0.2, 1000
"""The share of it that comes from far below, evenly by the logarithm of the depth, down to here."""
_WORTH = 0.02
"""What a further model has to add where time is short: predictions are not better than this."""


def plan_depths(
    costs: Sequence[Callable[[int], float]], deepest: Sequence[int], left_ms: float
) -> tuple[int, ...]:
    """The most valuable depths that fit; 0 for a model that is not worth its time. None is deeper
    than `deepest` says, and none of the last one's time is taken by a model that adds nothing.
    `costs` are the milliseconds of each model for so many documents, the query included.

    >>> stored, on_the_fly = lambda docs: 0.5 + 0.02 * docs, lambda docs: 2 + 2 * docs
    >>> plan_depths([stored, stored], [1000, 1000], 30)
    (0, 1000)
    >>> plan_depths([stored, on_the_fly], [1000, 1000], 60)
    (700, 21)
    """
    # What a stage costs before the first document, and for each.
    lines = [(cost(0), cost(1) - cost(0)) for cost in costs]
    worth = _WORTH if math.isfinite(left_ms) else 0.0
    best, best_value = (0,) * len(costs), 0.0
    for depths in _choices(lines, deepest, left_ms, max(deepest, default=0)):
        value = _value(depths) - worth * sum(depth > 0 for depth in depths)
        if value > best_value or not any(best):
            best, best_value = depths, value
    return best


def _choices(
    lines: Sequence[tuple[float, float]], deepest: Sequence[int], left_ms: float, within: int
) -> Iterator[tuple[int, ...]]:
    """All that fit; the last model takes what is left."""
    start, each = lines[0]
    most = _deepest_within(left_ms, lines[0], min(deepest[0], within))
    if not any(sum(line) <= left_ms for line in lines[1:]):
        for depth in (0, most):
            yield depth, *(0 for _ in lines[1:])
        return
    # A model that goes no deeper than the last one alone could is of no use.
    alone = _deepest_within(left_ms, lines[-1], min(deepest[-1], within))
    depths = (*(depth for depth in _DEPTHS if depth < most), most)
    for depth in (0, *(depth for depth in depths if depth > alone)):
        left = left_ms - start - each * depth if depth else left_ms
        for rest in _choices(lines[1:], deepest[1:], left, depth or within):
            yield depth, *rest


def _deepest_within(left_ms: float, line: tuple[float, float], most: int) -> int:
    start, each = line
    if start + each * most <= left_ms:
        return most
    return max(0, int((left_ms - start) / each + 1e-9)) if each > 0 else 0


def _value(depths: Sequence[int]) -> float:
    """Between 0, the first stage's order, and 1, the last model on all."""
    asked = [(depth, _WEAKER**behind) for behind, depth in enumerate(reversed(depths)) if depth]
    first, gained = asked.pop() if asked else (1, 0.0)  # what it does not read, no model finds
    if first == 1:
        return 0.0
    for depth, gain in reversed(asked):
        share = max(1 - 0.5 ** ((depth - 1) / _HALF_RANKED), _reach(depth) / _reach(first))
        gained += (gain - gained) * (1.0 if depth == first else share)
    return _reach(first) * gained


@lru_cache(1 << 12)  # each query's plan asks for the same depths, within its budget
def _reach(depth: int) -> float:
    """The share of all that can be gained which is among so many of the first stage's best: of one
    alone, nothing is gained."""
    deep = min(1.0, math.log(depth) / math.log(_DEEPEST))
    near: float = 1 - 0.5 ** ((depth - 1) / _HALF)
    return (1 - _DEEP) * near + _DEEP * deep
