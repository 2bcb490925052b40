"""What people give to `rank` and to a pipeline: taken as it is meant, or one sentence."""

import math
import warnings
from collections.abc import Iterable, Mapping, Set
from numbers import Real
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, describe_type
from glassrank.types import Doc, Ranking

_FEW_SHARE = 0.1
"""The share of a list of which it is said that more was not re-ranked."""


class BudgetWarning(RuntimeWarning):
    """A budget in which nothing, or little, could be re-ranked."""


def as_docs(texts: Iterable[Any]) -> list[Doc]:
    """A list, or a column of a table, of texts, of dicts that have a text, or of `Doc`s."""
    if isinstance(texts, str | bytes):
        raise InputError("expected a list of texts, not one text; for a single one, give [text]")
    if isinstance(texts, Mapping | Set) or hasattr(texts, "columns"):
        raise InputError(
            f"expected a list of texts, not {describe_type(texts)}; give its texts as a list or "
            "a column, and what they are called as ids"
        )
    return [_doc(place, text) for place, text in enumerate(_as_list(texts, "texts"))]


def _doc(place: int, text: Any) -> Doc:
    if isinstance(text, str):
        return Doc(str(place), text)
    if isinstance(text, Doc):
        return text
    if not isinstance(text, Mapping):
        raise InputError(
            f"text {place} is {describe_type(text)}; expected a text or a dict with a 'text'"
        )
    if not isinstance(text.get("text"), str):
        names = ", ".join(map(repr, list(text)[:5])) or "nothing"
        raise InputError(f"text {place} is a dict without a text under 'text'; it has {names}")
    title, source = (_named(text, name) for name in ("title", "source"))
    rest = {key: value for key, value in text.items() if key not in ("text", "title", "source")}
    metadata = rest.pop("metadata", None)
    if isinstance(metadata, Mapping):
        rest |= metadata
    return Doc(str(place), text["text"], title, source, rest)


def _named(fields: Mapping[Any, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def as_ids(ids: Iterable[Any] | None, count: int) -> list[Any]:
    """One for each text: its place, unless ids are given."""
    if ids is None:
        return list(range(count))
    if isinstance(ids, str | bytes | Set):
        raise InputError(f"expected a list of ids, not {describe_type(ids)}")
    given = _as_list(ids, "ids")
    if len(given) != count:
        raise InputError(f"there are {len(given)} ids for {count} texts; each text needs one")
    return given


def check_query(query: Any) -> None:
    """A text, which may be empty."""
    if not isinstance(query, str):
        raise InputError(f"a query is a text, not {describe_type(query)}")


def check_not_empty(query: str) -> None:
    """Of texts, which can be ranked by nothing else; an index finds nothing for it."""
    if not query.strip():
        raise InputError("the query is empty; give what the texts are to be ranked for")


def as_scores(scores: Iterable[Any] | None, count: int) -> NDArray[np.float32] | None:
    """One for each text; None where there are none, or all are alike: they tell no order."""
    if scores is None:
        return None
    try:
        given = np.array([float(score) for score in scores], np.float32)
    except (TypeError, ValueError):
        raise InputError(f"expected a list of scores, not {describe_type(scores)}") from None
    if len(given) != count:
        raise InputError(f"there are {len(given)} scores for {count} texts; each text needs one")
    if not np.isfinite(given).all():
        raise InputError("a score is no number; give one for each text, or none at all")
    return given if len(np.unique(given)) > 1 else None


def check_k(k: Any) -> None:
    """A whole number from 1 on."""
    try:
        whole = 0 if isinstance(k, bool) else index(k)
    except TypeError:
        whole = 0
    if whole < 1:
        raise InputError(f"at least one result must be asked for, by a whole number, not {k!r}")


def check_budget(budget_ms: Any) -> None:
    """None, for as long as it takes, or a number above 0."""
    if budget_ms is None:
        return
    number = isinstance(budget_ms, Real) and not isinstance(budget_ms, bool)
    if not number or math.isnan(budget_ms) or budget_ms <= 0:
        raise InputError(f"a budget must be more than 0 milliseconds, not {budget_ms!r}")


def warn_if_nothing_reached(ranking: Ranking, budget_ms: float | None, *, caller: int) -> None:
    """Once for each place that calls, as Python does: it is `caller` calls up from here."""
    if ranking.cut_short and not ranking.depth and budget_ms is not None:
        warnings.warn(
            f"nothing could be re-ranked in {budget_ms:g} ms, so the order is the one before it; "
            "allow more time",
            BudgetWarning,
            stacklevel=caller + 1,
        )


def warn_if_few_reached(ranking: Ranking, budget_ms: float | None, *, caller: int) -> None:
    """The same for texts, which are encoded in the query's own time: also where it was less than a
    tenth of them. The sentence has no count, since Python shows each sentence once."""
    warn_if_nothing_reached(ranking, budget_ms, caller=caller + 1)
    if budget_ms is not None and 0 < ranking.depth < _FEW_SHARE * ranking.found:
        warnings.warn(
            f"less than a tenth of the texts could be re-ranked in {budget_ms:g} ms, the others "
            "have the order before it; allow more time, give fewer texts, or index and encode "
            "them beforehand",
            BudgetWarning,
            stacklevel=caller + 1,
        )


def _as_list(given: Iterable[Any], what: str) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise InputError(f"expected a list of {what}, not {describe_type(given)}") from None
