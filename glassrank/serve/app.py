"""The application: endpoints for search, explanations, re-ranking and the service's state, the
static files of the page, and `/docs`, an API reference that loads nothing from elsewhere.
"""

import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from glassrank import __version__
from glassrank.deadline import Deadline
from glassrank.errors import InputError
from glassrank.index.methods import METHODS
from glassrank.rerank import Pipeline
from glassrank.serve import searching
from glassrank.serve.error_responses import HANDLERS, HttpError
from glassrank.serve.loaded import NO_MODEL, IndexReloader
from glassrank.serve.middleware import Endpoint, RequestMiddleware
from glassrank.serve.options import Options
from glassrank.serve.reranking import rerank_texts
from glassrank.serve.schemas import (
    DocId,
    ExplainRequest,
    FeedbackRequest,
    RerankRequest,
    SearchRequest,
    describe_search_parameters,
    parse_search,
)
from glassrank.serve.searching import NDJSON, check_document
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.storage.files import open_bytes
from glassrank.tracing import enable_tracing

_DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>
<h1>{title}</h1><p>{about}</p><p>As OpenAPI: <a href="/openapi.json">openapi.json</a></p>
{parts}</body></html>
"""
PAGE = Path(__file__).parent / "page"
PUBLIC = frozenset(("/healthz", "/readyz", "/docs", "/openapi.json"))
"""Endpoints that need no key: they return nothing about documents."""


def make_app(
    options: Options,
    reloader: IndexReloader | None = None,
    on_stuck: Callable[[], None] = lambda: None,
) -> ASGIApp:
    """`reloader`: an index that is loaded already; a worker process loads its own, without
    verifying every byte again. `on_stuck` is called if work still runs when the service has
    closed."""
    if options.traces:  # here, since each worker process has its own tracer
        enable_tracing()
    service = Service(options, reloader or IndexReloader(options, verify=False))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with service.run_in_background(on_stuck):
            yield

    error = {"description": "An error, with a `code` and a `message`."}
    app = FastAPI(
        title="glassrank",
        version=__version__,
        description="Search with neural re-ranking within a time budget, that shows why.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=dict.fromkeys(("4XX", "503"), error),
        exception_handlers=HANDLERS,  # type: ignore[arg-type]
    )
    _add_search_endpoints(app, service)
    _add_state_endpoints(app, service)
    endpoints = _describe_endpoints(app, service)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    pages = frozenset(("/", *(f"/{path.name}" for path in PAGE.iterdir())))
    _add_model_names(app, options)
    return RequestMiddleware(app, service, endpoints, pages)


def _describe_endpoints(app: FastAPI, service: Service) -> dict[str, Endpoint]:
    """Every route of the application: a new one needs the key unless it is in `PUBLIC`."""
    limits = service.limits
    small = min(limits.small_body_bytes, limits.body_bytes), limits.small_body_values
    large = limits.body_bytes, limits.body_values
    known = {
        "/search": Endpoint(queue=service.searches, body=small),
        "/explain": Endpoint(queue=service.texts, body=small),
        "/feedback": Endpoint(body=small),
        "/doc": Endpoint(queue=service.texts),
        **dict.fromkeys(("/v1/rerank", "/v2/rerank"), Endpoint(queue=service.texts, body=large)),
        **dict.fromkeys(PUBLIC, Endpoint(is_public=True)),
    }
    endpoints: dict[str, Endpoint] = {}
    for route in app.routes:
        assert isinstance(route, Route) and "{" not in route.path, route
        endpoint = endpoints.get(route.path) or known.get(route.path, Endpoint())
        methods = endpoint.methods | frozenset(route.methods or ())
        endpoints[route.path] = replace(endpoint, methods=methods)
    return endpoints


def _add_model_names(app: FastAPI, options: Options) -> None:
    """Lists the names of the models in the OpenAPI schema."""
    names = list(options.pipelines)
    schema = app.openapi()
    schemas = schema["components"]["schemas"]
    (asked,) = (p for p in schema["paths"]["/search"]["get"]["parameters"] if p["name"] == "model")
    for field, known in (
        (schemas["SearchRequest"]["properties"]["model"], [*names, NO_MODEL]),
        (asked["schema"], [*names, NO_MODEL]),
        (schemas["ExplainRequest"]["properties"]["model"], names),
    ):
        for choice in field["anyOf"]:
            text = choice.get("items", choice)
            if text["type"] == "string" and known:
                text["enum"] = known


def _add_search_endpoints(app: FastAPI, service: Service) -> None:
    streams: dict[int | str, Any] = {
        200: {"content": {NDJSON: {}}, "description": "As one object, or as a stream."}
    }

    @app.post("/search", responses=streams)
    async def search(request: Request, params: SearchRequest) -> Response:
        """Hits for a query within its budget; for a list of queries, a list of responses."""
        return await searching.search(service, request, params)

    parameters = {"parameters": describe_search_parameters()}

    @app.get("/search", responses=streams, openapi_extra=parameters)
    async def search_by_url(request: Request) -> Response:
        """The same, with all parameters in the URL."""
        params = parse_search(request.scope["query_string"])
        return await searching.search(service, request, params)

    @app.post("/explain")
    async def explain(request: Request, params: ExplainRequest) -> Response:
        """Why a document has its score; two side by side; what a change would do."""
        return await searching.explain(service, request, params)

    @app.post("/v1/rerank")
    async def rerank_v1(request: Request, params: RerankRequest) -> Response:
        """Given texts, best first, for clients of Cohere's v1 and of Jina."""
        return await rerank_texts(service, request, params, "1")

    @app.post("/v2/rerank")
    async def rerank_v2(request: Request, params: RerankRequest) -> Response:
        """Given texts, best first, for clients of Cohere's v2."""
        return await rerank_texts(service, request, params, "2")


def _add_state_endpoints(app: FastAPI, service: Service) -> None:
    @app.get("/doc")
    async def doc(request: Request, id: Annotated[DocId, Query()]) -> Response:  # noqa: A002
        """A document as it was indexed; of a very long one the beginning, and `cut` is true."""
        loaded = service.loaded
        budget_ms = service.options.texts_budget_ms

        def read(_: Deadline) -> bytes:
            check_document(loaded, id, service.limits)
            most = service.limits.doc_characters
            document = asdict(loaded.index.doc(id, most + 1))
            text = document["text"]
            if document.pop("fields_cut") or len(text) > most:
                document |= {"text": text[:most], "cut": True}
            return to_bytes(document)

        return json_response(await service.run(request, service.texts, read, budget_ms))

    if service.takes_feedback:

        @app.post("/feedback")
        async def feedback(params: FeedbackRequest) -> Response:
            """Notes a click on a hit, or a rating."""
            check_document(service.loaded, params.doc_id, service.limits)
            await to_thread(service.record_feedback, **params.model_dump())
            return json_response(b'{"status": "ok"}')

    @app.get("/info")
    async def info() -> Response:
        """Models, methods, limits, and the state of the index."""
        return json_response(to_bytes(describe_service(service)))

    for name, path in _report_files(service.options):
        send_report = _report_endpoint(path, service.options.reports_pending)
        app.get(f"/{name}", summary=f"The report of `glassrank {name}`.")(send_report)

    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process is alive."""
        return json_response(b'{"status": "ok"}')

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether index and models are loaded, and the service is not closing."""
        if service.closing:
            raise HttpError(503, "this service is closing", 1000.0)
        return json_response(to_bytes({"status": "ok", "models": list(service.loaded.pipelines)}))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(render_reference(app.openapi()))


def describe_service(service: Service) -> dict[str, Any]:
    """The body of `/info`: what a client can ask for, and what the index holds now."""
    loaded, options = service.loaded, service.options
    return {
        "version": __version__,
        "index": {
            "documents": len(loaded.index),
            "generation": loaded.index.generation,
            "behind": bool(service.reloader.behind),
        },
        "models": [_describe_model(name, each) for name, each in loaded.pipelines.items()],
        "methods": METHODS,
        "budget_ms": options.budget_ms,
        "texts_budget_ms": options.texts_budget_ms,
        "limits": asdict(service.limits),
        "samples": options.samples,
        "subject": options.subject,
        "encoding": options.reports_pending and loaded.encodes_on_the_fly(),
        "reports": [name for name, _ in _report_files(options)],
        "interleaving": None if service.interleaving is None else service.interleaving.state(),
    }


def _describe_model(name: str, pipeline: Pipeline) -> dict[str, Any]:
    """Lengths are those of a cascade's first model; `kind` and `stored` name all models."""
    usage = pipeline.reranker.usage
    rankers = [stage.reranker.model for stage in pipeline.stages]
    stored = [stage.store.dtype for stage in pipeline.stages if stage.store is not None]
    return {
        "name": name,
        "kind": "+".join(ranker.name for ranker in rankers),
        "candidates": pipeline.candidates,
        "query_words": usage.query_length,
        "doc_words": usage.doc_length,
        "first_stage": pipeline.method,
        "retrieval": pipeline.retrieval,
        "mixes_first_stage": any(ranker.first_stage_weight is not None for ranker in rankers),
        "stored": "+".join(stored) or None,
    }


def _report_files(options: Options) -> list[tuple[str, Path]]:
    """Reports that other commands write for the page, by the names of their endpoints."""
    pairs = (("clusters", options.clusters), ("budget", options.curves))
    return [(name, path) for name, path in pairs if path is not None]


def _report_endpoint(path: Path, is_pending: bool) -> Callable[[], Awaitable[Response]]:
    """Sends a report; reads it now, unless it is pending and not written yet."""
    content = None if is_pending and not path.exists() else _read_report(path)

    async def send_report() -> Response:
        if content is None and not path.exists():
            raise HttpError(503, "This is being measured; try again in a minute or two.", 1e3)
        return json_response(content or _read_report(path))

    return send_report


def _read_report(path: Path) -> bytes:
    with open_bytes(path) as file:
        content = file.read()
    try:
        json.loads(content)
    except ValueError as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    return content


def render_reference(schema: dict[str, Any]) -> str:
    """Every endpoint with its parameters, as one HTML page without scripts."""
    parts = []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            rows = "".join(
                f"<tr><td><code>{escape(name)}</code></td>"
                f"<td>{escape(_describe_type(field))}</td><td>{escape(about)}</td></tr>"
                for name, field, about in _list_fields(operation, schema)
            )
            table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
            about = escape(operation.get("description") or operation.get("summary", ""))
            title = f"{method.upper()} {escape(path)}"
            parts.append(f"<h2><code>{title}</code></h2><p>{about}</p>{table}\n")
    info = schema["info"]
    title = escape(f"{info['title']} {info['version']}")
    return _DOCS_PAGE.format(title=title, about=escape(info["description"]), parts="".join(parts))


def _list_fields(
    operation: dict[str, Any], schema: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(name, schema, description) of every parameter, and of every field of the body."""
    for parameter in operation.get("parameters", ()):
        yield parameter["name"], parameter["schema"], parameter.get("description", "")
    content = operation.get("requestBody", {}).get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref")
    if reference:
        body = schema["components"]["schemas"][reference.rpartition("/")[2]]
        for name, field in body["properties"].items():
            yield name, field, field.get("description", "")


def _describe_type(field: dict[str, Any]) -> str:
    """
    >>> _describe_type({"anyOf": [{"type": "array", "items": {"type": "string"}}]})
    'list of string'
    """
    if "anyOf" in field:
        choices = (choice for choice in field["anyOf"] if choice.get("type") != "null")
        return " or ".join(map(_describe_type, choices))
    if field.get("type") == "array":
        return f"list of {_describe_type(field['items'])}"
    return str(field.get("type") or field.get("$ref", "").rpartition("/")[2])
