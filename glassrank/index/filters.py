"""Filters by the metadata of documents.

    year>=2019      lang=en      lang in en,de            on the command line
    {"year": {">=": 2019}, "lang": ["en", "de"]}          in Python and JSON

All conditions must hold. A document without the field does not match; of a list, one value must
match. Filters apply before the top k are taken, and change no score.

Fields are kept as columns, which the first filter builds from the stored documents.
"""

import difflib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from glassrank.errors import InputError, describe_type
from glassrank.index.segment import Segment
from glassrank.storage.mapped_arrays import Bools, Ints

FilterSpec = str | Sequence[str] | Mapping[str, Any]  # a filter as users write it

MAX_CONDITIONS = 32
MAX_VALUES = 1_000
_MAX_CHARS = 10_000
_MAX_NAMES, _MAX_NAME_CHARS = 10, 80  # in messages

_COMPARE = ("=", "<", "<=", ">", ">=")
_FORMS = "'lang=en', 'year>=2019' or 'lang in en,de'"
_WRITTEN = re.compile(r"\s*([^<>=\s](?:[^<>=]*[^<>=\s])?)\s*(==|<=|>=|=|<|>)(.*)", re.DOTALL)
_ONE_OF = re.compile(r"\s*([^<>=\s](?:[^<>=]*?[^<>=\s])?)\s+in\s+(.*)", re.DOTALL)


class FieldType(StrEnum):
    """The types of values that can be compared. Others, such as objects, match nothing."""

    FLAG = "true and false"
    NUMBER = "numbers"
    TEXT = "texts"
    TEXT_NUMBER = "texts that are numbers"
    """As in CSV files, where everything is text. These values are also `TEXT`."""


class Column(NamedTuple):
    """The values of one type in a field. A document may have several, or none."""

    docs: Ints  # (n,)
    codes: Ints  # (n,) indices into `values`
    values: list[Any]  # (m,) sorted, without duplicates


Field = dict[FieldType, Column]
Columns = dict[str, Field]

_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def build_columns(segment: Segment) -> Columns:
    """The columns of all documents, deleted ones included."""
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
    """The typed values of a field, which may be a list."""
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
    unique = sorted(set(values))
    code_of = {value: code for code, value in enumerate(unique)}
    codes = np.array([code_of[value] for value in values], np.int64)
    return Column(np.array(docs, np.int64), codes, unique)


def as_number(text: str) -> float | None:
    """
    >>> as_number("2019"), as_number("-1.5e3"), as_number("2019-05-01"), as_number("nan")
    (2019.0, -1500.0, None, None)
    """
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


class Value(NamedTuple):
    """The value of a condition. An `untyped` one is text that may mean a number, or true."""

    type: str
    value: bool | float | str
    untyped: bool = False


class Condition(NamedTuple):
    """At least one of the values compares as asked."""

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
            condition for field, value in given.items() for condition in _parse_field(field, value)
        )
    elif isinstance(given, Sequence) and all(isinstance(text, str) for text in given):
        conditions = tuple(map(_parse_text, given))
    else:
        raise _bad_filter(
            'a filter is {"field": value}, or texts such as '
            + f"{_FORMS}, not {describe_type(given)}"
        )
    if len(conditions) > MAX_CONDITIONS or any(
        len(each.values) > MAX_VALUES for each in conditions
    ):
        raise _bad_filter(
            f"a filter has at most {MAX_CONDITIONS} conditions of {MAX_VALUES:,} values each"
        )
    return conditions


def _bad_filter(message: str) -> InputError:
    return InputError(message, code="bad_filter")


def _parse_text(text: str) -> Condition:
    """A condition of the command line, where values are untyped."""
    if len(text) > _MAX_CHARS:
        raise _bad_filter(f"a condition has at most {_MAX_CHARS:,} characters, not {len(text):,}")
    if parts := _ONE_OF.fullmatch(text):
        compare, values = "=", parts[2].split(",")
    elif parts := _WRITTEN.fullmatch(text):
        compare, values = parts[2].replace("==", "="), [parts[3]]
    else:
        raise _bad_filter(f"{text[:80]!r} is not a condition; write one as {_FORMS}")
    return Condition(
        parts[1], compare, tuple(Value("text", value.strip(), True) for value in values)
    )


def _parse_field(field: object, value: object) -> list[Condition]:
    """The conditions of a field in Python or JSON, where values have types."""
    if not isinstance(field, str):
        raise _bad_filter(f"the name of a field is a text, not {describe_type(field)}")
    if not isinstance(value, Mapping):
        value = {"in" if isinstance(value, list | tuple | set) else "=": value}
    if not value:
        raise _bad_filter(f'the filter of {field!r} is empty; expected such as {{">=": 2019}}')
    return [_parse_comparison(field, compare, single) for compare, single in value.items()]


def _parse_comparison(field: str, compare: object, value: object) -> Condition:
    if compare == "in" and isinstance(value, list | tuple | set | frozenset):
        return Condition(field, "=", tuple(_parse_value(field, single) for single in value))
    if compare == "in" or not isinstance(compare, str) or compare not in _COMPARE:
        known = ", ".join([*_COMPARE, "in, with a list"])
        raise _bad_filter(
            f"the filter of {field!r} cannot compare by {compare!r}; known are {known}"
        )
    return Condition(field, compare, (_parse_value(field, value),))


def _parse_value(field: str, value: object) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | str | int) or (isinstance(value, float) and isfinite(value)):
        return Value(type(value).__name__, value)  # True and 1 are equal, and not the same
    raise _bad_filter(
        f"the filter of {field!r} takes numbers, texts, true and false, not {describe_type(value)}"
    )


TypedValue = tuple[FieldType, Any]


def compute_masks(where: Filter, parts: Sequence[tuple[Columns, int]]) -> list[Bools]:
    """The matching documents of each part, given as its columns and its number of documents."""
    masks = [np.ones(count, np.bool_) for _, count in parts]
    for condition in where:
        wanted = _resolve(condition, [columns for columns, _ in parts])
        for mask, (columns, _) in zip(masks, parts, strict=True):
            mask &= _match(columns.get(condition.field, {}), condition.compare, wanted, len(mask))
    return masks


def _resolve(condition: Condition, parts: Sequence[Columns]) -> list[TypedValue]:
    """The values to compare with, in the types that the field has. An unknown field, or a type that
    it does not have, is an error instead of an empty result."""
    fields = sorted({field for columns in parts for field in columns})
    if condition.field not in fields:
        near = difflib.get_close_matches(condition.field[:_MAX_NAME_CHARS], fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields[:_MAX_NAMES])}"
        if not fields:
            hint = "documents have only title, text and source"
        raise _bad_filter(f"no document has a field {condition.field[:_MAX_NAME_CHARS]!r}; {hint}")
    types = {kind for columns in parts for kind in columns.get(condition.field, {})}
    resolved: list[TypedValue] = []
    for value in condition.values:
        typed = [each for each in _possible_types(condition.compare, value) if each[0] in types]
        if not typed:
            types.discard(FieldType.TEXT_NUMBER)
            known = " and ".join(kind for kind in FieldType if kind in types)
            raise _bad_filter(
                f"{condition.field!r} has {known or 'no values that can be compared'}; it cannot "
                f"be compared by {condition.compare} with {repr(value.value)[:_MAX_NAME_CHARS]}"
            )
        if any(kind is FieldType.TEXT_NUMBER for kind, _ in typed):
            typed = [each for each in typed if each[0] is not FieldType.TEXT]
        resolved += typed
    return resolved


def _match(field: Field, compare: str, wanted: Sequence[TypedValue], count: int) -> Bools:
    """The documents of a part with one of the values."""
    mask = np.zeros(count, np.bool_)
    for kind, column in field.items():
        matches = np.zeros(len(column.values), np.bool_)
        for wanted_kind, value in wanted:
            if wanted_kind is kind:
                matches[_find_range(column.values, compare, value)] = True
        mask[column.docs[matches[column.codes]]] = True
    return mask


def _possible_types(compare: str, value: Value) -> list[TypedValue]:
    """The types that a value may have. An untyped one may be a number, a flag or a text; in a
    range, a text that is a number counts as a number first."""
    given = value.value
    if not value.untyped:
        if isinstance(given, bool):
            return [(FieldType.FLAG, given)] if compare == "=" else []
        if isinstance(given, str):
            return [(FieldType.TEXT, given)]
        return [(FieldType.NUMBER, given), (FieldType.TEXT_NUMBER, given)]
    text = str(given)
    number = as_number(text)
    typed: list[TypedValue] = [] if number is None else [(FieldType.NUMBER, number)]
    if compare != "=" and number is not None:
        typed.append((FieldType.TEXT_NUMBER, number))
    typed.append((FieldType.TEXT, text))
    if compare == "=" and text.lower() in ("true", "false"):
        typed.append((FieldType.FLAG, text.lower() == "true"))
    return typed


def _find_range(values: list[Any], compare: str, wanted: Any) -> slice:
    """The range of sorted values that compare as asked."""
    before, after = bisect_left(values, wanted), bisect_right(values, wanted)
    return {
        "=": slice(before, after),
        "<": slice(0, before),
        "<=": slice(0, after),
        ">": slice(after, None),
        ">=": slice(before, None),
    }[compare]
