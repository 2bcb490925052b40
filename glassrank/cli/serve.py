"""`glassrank serve`: the search page and the HTTP API."""

from pathlib import Path
from typing import Annotated

import typer

from glassrank import console
from glassrank.cli import on_cluster
from glassrank.errors import GlassrankError


def serve(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model folder, NAME=FOLDER, 'strong', 'default', 'fast', 'tiny', or 'none'; "
            "repeatable."
        ),
    ] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also offer all models as a cascade.")
    ] = False,
    plan: console.PlanFile = None,
    device: console.Device = "cpu",
    ray: on_cluster.Address = None,
    shards: on_cluster.ShardCount = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free port.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Concurrent searches in each worker.")] = 1,
    budget_ms: Annotated[
        float, typer.Option(help="Default budget of a search, in milliseconds.")
    ] = 50.0,
    texts_budget_ms: Annotated[
        float, typer.Option(help="Default budget of /rerank and /explain, in milliseconds.")
    ] = 10_000.0,
    work_ms: Annotated[
        float,
        typer.Option(help="Most milliseconds that a request may compute, whatever its budget."),
    ] = 1_000.0,
    queue: Annotated[int, typer.Option(min=1, help="Most requests that may wait.")] = 128,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="How deep to re-rank; default: the model's own depth.")
    ] = None,
    method: console.ModelsMethod = None,
    first_stage: console.FirstStage = None,
    regularization: console.Regularization = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with the key; or set GLASSRANK_API_KEY.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Serve without a key to all who can reach the host.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another allowed Host header; repeatable.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of a limit below; repeatable.")
    ] = None,
    clusters: Annotated[
        Path | None, typer.Option(help="Output of `glassrank clusters --json`, for the page.")
    ] = None,
    curves: Annotated[
        Path | None, typer.Option(help="Output of `glassrank budget --json`, for the page.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Log queries, shown ids and clicks here, for `glassrank learn`."),
    ] = None,
    interleave: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Compare this model online with the default one."),
    ] = None,
    interleave_share: Annotated[
        float, typer.Option(help="The share of searches that compare.")
    ] = 0.2,
    traces: Annotated[
        bool, typer.Option("--traces", help="Send spans to an OpenTelemetry collector.")
    ] = False,
    quiet: console.Quiet = False,
) -> None:
    """Serve an index: search page, /search, /explain, and Cohere- and Jina-compatible /rerank."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise GlassrankError(
            f"serving needs {error.name}; install it again: pip install glassrank"
        ) from None
    from glassrank.index.methods import parse_method
    from glassrank.serve import Options
    from glassrank.serve import serve as run
    from glassrank.serve.limits import Limits, change_limits
    from glassrank.serve.options import read_api_key

    parse_method(method or "bm25")
    on_cluster.check_shards(shards, ray)
    names = model or ["default", "fast"]
    if interleave is not None and interleave not in names:
        names = [*names, interleave]
    options = Options(
        index=index,
        models=() if names == ["none"] else _models(names, ray),
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
        first_stage=first_stage,
        regularization=regularization,
        api_key=None if no_auth and api_key_file is None else read_api_key(api_key_file),
        no_auth=no_auth,
        allowed_hosts=tuple(allow_host or ()),
        clusters=clusters,
        curves=curves,
        log=log,
        interleave=None if interleave is None else _models([interleave], ray)[0][0],
        interleave_share=interleave_share,
        traces=traces,
        limits=change_limits(Limits(), limit or ()),
    )
    console.say("Opening the index and the models …", quiet=quiet)
    run(options, lambda address: console.say(f"Serving {index} at {address}", quiet=quiet))


def epilog() -> str:
    """Every limit with its value, for `glassrank serve --help`."""
    from glassrank.serve.limits import describe_limits

    lines = [f"{name}={value}: {about}" for name, value, about in describe_limits()]
    return "\n\n".join(["Limits of each process (--limit NAME=VALUE):", *lines])


def _models(names: list[str], ray: str | None) -> tuple[tuple[str, str], ...]:
    """Names and folders; on a cluster, folders are absolute."""
    from glassrank.serve.options import named_models

    models = named_models(names)
    return models if ray is None else tuple((n, on_cluster.absolute_model(f)) for n, f in models)
