"""What the page and other clients ask first: models, methods, limits, reports."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from glassrank import __version__
from glassrank.errors import InputError
from glassrank.ranking import Pipeline
from glassrank.serve.opened import METHODS
from glassrank.serve.options import Options
from glassrank.serve.refusals import RefusedError
from glassrank.serve.service import Service


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
        if options.reports_follow and not path.exists():
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
