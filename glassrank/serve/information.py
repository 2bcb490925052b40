"""What clients ask first: models, methods, limits, reports; and `/docs`, one plain page of what the
service answers to, which loads nothing from elsewhere."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from glassrank import __version__
from glassrank.errors import InputError
from glassrank.ranking import Pipeline
from glassrank.serve.opened import METHODS
from glassrank.serve.options import Options
from glassrank.serve.refusals import RefusedError
from glassrank.serve.service import Service

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>
<h1>{title}</h1><p>{about}</p><p>The same for programs: <a href="/openapi.json">openapi.json</a></p>
{parts}</body></html>
"""


def information(service: Service) -> dict[str, Any]:
    """What a client can ask for here, and what the index holds now."""
    opened = service.opened
    return {
        "version": __version__,
        "index": {
            "documents": len(opened.index),
            "generation": opened.index.generation,
            "behind": bool(service.served.behind),
        },
        "models": [_model(name, pipeline) for name, pipeline in opened.pipelines.items()],
        "methods": METHODS,
        "budget_ms": service.options.budget_ms,
        "texts_budget_ms": service.options.texts_budget_ms,
        "limits": asdict(service.limits),
        "samples": service.options.samples,
        "subject": service.options.subject,
        "encoding": service.options.in_the_making and opened.unencoded(),
        "reports": [name for name, _ in _report_files(service.options)],
    }


def _model(name: str, pipeline: Pipeline) -> dict[str, Any]:
    """Of a cascade, its first model; `kind` and `stored` name all of them."""
    usage = pipeline.reranker.usage
    rankers = [stage.reranker.model for stage in pipeline.models]
    stored = [stage.store.dtype for stage in pipeline.models if stage.store is not None]
    return {
        "name": name,
        "kind": "+".join(ranker.name for ranker in rankers),
        "candidates": pipeline.candidates,
        "query_words": usage.query_length,
        "doc_words": usage.doc_length,
        "first_stage": pipeline.method,
        "mixes_first_stage": any(ranker.first_stage_weight is not None for ranker in rankers),
        "stored": "+".join(stored) or None,
    }


def reports(options: Options) -> dict[str, Callable[[], bytes]]:
    """JSON that other commands have written, for the page, by the names of its addresses. What is
    there is read once; what still follows, when somebody asks for it."""
    readers: dict[str, Callable[[], bytes]] = {}
    for name, path in _report_files(options):
        if options.in_the_making and not path.exists():
            readers[name] = partial(_read_later, path)
        else:
            readers[name] = partial(bytes, _read(path))
    return readers


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        json.loads(content)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    return content


def _read_later(path: Path) -> bytes:
    if not path.exists():
        raise RefusedError(503, "This is being measured; it will be here in a minute or two.", 1e3)
    return _read(path)


def _report_files(options: Options) -> list[tuple[str, Path]]:
    pairs = (("clusters", options.clusters), ("budget", options.curves))
    return [(name, path) for name, path in pairs if path is not None]


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
