"""Filters by what documents have besides their texts.

    year>=2019      lang=en      lang in en,de            on the command line
    {"year": {">=": 2019}, "lang": ["en", "de"]}          in Python and JSON

All conditions must hold. A document without the field is left out; of one that has a list there,
one value is enough. Filters choose documents before the best k are taken, and change no score.

Fields are columns, made when a filter first asks, from what is stored with every document; a search
without a filter never comes here.
"""

import difflib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, describe_type
from glassrank.index.segment import Segment

FilterSpec = str | Sequence[str] | Mapping[str, Any]
"""Conditions as people and programs write them."""

MAX_CONDITIONS = 32
MAX_VALUES = 1_000
_LONGEST = 10_000
_SHOWN, _SHOWN_OF = 10, 80

_COMPARE = ("=", "<", "<=", ">", ">=")
_FORMS = "'lang=en', 'year>=2019' or 'lang in en,de'"
_WRITTEN = re.compile(r"\s*([^<>=\s](?:[^<>=]*[^<>=\s])?)\s*(==|<=|>=|=|<|>)(.*)", re.DOTALL)
_ONE_OF = re.compile(r"\s*([^<>=\s](?:[^<>=]*?[^<>=\s])?)\s+in\s+(.*)", re.DOTALL)


class FieldType(StrEnum):
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


Field = dict[FieldType, Column]
Columns = dict[str, Field]

_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def columns(segment: Segment) -> Columns:
    """Of all documents, deleted ones too."""
    rows: dict[str, dict[FieldType, tuple[list[int], list[Any]]]] = {}
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


def _values(value: object) -> Iterator[tuple[FieldType, bool | float | str]]:
    """One, or those of a list."""
    for single in value if isinstance(value, list) else [value]:
        if isinstance(single, bool):
            yield FieldType.FLAG, single
        elif isinstance(single, str):
            yield FieldType.TEXT, single
            if (number := as_number(single)) is not None:
                yield FieldType.TEXT_NUMBER, number
        elif isinstance(single, int | float):
            yield FieldType.NUMBER, single


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


class Value(NamedTuple):
    """What is compared with. One that was `written` as a text may mean a number, or true."""

    type: str
    value: bool | float | str
    written: bool = False


class Condition(NamedTuple):
    """One of the values, at least, compares well."""

    field: str
    compare: str
    values: tuple[Value, ...]


Filter = tuple[Condition, ...]


def parse_filter(given: FilterSpec) -> Filter:
    """
    >>> parse_filter("year >= 2019") == parse_filter(["year>=2019"])
    True
    >>> parse_filter({"year": {">=": 2019}, "lang": ["en", "de"]})[0].values[0].value
    2019
    """
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        conditions = tuple(
            condition for field, asked in given.items() for condition in _asked(field, asked)
        )
    elif isinstance(given, Sequence) and all(isinstance(text, str) for text in given):
        conditions = tuple(map(_written, given))
    else:
        raise InputError(
            'a filter is {"field": value}, or texts such as '
            + f"{_FORMS}, not {describe_type(given)}"
        )
    if len(conditions) > MAX_CONDITIONS or any(
        len(each.values) > MAX_VALUES for each in conditions
    ):
        raise InputError(
            f"a filter has at most {MAX_CONDITIONS} conditions, of {MAX_VALUES:,} values each"
        )
    return conditions


def _written(text: str) -> Condition:
    """From the command line, where all is text."""
    if len(text) > _LONGEST:
        raise InputError(f"a condition has at most {_LONGEST:,} characters, not {len(text):,}")
    if parts := _ONE_OF.fullmatch(text):
        field, listed = parts.groups()
        values = [value.strip() for value in listed.split(",")]
        return Condition(field, "=", tuple(Value("text", value, True) for value in values))
    if parts := _WRITTEN.fullmatch(text):
        field, compare, value = parts.groups()
        compare = "=" if compare == "==" else compare
        return Condition(field, compare, (Value("text", value.strip(), True),))
    raise InputError(f"{text[:80]!r} is no condition; write one as {_FORMS}")


def _asked(field: object, asked: object) -> list[Condition]:
    """From Python or JSON, where a value has its kind."""
    if not isinstance(field, str):
        raise InputError(f"a filter names fields by texts, not by {describe_type(field)}")
    if not isinstance(asked, Mapping):
        return [_compared(field, "in" if isinstance(asked, list | tuple | set) else "=", asked)]
    if not asked:
        raise InputError(f'the filter of {field!r} is empty; expected such as {{">=": 2019}}')
    return [_compared(field, compare, value) for compare, value in asked.items()]


def _compared(field: str, compare: object, value: object) -> Condition:
    if compare == "in" and isinstance(value, list | tuple | set | frozenset):
        return Condition(field, "=", tuple(_value(field, single) for single in value))
    if compare == "in" or not isinstance(compare, str) or compare not in _COMPARE:
        known = ", ".join([*_COMPARE, "in, with a list"])
        raise InputError(
            f"the filter of {field!r} cannot compare by {compare!r}; known are {known}"
        )
    return Condition(field, compare, (_value(field, value),))


def _value(field: str, value: object) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | str | int) or (isinstance(value, float) and isfinite(value)):
        return Value(type(value).__name__, value)  # True and 1 are equal, and not the same
    raise InputError(
        f"the filter of {field!r} takes numbers, texts, true and false, not {describe_type(value)}"
    )


Reading = tuple[FieldType, Any]
"""As what a value is looked for."""


def masks(where: Filter, parts: Sequence[tuple[Columns, int]]) -> list[NDArray[np.bool_]]:
    """Which documents are chosen of each part: its columns, and how many documents it has."""
    chosen = [np.ones(count, np.bool_) for _, count in parts]
    for condition in where:
        readings = _meant(condition, [columns for columns, _ in parts])
        for mask, (columns, count) in zip(chosen, parts, strict=True):
            field = columns.get(condition.field, {})
            mask &= _holds(field, condition.compare, readings, count)
    return chosen


def _meant(condition: Condition, parts: Sequence[Columns]) -> list[Reading]:
    """What is looked for, by what the field holds anywhere. A field that no document has, or never
    in this kind, is a mistake, and no empty result."""
    fields = sorted({field for columns in parts for field in columns})
    if condition.field not in fields:
        near = difflib.get_close_matches(condition.field[:_SHOWN_OF], fields, n=1)
        there = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(fields[:_SHOWN])}"
        if not fields:
            there = "documents have none here but title, text and source"
        raise InputError(f"no document has a field {condition.field[:_SHOWN_OF]!r}; {there}")
    held = {kind for columns in parts for kind in columns.get(condition.field, {})}
    meant: list[Reading] = []
    for value in condition.values:
        readings = [each for each in _readings(condition.compare, value) if each[0] in held]
        if not readings:
            known = " and ".join(
                kind for kind in FieldType if kind in held - {FieldType.TEXT_NUMBER}
            )
            raise InputError(
                f"{condition.field!r} holds {known or 'nothing that can be compared'}; it cannot "
                f"be compared by {condition.compare} with {repr(value.value)[:_SHOWN_OF]}"
            )
        if any(kind is FieldType.TEXT_NUMBER for kind, _ in readings):
            readings = [each for each in readings if each[0] is not FieldType.TEXT]
        meant += readings
    return meant


def _holds(
    field: Field, compare: str, readings: Sequence[Reading], count: int
) -> NDArray[np.bool_]:
    """Which documents of a part have one of the values."""
    wanted = {kind: np.zeros(len(column.values), np.bool_) for kind, column in field.items()}
    for kind, value in readings:
        if kind in field:
            wanted[kind][_fitting(field[kind].values, compare, value)] = True
    mask = np.zeros(count, np.bool_)
    for kind, places in wanted.items():
        if places.any():
            mask |= field[kind].holding(places, count)
    return mask


def _readings(compare: str, value: Value) -> list[Reading]:
    """As what a value may be looked for. What was written may be a number or a flag as well as a
    text; in a range, texts that are numbers are numbers before they are texts."""
    given = value.value
    if not value.written:
        if isinstance(given, bool):
            return [(FieldType.FLAG, given)] if compare == "=" else []
        if isinstance(given, str):
            return [(FieldType.TEXT, given)]
        return [(FieldType.NUMBER, given), (FieldType.TEXT_NUMBER, given)]
    text = str(given)
    number = as_number(text)
    readings: list[Reading] = [] if number is None else [(FieldType.NUMBER, number)]
    if compare != "=" and number is not None:
        readings.append((FieldType.TEXT_NUMBER, number))
    readings.append((FieldType.TEXT, text))
    if compare == "=" and text.lower() in ("true", "false"):
        readings.append((FieldType.FLAG, text.lower() == "true"))
    return readings


def _fitting(values: list[Any], compare: str, wanted: Any) -> slice:
    """The places of values, which are in order, that compare so."""
    before, after = bisect_left(values, wanted), bisect_right(values, wanted)
    return {
        "=": slice(before, after),
        "<": slice(0, before),
        "<=": slice(0, after),
        ">": slice(after, None),
        ">=": slice(before, None),
    }[compare]
