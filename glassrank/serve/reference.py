"""`/docs`: what the service answers to, as one plain page that loads nothing from elsewhere."""

from collections.abc import Iterator
from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>
<h1>{title}</h1><p>{about}</p><p>The same for programs: <a href="/openapi.json">openapi.json</a></p>
{parts}</body></html>
"""


def reference_page(schema: dict[str, Any]) -> str:
    """Every address and its form, as one HTML page without scripts."""
    parts = [
        _operation(method, path, operation, schema)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    info = schema["info"]
    title = escape(f"{info['title']} {info['version']}")
    return _PAGE.format(title=title, about=escape(info["description"]), parts="".join(parts))


def _operation(method: str, path: str, operation: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(about)}</td></tr>"
        for name, kind, about in _fields(operation, schema)
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    about = escape(operation.get("description") or operation.get("summary", ""))
    return f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{about}</p>{table}\n"


def _fields(operation: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(name, type, what it is) of every parameter, and of every field of the body."""
    for parameter in operation.get("parameters", ()):
        about = parameter.get("description", "")
        yield parameter["name"], _kind(parameter["schema"]), about
    content = operation.get("requestBody", {}).get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref")
    if reference:
        for name, field in _named(reference, schema)["properties"].items():
            yield name, _kind(field), field.get("description", "")


def _named(reference: str, schema: dict[str, Any]) -> dict[str, Any]:
    form: dict[str, Any] = schema["components"]["schemas"][reference.rpartition("/")[2]]
    return form


def _kind(field: dict[str, Any]) -> str:
    """
    >>> _kind({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]})
    'list of string'
    """
    if "anyOf" in field:
        kinds = [_kind(choice) for choice in field["anyOf"] if choice.get("type") != "null"]
        return " or ".join(kinds)
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}"
    return str(field.get("type") or field.get("$ref", "").rpartition("/")[2])
