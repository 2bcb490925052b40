"""What documents have besides their texts, in columns: one for each field of a segment.

Made when a filter first asks, from the fields that are stored with every document; a search without
a filter never comes here.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.retrieve.segment import Segment


class Kind(StrEnum):
    """Of what can be compared. Anything else, such as an object, is there but fits nothing."""

    FLAG = "true and false"
    NUMBER = "numbers"
    TEXT = "texts"
    TEXT_NUMBER = "texts that are numbers"
    """Files such as CSV have all as text. These are texts, too."""


class Column(NamedTuple):
    """The values of one kind in one field. A document may have several, or none."""

    docs: NDArray[np.int64]  # (n,)
    places: NDArray[np.int64]  # (n,) of their values in `values`
    values: list[Any]  # (m,) all that differ, in order

    def holding(self, wanted: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
        """Which of so many documents have a value that is wanted, by its place."""
        mask = np.zeros(count, np.bool_)
        mask[self.docs[wanted[self.places]]] = True
        return mask


Field = dict[Kind, Column]
Columns = dict[str, Field]

_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def columns(segment: Segment) -> Columns:
    """Of all documents, deleted ones too."""
    rows: dict[str, dict[Kind, tuple[list[int], list[Any]]]] = {}
    for doc in np.flatnonzero(np.diff(segment.fields.offsets)).tolist():
        for name, value in segment.metadata(doc).items():
            field = rows.setdefault(name, {})
            for kind, single in _values(value):
                docs, values = field.setdefault(kind, ([], []))
                docs.append(doc)
                values.append(single)
    return {
        name: {kind: _column(*row) for kind, row in kinds.items()} for name, kinds in rows.items()
    }


def _values(value: object) -> Iterator[tuple[Kind, bool | float | str]]:
    """One, or those of a list."""
    for single in value if isinstance(value, list) else [value]:
        if isinstance(single, bool):
            yield Kind.FLAG, single
        elif isinstance(single, str):
            yield Kind.TEXT, single
            if (number := as_number(single)) is not None:
                yield Kind.TEXT_NUMBER, number
        elif isinstance(single, int | float):
            yield Kind.NUMBER, single


def _column(docs: list[int], values: list[Any]) -> Column:
    different = sorted(set(values))
    places = {value: place for place, value in enumerate(different)}
    return Column(
        np.array(docs, np.int64), np.array([places[value] for value in values], np.int64), different
    )


def as_number(text: str) -> float | None:
    """
    >>> as_number("2019"), as_number("-1.5e3"), as_number("2019-05-01"), as_number("nan")
    (2019.0, -1500.0, None, None)
    """
    return float(text) if _NUMBER.fullmatch(text.strip()) else None
