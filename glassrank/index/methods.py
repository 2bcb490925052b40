"""First-stage methods by name: `bm25`, `ql`, `bm25+rm3`, `ql(mu=500)+rm3(terms=20)`.

`bm25(rounded=1)` and `ql(rounded=1)` rank exactly as Lucene does.
"""

import difflib
import re
from dataclasses import fields
from functools import lru_cache
from typing import Any

from glassrank.errors import InputError
from glassrank.index.scoring import BM25, QL
from glassrank.index.search import RM3, Method

_BASES: dict[str, type[BM25] | type[QL]] = {"bm25": BM25, "ql": QL}
METHODS = ("bm25", "ql", "bm25+rm3", "ql+rm3")
_MAX_CHARS = 200
_PART = r"\s*([a-z0-9]+)\s*(?:\(([^()]*)\))?\s*"
_METHOD = re.compile(rf"{_PART}(?:\+{_PART})?")
_RANGES = {
    "k1": (0, 1000),
    "b": (0, 1),
    "mu": (1e-6, 1e9),
    "weight": (0, 1),
    "terms": (1, 1000),
    "docs": (1, 1000),
    "rounded": (0, 1),
}


@lru_cache(maxsize=64)
def parse_method(text: str) -> Method:
    """
    >>> parse_method("bm25(k1=1.2)+rm3(terms=20)")
    RM3(base=BM25(k1=1.2, b=0.4, rounded=False), terms=20, docs=10, weight=0.5)
    """
    if len(text) > _MAX_CHARS:
        raise InputError(
            f"a method has at most {_MAX_CHARS} characters, not {len(text):,}; "
            f"it begins with {text[:20]!r}"
        )
    parts = _METHOD.fullmatch(text.lower())
    if not parts or parts[1] not in _BASES or parts[3] not in (None, "rm3"):
        near = difflib.get_close_matches(text.lower(), METHODS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(METHODS)}"
        raise InputError(f"unknown method {text!r}; {hint}")
    kind = _BASES[parts[1]]
    base = kind(**_parse_options(text, kind, parts[2] or ""))
    return RM3(base, **_parse_options(text, RM3, parts[4] or "")) if parts[3] else base


def method_name(method: Method) -> str:
    """The name of a method with every parameter, as `--method` takes it.

    >>> method_name(RM3(QL()))
    'ql(mu=1000)+rm3(terms=10,docs=10,weight=0.5)'
    """
    kind = type(method).__name__.lower()
    values = ",".join(
        f"{field.name}={_format(getattr(method, field.name))}"
        for field in fields(method)
        if field.name != "base" and getattr(method, field.name) is not False
    )
    name = f"{kind}({values})"
    return f"{method_name(method.base)}+{name}" if isinstance(method, RM3) else name


def _format(value: float) -> str:
    """The shortest form without loss."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _parse_options(text: str, kind: type[Method], options: str) -> dict[str, Any]:
    types: dict[str, Any] = {f.name: f.type for f in fields(kind) if f.name != "base"}
    settings: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        name, _, value = (side.strip() for side in option.partition("="))
        if name not in types:
            raise InputError(
                f"method {text!r}: {kind.__name__} has no parameter {name!r}, "
                f"only {', '.join(types)}"
            )
        number = {bool: lambda text: bool(int(text))}.get(types[name], types[name])
        try:
            settings[name] = number(value)
        except ValueError:
            raise InputError(f"method {text!r}: {name} takes a number, not {value!r}") from None
        low, high = _RANGES[name]
        if not low <= settings[name] <= high:
            raise InputError(
                f"method {text!r}: {name} must be between {low:g} and {high:g}, not {value}"
            )
    return settings
