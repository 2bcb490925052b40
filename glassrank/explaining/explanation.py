"""What `explain` and `compare` give: an explanation, or two, as text and as plain data."""

from dataclasses import dataclass
from typing import Any

from glassrank.explaining.structure import ExplanationData, PairData, differences_of
from glassrank.explaining.terminal import as_text, draw
from glassrank.settings import from_plain, to_plain

SCHEMA, COMPARISON_SCHEMA = "glassrank.explanation/1", "glassrank.comparison/1"
"""Names and versions of the JSON forms; a number changes when a reader would have to."""


@dataclass(frozen=True)
class Explanation(ExplanationData):
    """Why a document has its score."""

    def to_json(self) -> dict[str, Any]:
        """Plain data in full precision, as `docs/explanations.md` describes it."""
        plain: dict[str, Any] = to_plain(self)
        return {"schema": SCHEMA, **plain}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Explanation":
        """What `to_json` was given."""
        return from_plain(cls, {name: v for name, v in plain.items() if name != "schema"})

    def __str__(self) -> str:
        return as_text(draw(self))


@dataclass(frozen=True)
class ExplanationPair(PairData):
    """Two explanations side by side."""

    left: Explanation
    right: Explanation

    def to_json(self) -> dict[str, Any]:
        """Plain data, both explanations whole."""
        return {
            "schema": COMPARISON_SCHEMA,
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "differences": to_plain(self.differences),
        }

    def __str__(self) -> str:
        return as_text(draw(self))


def compare(left: Explanation, right: Explanation) -> ExplanationPair:
    """What each path, kernel and query word adds to the left document more than to the right."""
    return ExplanationPair(left, right, differences_of(left, right))
