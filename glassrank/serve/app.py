"""The application: every address, and what answers there; what clients ask first (models, methods,
limits, reports), and `/docs`, one plain page of what the service answers to, which loads nothing
from elsewhere.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
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
from glassrank.rerank import Pipeline
from glassrank.serve.error_responses import HANDLERS, HttpError
from glassrank.serve.loaded import METHODS, NO_MODEL, IndexReloader
from glassrank.serve.middleware import Endpoint, RequestMiddleware
from glassrank.serve.options import Options
from glassrank.serve.reranking import TextsReranker
from glassrank.serve.schemas import (
    DocId,
    ExplainRequest,
    RerankRequest,
    SearchRequest,
    describe_search_parameters,
    parse_search,
)
from glassrank.serve.searching import NDJSON, ScoreExplainer, Searcher, need_document
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.tracing import switch_on

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>
<h1>{title}</h1><p>{about}</p><p>The same for programs: <a href="/openapi.json">openapi.json</a></p>
{parts}</body></html>
"""

_REFUSAL = "A refusal, with a `message` that says why."
PAGE = Path(__file__).parent / "page"
OPEN = frozenset(("/healthz", "/readyz", "/docs", "/openapi.json"))
"""What anybody may ask, key or not: nothing here tells of documents."""


def make_app(
    options: Options,
    reloader: IndexReloader | None = None,
    stuck: Callable[[], None] = lambda: None,
) -> ASGIApp:
    """`reloader`: an index that is loaded already; a worker process loads its own, without
    verifying every byte again. `stuck` is called if work still runs when the service has closed."""
    if options.traces:  # here, since each process of several has its own
        switch_on()
    service = Service(options, reloader or IndexReloader(options, verify=False))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with service.running(stuck):
            yield

    app = FastAPI(
        title="glassrank",
        version=__version__,
        description="Search with neural re-ranking within a time budget, that shows why.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={status: {"description": _REFUSAL} for status in ("4XX", "503")},
        exception_handlers=HANDLERS,  # type: ignore[arg-type]
    )
    _add_answers(app, service)
    _add_state(app, service)
    addresses = _addresses(app, service)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    pages = frozenset(("/", *(f"/{path.name}" for path in PAGE.iterdir())))
    _name_models(app, options)
    return RequestMiddleware(app, service, addresses, pages)


def _addresses(app: FastAPI, service: Service) -> dict[str, Endpoint]:
    """Where the application itself answers: whatever is added is behind the key at once."""
    limits = service.limits
    small = min(limits.small_body_bytes, limits.body_bytes), limits.small_body_values
    large = limits.body_bytes, limits.body_values
    # Those whose requests wait for threads, or have bodies.
    known = {
        "/search": Endpoint(queue=service.searches, body=small),
        "/explain": Endpoint(queue=service.texts, body=small),
        "/doc": Endpoint(queue=service.texts),
        **dict.fromkeys(("/v1/rerank", "/v2/rerank"), Endpoint(queue=service.texts, body=large)),
        **dict.fromkeys(OPEN, Endpoint(open=True)),
    }
    addresses: dict[str, Endpoint] = {}
    for route in app.routes:
        assert isinstance(route, Route) and "{" not in route.path, route
        address = addresses.get(route.path) or known.get(route.path, Endpoint())
        methods = address.methods | frozenset(route.methods or ())
        addresses[route.path] = replace(address, methods=methods)
    return addresses


def _name_models(app: FastAPI, options: Options) -> None:
    """The schema names the models that there are, for programs that read it."""
    names = list(options.pipelines)
    schema = app.openapi()
    forms = schema["components"]["schemas"]
    (asked,) = (p for p in schema["paths"]["/search"]["get"]["parameters"] if p["name"] == "model")
    for field, known in (
        (forms["SearchRequest"]["properties"]["model"], [*names, NO_MODEL]),
        (asked["schema"], [*names, NO_MODEL]),
        (forms["ExplainRequest"]["properties"]["model"], names),
    ):
        for form in field["anyOf"]:
            text = form.get("items", form)
            if text["type"] == "string" and known:
                text["enum"] = known


def _add_answers(app: FastAPI, service: Service) -> None:
    searcher, explainer = Searcher(service), ScoreExplainer(service)
    reranker = TextsReranker(service)

    streams: dict[int | str, Any] = {
        200: {"content": {NDJSON: {}}, "description": "As one object, or as a stream."}
    }

    @app.post("/search", responses=streams)
    async def search(request: Request, form: SearchRequest) -> Response:
        """Hits for a query within its budget; for a list of queries, a list of answers."""
        return await searcher(request, form)

    @app.get(
        "/search", responses=streams, openapi_extra={"parameters": describe_search_parameters()}
    )
    async def search_by_url(request: Request) -> Response:
        """The same, with everything in the address."""
        return await searcher(request, parse_search(request.scope["query_string"]))

    @app.post("/explain")
    async def explain(request: Request, form: ExplainRequest) -> Response:
        """Why a document has its score; two side by side; what a change would do."""
        return await explainer(request, form)

    @app.post("/v1/rerank")
    async def rerank_v1(request: Request, form: RerankRequest) -> Response:
        """Given texts, best first, as Cohere's v1 and Jina's clients ask for it."""
        return await reranker(request, form, "1")

    @app.post("/v2/rerank")
    async def rerank_v2(request: Request, form: RerankRequest) -> Response:
        """Given texts, best first, as Cohere's v2 clients ask for it."""
        return await reranker(request, form, "2")


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/doc")
    async def doc(request: Request, id: Annotated[DocId, Query()]) -> Response:  # noqa: A002
        """A document as it was indexed; of a very long one the beginning, and `cut` is true."""
        loaded = service.loaded
        budget_ms = service.options.texts_budget_ms

        def read(_: Deadline) -> bytes:
            need_document(loaded, id, service.limits)
            most = service.limits.doc_characters
            document = asdict(loaded.index.doc(id, most + 1))
            is_cut = document.pop("fields_cut") or len(document["text"]) > most
            cut = {"cut": True} if is_cut else {}
            return to_bytes({**document, "text": document["text"][:most], **cut})

        return json_response(await service.run(request, service.texts, read, budget_ms))

    @app.get("/info")
    async def info() -> Response:
        """Models, methods, limits, and the state of the index."""
        return json_response(to_bytes(information(service)))

    for name, read in reports(service.options).items():
        app.get(f"/{name}", summary=f"What `glassrank {name}` has found.")(_report(read))

    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process is alive."""
        return json_response(b'{"status": "ok"}')

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether index and models are loaded, and no end is near."""
        if service.closing:
            raise HttpError(503, "this service is closing", 1000.0)
        return json_response(to_bytes({"status": "ok", "models": list(service.loaded.pipelines)}))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(reference_page(app.openapi()))


def _report(read: Callable[[], bytes]) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return json_response(read())

    return answer


def information(service: Service) -> dict[str, Any]:
    """What a client can ask for here, and what the index holds now."""
    loaded = service.loaded
    return {
        "version": __version__,
        "index": {
            "documents": len(loaded.index),
            "generation": loaded.index.generation,
            "behind": bool(service.reloader.behind),
        },
        "models": [_model(name, pipeline) for name, pipeline in loaded.pipelines.items()],
        "methods": METHODS,
        "budget_ms": service.options.budget_ms,
        "texts_budget_ms": service.options.texts_budget_ms,
        "limits": asdict(service.limits),
        "samples": service.options.samples,
        "subject": service.options.subject,
        "encoding": service.options.reports_pending and loaded.unencoded(),
        "reports": [name for name, _ in _report_files(service.options)],
    }


def _model(name: str, pipeline: Pipeline) -> dict[str, Any]:
    """Of a cascade, its first model; `kind` and `stored` name all of them."""
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
        "mixes_first_stage": any(ranker.first_stage_weight is not None for ranker in rankers),
        "stored": "+".join(stored) or None,
    }


def reports(options: Options) -> dict[str, Callable[[], bytes]]:
    """JSON that other commands have written, for the page, by the names of its addresses. What is
    there is read once; what still follows, when somebody asks for it."""
    readers: dict[str, Callable[[], bytes]] = {}
    for name, path in _report_files(options):
        if options.reports_pending and not path.exists():
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
        raise HttpError(503, "This is being measured; it will be here in a minute or two.", 1e3)
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
