"""The application: every address, and what answers there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
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
from glassrank.serve.explaining import ScoreExplainer, need_document
from glassrank.serve.forms import DocId, Explain, Rerank, Search, search_by, search_parameters
from glassrank.serve.guard import Address, Guard
from glassrank.serve.information import information, reference_page, reports
from glassrank.serve.opened import NO_MODEL, Served
from glassrank.serve.options import Options
from glassrank.serve.refusals import HANDLERS, RefusedError
from glassrank.serve.reranking import TextsReranker
from glassrank.serve.searching import NDJSON, Searcher
from glassrank.serve.service import Service, json_response, to_bytes
from glassrank.tracing import switch_on

_REFUSAL = "A refusal, with a `message` that says why."
PAGE = Path(__file__).parent / "page"
OPEN = frozenset(("/healthz", "/readyz", "/docs", "/openapi.json"))
"""What anybody may ask, key or not: nothing here tells of documents."""


def make_app(
    options: Options, served: Served | None = None, stuck: Callable[[], None] = lambda: None
) -> ASGIApp:
    """`served` if it is open already; a worker process opens its own, without checking every byte
    again. `stuck` is called when the service has closed, and something is computed still."""
    if options.traces:  # here, since each process of several has its own
        switch_on()
    service = Service(options, served or Served(options, verify=False))

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
    return Guard(app, service, addresses, pages)


def _addresses(app: FastAPI, service: Service) -> dict[str, Address]:
    """Where the application itself answers: whatever is added is behind the key at once."""
    limits = service.limits
    small = min(limits.small_body_bytes, limits.body_bytes), limits.small_body_values
    large = limits.body_bytes, limits.body_values
    # Those whose requests wait for threads, or have bodies.
    known = {
        "/search": Address(queue=service.searches, body=small),
        "/explain": Address(queue=service.texts, body=small),
        "/doc": Address(queue=service.texts),
        **dict.fromkeys(("/v1/rerank", "/v2/rerank"), Address(queue=service.texts, body=large)),
        **dict.fromkeys(OPEN, Address(open=True)),
    }
    addresses: dict[str, Address] = {}
    for route in app.routes:
        assert isinstance(route, Route) and "{" not in route.path, route
        address = addresses.get(route.path) or known.get(route.path, Address())
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
        (forms["Search"]["properties"]["model"], [*names, NO_MODEL]),
        (asked["schema"], [*names, NO_MODEL]),
        (forms["Explain"]["properties"]["model"], names),
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
    async def search(request: Request, form: Search) -> Response:
        """Hits for a query within its budget; for a list of queries, a list of answers."""
        return await searcher(request, form)

    @app.get("/search", responses=streams, openapi_extra={"parameters": search_parameters()})
    async def search_by_address(request: Request) -> Response:
        """The same, with everything in the address."""
        return await searcher(request, search_by(request.scope["query_string"]))

    @app.post("/explain")
    async def explain(request: Request, form: Explain) -> Response:
        """Why a document has its score; two side by side; what a change would do."""
        return await explainer(request, form)

    @app.post("/v1/rerank")
    async def rerank_v1(request: Request, form: Rerank) -> Response:
        """Given texts, best first, as Cohere's v1 and Jina's clients ask for it."""
        return await reranker(request, form, "1")

    @app.post("/v2/rerank")
    async def rerank_v2(request: Request, form: Rerank) -> Response:
        """Given texts, best first, as Cohere's v2 clients ask for it."""
        return await reranker(request, form, "2")


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/doc")
    async def doc(request: Request, id: Annotated[DocId, Query()]) -> Response:  # noqa: A002
        """A document as it was indexed; of a very long one the beginning, and `cut` is true."""
        opened = service.opened
        budget_ms = service.options.texts_budget_ms

        def read(_: Deadline) -> bytes:
            need_document(opened, id)
            most = service.limits.doc_characters
            document = asdict(opened.index.doc(id, most + 1))
            cut = {"cut": True} if len(document["text"]) > most else {}
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
            raise RefusedError(503, "this service is closing", 1000.0)
        return json_response(to_bytes({"status": "ok", "models": list(service.opened.pipelines)}))

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
