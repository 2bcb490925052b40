"""Folds of queries for cross-validation, as JSON."""

import json
from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.files import LONGEST_LINE, read_whole


def read_folds(path: str | Path) -> dict[str, int]:
    """The fold in which each query is tested: from lists of query ids, one for each fold, or as
    the folds of Robust04 are passed on, `{"s1": {"predict": {"test": [ids]}}}`."""
    path = Path(path)
    try:
        plain = json.loads(read_whole(path, LONGEST_LINE))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    folds = list(plain.values()) if isinstance(plain, dict) else plain
    fold_of: dict[str, int] = {}
    for number, fold in enumerate(folds if isinstance(folds, list) else []):
        for query_id in _tested(fold, path):
            if fold_of.setdefault(str(query_id), number) != number:
                raise InputError(f"{path}: query {query_id!r} is in two folds; keep one of them")
    if not fold_of:
        raise InputError(f"{path} has no folds; expected a list of lists of query ids")
    return fold_of


def _tested(fold: Any, path: Path) -> list[Any]:
    if isinstance(fold, dict):
        fold = fold.get("predict", fold)
        fold = fold.get("test") if isinstance(fold, dict) else None
    if not isinstance(fold, list):
        raise InputError(f"{path}: expected a list of query ids in each fold")
    if not all(isinstance(query_id, str | int) for query_id in fold):
        raise InputError(f"{path}: expected query ids in each fold, found something else")
    return fold
