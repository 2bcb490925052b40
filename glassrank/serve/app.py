"""The application: every address, and what answers there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from glassrank import __version__
from glassrank.serve.explaining import Explainer, need_document
from glassrank.serve.forms import Explain, Rerank, Search
from glassrank.serve.guard import Guard
from glassrank.serve.information import information, reports
from glassrank.serve.opened import Served
from glassrank.serve.options import Options
from glassrank.serve.reference import reference_page
from glassrank.serve.refusals import HANDLERS, RefusedError
from glassrank.serve.reranking import TextsReranker
from glassrank.serve.searching import Searcher
from glassrank.serve.service import Service, json_response, to_bytes

PAGE = Path(__file__).parent / "page"
OPEN = frozenset(("/healthz", "/readyz", "/docs", "/openapi.json"))
"""What anybody may ask, key or not: nothing here tells of documents."""


def make_app(options: Options, served: Served | None = None) -> ASGIApp:
    """`served` if it is open already; a worker process opens its own, without checking every byte
    again."""
    service = Service(options, served or Served(options, verify=False))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with service.running():
            yield

    app = FastAPI(
        title="glassrank",
        version=__version__,
        description="Search with neural re-ranking within a time budget, that shows why.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"4XX": {"description": "A refusal, with a `message` that says why."}},
        exception_handlers=HANDLERS,  # type: ignore[arg-type]
    )
    _add_answers(app, service)
    _add_state(app, service)
    routes = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return Guard(app, service, routes, OPEN)


def _add_answers(app: FastAPI, service: Service) -> None:
    searcher, explainer, reranker = Searcher(service), Explainer(service), TextsReranker(service)

    @app.post("/search")
    async def search(request: Request, form: Search) -> Response:
        """Hits for a query within its budget; for a list of queries, a list of answers."""
        return await searcher(request, form)

    @app.get("/search")
    async def search_by_address(
        request: Request,
        query: Annotated[list[str], Query(description="Several may be given.")],
        k: Annotated[int, Query(ge=1)] = 10,
        budget_ms: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
        method: str | None = None,
        model: str | None = None,
        snippets: bool = True,
        stream: bool = False,
    ) -> Response:
        """The same, with everything in the address."""
        form = Search(
            query=query if len(query) > 1 else query[0],
            k=k,
            budget_ms=budget_ms,
            method=method,
            model=model,
            snippets=snippets,
            stream=stream,
        )
        return await searcher(request, form)

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
    async def doc(id: str) -> Response:  # noqa: A002
        """A document as it was indexed."""
        opened = service.opened
        need_document(opened, id)
        return json_response(to_bytes(asdict(opened.index.doc(id))))

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

    @app.get("/metrics")
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
