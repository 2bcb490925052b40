"""Dataclasses from plain data (JSON, TOML) and back; errors name the nearest known key."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from glassrank.errors import InputError

T = TypeVar("T")
_MAX_INTEGER = 1 << 53
"""Larger integers are not exact as floats, and no setting counts this far."""
MAX_VALUE = 1 << 16
_MAX_LENGTH = 1000


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
            raise InputError(
                f"{where or kind.__name__}: there is no {shorten_repr(name)}; {_hint(name, known)}"
            )
        values[name] = _convert(hints[name], value, f"{where}.{name}" if where else name)
    for name, field in known.items():
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING,) * 2
        if name not in values and not has_default:
            raise InputError(f"{where or kind.__name__}: {name!r} is missing")
    return kind(**values)


def _hint(name: object, known: Iterable[Any]) -> str:
    names = list(map(str, known))
    near = difflib.get_close_matches(str(name)[:100], names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"


def to_plain(value: Any) -> Any:
    """The inverse of `from_plain`."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    return value


def check_bounds(value: T, where: str = "") -> T:
    """Returns the dataclass if all its values are within bounds: settings from an untrusted file
    decide how much memory is allocated. The metadata `largest` of a field sets its own bound.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     left: int
    >>> check_bounds(Point(10**6))
    Traceback (most recent call last):
    glassrank.errors.InputError: left: expected a number from 0 to 65536, found 1000000
    """
    _check_bounds(value, where, MAX_VALUE)
    return value


def _check_bounds(value: Any, where: str, largest: int) -> None:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            name = f"{where}.{field.name}" if where else field.name
            largest_of_field = field.metadata.get("largest", largest)
            _check_bounds(getattr(value, field.name), name, largest_of_field)
    elif isinstance(value, tuple | str) and len(value) > _MAX_LENGTH:
        unit = "characters" if isinstance(value, str) else "values"
        raise InputError(f"{where}: expected at most {_MAX_LENGTH} {unit}, found {len(value)}")
    elif isinstance(value, tuple):
        for item in value:
            _check_bounds(item, where, largest)
    elif isinstance(value, int) and not 0 <= value <= largest:
        expected = f"expected a number from 0 to {largest}"
        raise InputError(f"{where}: {expected}, found {shorten_repr(value)}")
    elif isinstance(value, float):
        _check_finite(value, where)


def _check_finite(value: float, where: str) -> None:
    if not math.isfinite(value):
        raise InputError(f"{where}: expected a finite number, found {value}")


def shorten_repr(value: object) -> str:
    """The repr of a value, cut to 100 characters: the content of a file may be long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)

    def check_type(allowed: Any, name: str) -> None:
        if not isinstance(value, allowed):
            raise InputError(f"{where}: expected {name}, found {shorten_repr(value)}")

    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _convert(next(k for k in inner if k is not type(None)), value, where)
    if dataclasses.is_dataclass(kind):
        check_type(Mapping, "a table")
        return from_plain(kind, value, where)  # type: ignore[arg-type]
    if origin in (tuple, list):
        check_type(list | tuple if origin is tuple else list, "a list")
        return origin(_convert(inner[0], item, where) for item in value)
    if origin is typing.Literal:
        if not any(type(value) is type(known) and value == known for known in inner):
            hint = _hint(value, inner)
            raise InputError(f"{where}: {shorten_repr(value)} is not known; {hint}")
        return value
    if kind is Any:
        return value
    if origin is dict:
        check_type(Mapping, "a table")
        return value
    if isinstance(value, bool) and kind is not bool:  # which Python takes for an integer
        check_type((), kind.__name__)
    check_type((int, float) if kind is float else kind, kind.__name__)
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise InputError(f"{where}: expected a number below {_MAX_INTEGER:.0e}, found a larger one")
    if isinstance(value, float):
        _check_finite(value, where)
    return float(value) if kind is float else value
