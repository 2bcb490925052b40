"""Converts lists of texts, ids and scores, and warns of what a user may not expect."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, describe_type
from glassrank.rerank.reranker import Reranker
from glassrank.text.detection import looks_foreign
from glassrank.types import Doc, Ranking

_FEW_SHARE = 0.1
"""Of a list: fewer re-ranked texts than this share raise a warning."""
_LOOKED_AT = 3
"""Texts of a list whose language is looked at."""
_warned = False


class BudgetWarning(RuntimeWarning):
    """A budget in which nothing, or little, could be re-ranked."""


def as_docs(texts: Iterable[Any]) -> list[Doc]:
    """From a list, or a column of a table, of texts, dicts with a text, or `Doc`s."""
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
    """One id for each text: its place in the list, unless ids are given."""
    if ids is None:
        return list(range(count))
    if isinstance(ids, str | bytes | Set):
        raise InputError(f"expected a list of ids, not {describe_type(ids)}")
    given = _as_list(ids, "ids")
    if len(given) != count:
        raise InputError(f"there are {len(given)} ids for {count} texts; each text needs one")
    return given


def check_not_empty(query: str) -> None:
    """A list of texts cannot be ranked by an empty query."""
    if not query.strip():
        raise InputError("the query is empty; give what the texts are to be ranked for")


def as_scores(scores: Iterable[Any] | None, count: int) -> NDArray[np.float32] | None:
    """One score for each text; None without scores, or where all are equal and give no order."""
    if scores is None:
        return None
    try:
        given = np.array([float(score) for score in scores], np.float32)
    except (TypeError, ValueError):
        raise InputError(f"expected a list of scores, not {describe_type(scores)}") from None
    if len(given) != count:
        raise InputError(f"there are {len(given)} scores for {count} texts; each text needs one")
    if not np.isfinite(given).all():
        raise InputError("a score is not a finite number; give one for each text, or no scores")
    return given if len(np.unique(given)) > 1 else None


def warn_of_nothing_reached(budget_ms: float) -> None:
    """Warns once for each calling line."""
    _warn_user(
        f"nothing could be re-ranked in {budget_ms:g} ms, so the order is the first stage's; "
        "give a larger budget",
        BudgetWarning,
    )


def warn_if_few_reached(ranking: Ranking, budget_ms: float | None) -> None:
    """Warns when nothing, or less than a tenth of a list, was re-ranked."""
    if budget_ms is None:
        return
    if ranking.cut_short and not ranking.depth:
        warn_of_nothing_reached(budget_ms)
    if 0 < ranking.depth < _FEW_SHARE * ranking.found:
        _warn_user(
            f"less than a tenth of the texts could be re-ranked in {budget_ms:g} ms, the others "
            "keep the first stage's order; give a larger budget or fewer texts, or index and "
            "encode them beforehand",
            BudgetWarning,
        )


def _warn_user(message: str, kind: type[Warning]) -> None:
    """At the line that called this package, whose own lines tell a user nothing."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals["__name__"].startswith("glassrank."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def _as_list(given: Iterable[Any], what: str) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise InputError(f"expected a list of {what}, not {describe_type(given)}") from None


class LanguageWarning(UserWarning):
    """An English model on texts that are not English."""


def warn_if_texts_are_foreign(model: Reranker, docs: Sequence[Doc]) -> None:
    """For a list of texts."""
    if model.is_english and not _warned:
        texts = [f"{doc.title} {doc.text}" for doc in docs[:_LOOKED_AT]]
        if looks_foreign(texts):
            _warn("the texts do not look English")


def warn_if_index_is_foreign(models: Sequence[Reranker], languages: Sequence[str]) -> None:
    """For an index that holds documents in these languages."""
    foreign = [language for language in languages if language != "en"]
    if foreign and any(model.is_english for model in models):
        _warn(f"the index has documents in other languages ({', '.join(foreign)})")


def _warn(reason: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        _warn_user(
            f"the package's models are English, and {reason}; give a multilingual model, or use "
            "the first stage alone",
            LanguageWarning,
        )
