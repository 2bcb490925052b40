"""Dataclasses from plain data (JSON, TOML) and back; errors name the nearest right key."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from glassrank.errors import InputError

T = TypeVar("T")
_LARGEST = 1 << 53
"""Beyond, whole numbers are not exact as floats, and nothing here counts so far."""

LARGEST = 1 << 16
_LONGEST = 1000


def from_plain(kind: type[T], plain: Mapping[str, Any], where: str = "") -> T:
    """
    >>> @dataclasses.dataclass
    ... class Point:
    ...     left: int = 0
    >>> from_plain(Point, {"left": 3})
    Point(left=3)
    >>> from_plain(Point, {"lift": 3}, "point")
    Traceback (most recent call last):
    glassrank.errors.InputError: point: there is no 'lift'; did you mean 'left'?
    """
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in plain.items():
        if name not in known:
            near = difflib.get_close_matches(str(name)[:100], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"{where or kind.__name__}: there is no {shorten_repr(name)}; {hint}")
        values[name] = _convert(hints[name], value, f"{where}.{name}" if where else name)
    for name, field in known.items():
        if (
            name not in values
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ):
            raise InputError(f"{where or kind.__name__}: {name!r} is missing")
    return kind(**values)


def to_plain(value: Any) -> Any:
    """What `from_plain` takes."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    return value


def check_bounds(value: T, where: str = "") -> T:
    """The value itself, if nothing in it is out of proportion: settings from a stranger decide how
    much is allocated. A field may say in its metadata how large a number it takes.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     left: int
    >>> check_bounds(Point(10**6))
    Traceback (most recent call last):
    glassrank.errors.InputError: left: expected a number from 0 to 65536, found 1000000
    """
    _check_bounds(value, where, LARGEST)
    return value


def _check_bounds(value: Any, where: str, largest: int) -> None:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            inside = f"{where}.{field.name}" if where else field.name
            most = field.metadata.get("largest", largest)
            _check_bounds(getattr(value, field.name), inside, most)
    elif isinstance(value, tuple):
        if len(value) > _LONGEST:
            raise InputError(f"{where}: expected at most {_LONGEST} values, found {len(value)}")
        for item in value:
            _check_bounds(item, where, largest)
    elif isinstance(value, str) and len(value) > _LONGEST:
        raise InputError(f"{where}: expected at most {_LONGEST} characters, found {len(value)}")
    elif isinstance(value, int) and not 0 <= value <= largest:
        raise InputError(
            f"{where}: expected a number from 0 to {largest}, found {shorten_repr(value)}"
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: expected a finite number, found {value}")


def shorten_repr(value: object) -> str:
    """As it is written, if that is short: what a file holds may be long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _convert(next(k for k in inner if k is not type(None)), value, where)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected a table, found {shorten_repr(value)}")
        return from_plain(kind, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where}: expected a list, found {shorten_repr(value)}")
        return tuple(_convert(inner[0], item, where) for item in value)
    if origin is list:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, found {shorten_repr(value)}")
        return [_convert(inner[0], item, where) for item in value]
    if origin is typing.Literal:
        if not any(type(value) is type(known) and value == known for known in inner):
            near = difflib.get_close_matches(str(value)[:100], map(str, inner), n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"known are {', '.join(map(str, inner))}"
            )
            raise InputError(f"{where}: {shorten_repr(value)} is not known; {hint}")
        return value
    if kind is Any:
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected a table, found {shorten_repr(value)}")
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (isinstance(value, kind) or (kind is float and whole)) or (
        kind is not bool and isinstance(value, bool)
    ):
        raise InputError(f"{where}: expected {kind.__name__}, found {shorten_repr(value)}")
    if whole and abs(value) > _LARGEST:
        raise InputError(f"{where}: expected a number below {_LARGEST:.0e}, found a larger one")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: expected a finite number, found {value}")
    return float(value) if kind is float else value
