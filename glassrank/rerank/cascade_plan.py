"""A cascade plan: how deep each model goes within a budget. Kept as JSON.

`glassrank budget --plan` fits one on judged queries and writes it.
"""

import json
from dataclasses import dataclass
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
