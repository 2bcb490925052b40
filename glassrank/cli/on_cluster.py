"""The `--ray` option: the same work on a Ray cluster."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassrank import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.cluster import ShardedIndex, ShardedPipeline
    from glassrank.cluster.building import Encoding
    from glassrank.embeddings import Report
    from glassrank.index import Index
    from glassrank.models.io.model_folder import SavedModel

Address = Annotated[
    str | None,
    typer.Option(
        "--ray", help="Run on the Ray cluster at this address; 'local' for this machine's cores."
    ),
]
ShardCount = Annotated[
    int | None,
    typer.Option(min=1, help="With --ray: number of shards; default: the cluster's cores."),
]


def check_shards(shards: int | None, address: str | None) -> None:
    """Raise an error if there are shards without a cluster."""
    if shards is not None and address is None:
        raise InputError("--shards needs --ray")


def encode(
    index: "Index",
    saved: "SavedModel",
    encoding: "Encoding",
    address: str,
    path: Path | None,
    *,
    quiet: bool,
) -> "Report":
    """Make a store with a part for each segment."""
    from functools import partial

    from glassrank.cluster.building import encode_shards
    from glassrank.cluster.cluster import connect, run_tasks

    gpus = 0 if encoding.device == "cpu" else 1
    encoding = encoding._replace(model=absolute_model(encoding.model))
    with connect(address), console.show_encoding(quiet) as show:
        return encode_shards(index, saved, encoding, partial(run_tasks, gpus=gpus), path, show)


@contextmanager
def open_index(
    index: Path,
    address: str,
    shards: int | None,
    models: Sequence[str] = (),
    *,
    exact: bool = False,
) -> "Iterator[ShardedIndex]":
    """Open an index with an actor for each shard, and stop the actors at the end."""
    from glassrank.cluster import ShardedIndex
    from glassrank.cluster.cluster import RayShards, connect, processors
    from glassrank.cluster.mirror import Mirror, parse_url
    from glassrank.index.snapshot import read_manifest

    url = parse_url(index)
    local = index.absolute() if url is None else Mirror(url).whole()
    segments = max(1, len(read_manifest(local).segments))
    names = [absolute_model(model) for model in models]
    with (
        connect(address),
        closing(RayShards(min(shards or processors(), segments), names, exact=exact)) as actors,
    ):
        yield ShardedIndex(url or local, actors)


@contextmanager
def open_pipeline(
    index: Path,
    address: str,
    shards: int | None,
    models: Sequence[str],
    *,
    plan: Path | None,
    exact: bool,
    **settings: Any,
) -> "Iterator[ShardedPipeline]":
    """Open an index and re-rankers on a cluster, with the other settings of a `Pipeline`."""
    from glassrank.cluster import ShardedPipeline
    from glassrank.rerank import Reranker
    from glassrank.rerank.cascade_plan import CascadePlan

    rerankers = [Reranker.load(model, exact=exact) for model in models]
    depths = None if plan is None else CascadePlan.read(plan)
    calibrate = settings["budget_ms"] is not None
    with open_index(index, address, shards, models, exact=exact) as sharded:
        yield ShardedPipeline(sharded, rerankers, plan=depths, calibrate=calibrate, **settings)


def absolute_model(model: str) -> str:
    """A model's name for other processes: a folder as an absolute path."""
    return str(Path(model).absolute()) if Path(model).exists() else model


def identify_source(docs: str, *settings: object) -> str:
    """A key for documents that changes when their files do."""
    path = Path(docs)
    files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.exists() else []
    stats = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return repr((str(path.absolute()) if files else docs, settings, len(files), hash(tuple(stats))))
