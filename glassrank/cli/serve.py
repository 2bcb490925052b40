"""`glassrank serve`: the search page, and search over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank.cli import console, on_cluster
from glassrank.errors import GlassrankError


def serve(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model folder, NAME=FOLDER, 'default', 'fast', or 'none'; several may be given."
        ),
    ] = None,
    cascade: Annotated[
        bool,
        typer.Option(
            "--cascade",
            help="Also search with all models, each re-ranking the best of those before it.",
        ),
    ] = False,
    plan: console.PlanFile = None,
    device: console.Device = "cpu",
    ray: on_cluster.Address = None,
    shards: on_cluster.ShardCount = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Searches at once in each process.")] = 1,
    budget_ms: Annotated[float, typer.Option(help="For a search that names none.")] = 50.0,
    texts_budget_ms: Annotated[
        float, typer.Option(help="For re-ranking given texts, and for explanations.")
    ] = 10_000.0,
    work_ms: Annotated[
        float, typer.Option(help="The most that one request may compute, whatever its budget.")
    ] = 1_000.0,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait.")] = 128,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="How deep to re-rank; as the model says if not given.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The first stage; as the model says if not given.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with the key; or set GLASSRANK_API_KEY.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Whoever can reach the host may search.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name that requests may use for this host.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of a limit below; several may be given.")
    ] = None,
    clusters: Annotated[
        Path | None, typer.Option(help="What `glassrank clusters --json` wrote, for the page.")
    ] = None,
    curves: Annotated[
        Path | None, typer.Option(help="What `glassrank budget --json` wrote, for the page.")
    ] = None,
    traces: Annotated[
        bool,
        typer.Option("--traces", help="Send spans of queries to an OpenTelemetry collector."),
    ] = False,
    quiet: console.Quiet = False,
) -> None:
    """Serve an index: the search page, /search, /explain, and re-ranking as other services do."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise GlassrankError(
            f"serving needs {error.name}, which was installed with glassrank; install that again"
        ) from None
    from glassrank.index.methods import parse_method
    from glassrank.serve import Options
    from glassrank.serve import serve as run
    from glassrank.serve.limits import Limits, change_limits
    from glassrank.serve.options import read_api_key

    parse_method(method or "bm25")
    options = Options(
        index=index,
        models=() if model == ["none"] else _models(model or ["default", "fast"], ray),
        cascade=cascade,
        plan=plan,
        device=device,
        ray=ray,
        shards=shards,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        budget_ms=budget_ms,
        texts_budget_ms=texts_budget_ms,
        work_ms=work_ms,
        queue=queue,
        candidates=candidates,
        method=method,
        api_key=None if no_auth and api_key_file is None else read_api_key(api_key_file),
        no_auth=no_auth,
        allowed_hosts=tuple(allow_host or ()),
        clusters=clusters,
        curves=curves,
        traces=traces,
        limits=change_limits(Limits(), limit or ()),
    )
    console.say("Opening the index and the models …", quiet=quiet)
    run(options, lambda address: console.say(f"Serving {index} at {address}", quiet=quiet))


def epilog() -> str:
    """Every limit with its value, below `glassrank serve --help`."""
    from glassrank.serve.limits import describe_limits

    lines = [f"{name}={value}: {about}" for name, value, about in describe_limits()]
    return "\n\n".join(["Limits of each process (--limit NAME=VALUE):", *lines])


def _models(names: list[str], ray: str | None) -> tuple[tuple[str, str], ...]:
    """By name and folder; on a cluster, a folder by its whole path."""
    from glassrank.serve.options import named_models

    models = named_models(names)
    if ray is None:
        return models
    return tuple((name, on_cluster.everywhere(folder)) for name, folder in models)
