"""What commands do with `--ray`: the same work, by the machines of a cluster."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassrank.cli import console

if TYPE_CHECKING:
    from glassrank.cluster import ShardedIndex, ShardedPipeline
    from glassrank.cluster.building import Encoding
    from glassrank.embeddings import Report
    from glassrank.index import Index
    from glassrank.models.checkpoint import SavedModel
    from glassrank.types import Doc

Address = Annotated[
    str | None,
    typer.Option(
        "--ray", help="Do it on the Ray cluster of this address; 'local' for this machine's cores."
    ),
]
ShardCount = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --ray: how many shards; as many as the cluster has cores unless given."
    ),
]


def build(
    docs: "Iterable[Doc]",
    source: str,
    out: Path,
    address: str,
    shards: int | None,
    *,
    overwrite: bool,
    language: str,
    quiet: bool,
) -> "Index":
    """An index with a segment for each shard."""
    from glassrank.cluster.building import build_shards
    from glassrank.cluster.cluster import connected, processors, run_tasks

    with connected(address):
        count = shards or processors()

        def finished(done: int) -> None:
            console.say(f"{done:,} of {count:,} shards are built", quiet=quiet)

        return build_shards(
            docs,
            out,
            count,
            run_tasks,
            source=source,
            overwrite=overwrite,
            language=language,
            finished=finished,
        )


def encode(
    index: "Index",
    saved: "SavedModel",
    encoding: "Encoding",
    address: str,
    path: Path | None,
    *,
    quiet: bool,
) -> "Report":
    """A store with a part for each segment."""
    from functools import partial

    from glassrank.cli.encode import shown
    from glassrank.cluster.building import encode_shards
    from glassrank.cluster.cluster import connected, run_tasks

    gpus = 0 if encoding.device == "cpu" else 1
    there = encoding._replace(model=everywhere(encoding.model))
    with connected(address), shown(quiet) as show:
        tasks = partial(run_tasks, gpus=gpus)
        return encode_shards(index, saved, there, tasks, path, show)


@contextmanager
def opened(
    index: Path,
    address: str,
    shards: int | None,
    models: Sequence[str] = (),
    *,
    exact: bool = False,
) -> "Iterator[ShardedIndex]":
    """An index, and an actor for each of its shards, for as long as it is used."""
    from glassrank.cluster import ShardedIndex
    from glassrank.cluster.cluster import RayShards, connected, processors
    from glassrank.cluster.mirror import Mirror, as_url
    from glassrank.index.snapshot import read_manifest

    url = as_url(index)
    local = index.absolute() if url is None else Mirror(url).whole()
    segments = max(1, len(read_manifest(local).segments))
    names = [everywhere(model) for model in models]
    with connected(address):
        count = min(shards or processors(), segments)
        actors = RayShards(count, names, exact=exact)
        try:
            yield ShardedIndex(url or local, actors)
        finally:
            actors.close()


@contextmanager
def pipeline(
    index: Path,
    address: str,
    shards: int | None,
    models: Sequence[str],
    *,
    budget_ms: float | None,
    candidates: int | None,
    plan: Path | None,
    exact: bool,
) -> "Iterator[ShardedPipeline]":
    """The second stage over these shards."""
    from glassrank.cluster import ShardedPipeline
    from glassrank.rerank import Reranker
    from glassrank.rerank.cascade_plan import CascadePlan

    rerankers = [Reranker.load(model, exact=exact) for model in models]
    with opened(index, address, shards, models, exact=exact) as sharded:
        yield ShardedPipeline(
            sharded,
            rerankers,
            budget_ms=budget_ms,
            candidates=candidates,
            plan=None if plan is None else CascadePlan.read(plan),
            calibrate=budget_ms is not None,
        )


def everywhere(model: str) -> str:
    """A model's name as other processes understand it: a folder by its whole path."""
    return str(Path(model).absolute()) if Path(model).exists() else model


def source_of(docs: str, *settings: object) -> str:
    """Stands for documents that are read: the same as long as nobody has changed them."""
    path = Path(docs)
    files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.exists() else []
    stats = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return repr((str(path.absolute()) if files else docs, settings, len(files), hash(tuple(stats))))
