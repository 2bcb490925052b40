"""`glassrank clusters`: clusters of queries, and where a model helps or hurts."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from glassrank import console
from glassrank.console import JsonFile, check_writable, is_printed, write_json
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.rerank import Reranker
    from glassrank.research.evaluate.clusters import Cluster, RankedQuery
    from glassrank.research.evaluate.measures import Floats

FORMAT = 1
_SORTS = ("gain", "loss", "size")


def clusters(
    run: Annotated[Path, typer.Argument(help="The model's run.")],
    baseline: Annotated[Path, typer.Option(help="The first stage's run, to compare with.")],
    queries: Annotated[str, typer.Option(help="The runs' queries: TSV, JSONL or TREC topics.")],
    qrels: Annotated[str, typer.Option(help="Judgments.")],
    model: Annotated[str, typer.Option(help="The model whose query vectors are clustered.")],
    k: Annotated[
        int | None, typer.Option(min=1, help="Number of clusters; default: by the elbow.")
    ] = None,
    sort: Annotated[str, typer.Option(help="Sort clusters by gain, loss or size.")] = ("gain"),
    json: JsonFile = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
) -> None:
    """Cluster queries, and show where a model helps or hurts.

    k-means groups queries by the means of their token vectors. Distinctive
    words name a cluster; ranks are medians of the rank of the first relevant
    document. The number of clusters is the elbow of the curve of inertias.
    """
    from glassrank.rerank import Reranker
    from glassrank.research.evaluate.clusters import (
        Cluster,
        candidate_ks,
        compute_inertias,
        find_elbow,
        k_means,
        make_clusters,
    )

    check_writable(json)
    if sort not in _SORTS:
        raise InputError(f"--sort must be one of {', '.join(_SORTS)}, found {sort!r}")
    asked = _ranked_queries(run, baseline, queries, qrels, quiet=quiet)
    if k is not None and k > len(asked):
        raise InputError(f"--k must be at most {len(asked):,}, the number of queries, found {k:,}")
    texts = [query.text for query in asked]
    vectors = query_vectors(Reranker.load(model, device), texts, quiet=quiet)
    curve: list[dict[str, float]] = []
    if k is None:
        ks = candidate_ks(len(asked))
        with console.working("Choosing the number of clusters", quiet=quiet):
            inertias = compute_inertias(vectors, ks)
        k = find_elbow(ks, inertias)
        curve = [{"k": tried, "inertia": value} for tried, value in zip(ks, inertias, strict=True)]
    with console.working(f"Making {k:,} clusters", quiet=quiet):
        clusters = make_clusters(asked, vectors, k_means(vectors, k))
    if sort != "gain":
        clusters.sort(key=lambda cluster: cluster.gain if sort == "loss" else -len(cluster.queries))
    everyone = Cluster(("all", "queries"), tuple(asked))
    write_json(_as_json(clusters, everyone, curve, model), json)
    if not is_printed(json):
        console.out.print(_table(clusters, everyone))


def _ranked_queries(
    run: Path, baseline: Path, queries: str, qrels: str, *, quiet: bool
) -> "list[RankedQuery]":
    """Queries with a relevant document in either run; others cannot improve."""
    from glassrank.corpus import read_qrels, read_queries, read_run
    from glassrank.research.evaluate.clusters import RankedQuery, first_relevant_ranks

    judgments, texts = read_qrels(qrels), dict(read_queries(queries))
    before = first_relevant_ranks(read_run(baseline), judgments)
    after = first_relevant_ranks(read_run(run), judgments)
    ranked = [query_id for query_id in judgments if min(before[query_id], after[query_id]) < inf]
    if not ranked:
        raise InputError(f"neither {baseline} nor {run} has a relevant document of {qrels}")
    missing = next((query_id for query_id in ranked if query_id not in texts), None)
    if missing is not None:
        raise InputError(f"{queries} lacks query {missing!r} of the runs")
    if len(ranked) < len(judgments):
        console.say(
            f"skipped {len(judgments) - len(ranked):,} of {len(judgments):,} judged queries: no "
            "run has a relevant document for them",
            quiet=quiet,
        )
    return [RankedQuery(name, texts[name], before[name], after[name]) for name in ranked]


def query_vectors(reranker: "Reranker", texts: list[str], *, quiet: bool) -> "Floats":
    """The mean of each query's token vectors."""  # (N, E)
    import numpy as np

    from glassrank.models.model import to_array

    means = []
    for text in console.track(texts, "Encoding queries", total=len(texts), quiet=quiet):
        words = reranker.encode_query(text)
        vectors, mask = to_array(words.vectors[0]), to_array(words.mask[0])
        if vectors.dtype.kind != "f":
            raise InputError(f"a {reranker.model.name} is a cross-encoder and has no query vectors")
        total = (vectors.reshape(len(mask), -1) * mask[:, None]).sum(0)  # (E,)
        means.append(total.astype(np.float64) / max(1.0, float(mask.sum())))
    return np.stack(means)


def _table(clusters: "list[Cluster]", everyone: "Cluster") -> Table:
    table = Table("cluster, and typical queries", box=None, pad_edge=False)
    for column in ("queries", "baseline", "model", "gain", "better", "worse"):
        table.add_column(column, justify="right")
    for cluster in clusters:
        typical = escape("\n".join(query.text for query in cluster.examples[:2]))
        table.add_row(f"[bold]{escape(cluster.name)}[/]\n[dim]{typical}[/]", *_cells(cluster))
    table.add_row(everyone.name, *_cells(everyone))
    return table


def _cells(cluster: "Cluster") -> tuple[str, ...]:
    ranks = (f"{rank:,g}" if rank < inf else "none" for rank in (cluster.baseline, cluster.model))
    counts = (f"{count:,}" for count in (cluster.better, cluster.worse))
    gain = f"{cluster.gain:+,g}" if cluster.gain else "0"
    return (f"{len(cluster.queries):,}", *ranks, gain, *counts)


def _as_json(
    clusters: "list[Cluster]", everyone: "Cluster", curve: list[dict[str, float]], model: str
) -> dict[str, Any]:
    """`docs/reference/formats.md` describes the fields."""
    return {
        "format": FORMAT,
        "model": model,
        "elbow": curve,
        "all": _cluster_json(everyone),
        "clusters": [_cluster_json(cluster) for cluster in clusters],
        "queries": [
            {"query_id": query.query_id, "text": query.text, "cluster": number, **_ranks(query)}
            for number, cluster in enumerate(clusters)
            for query in cluster.queries
        ],
    }


def _cluster_json(cluster: "Cluster") -> dict[str, Any]:
    return {
        "name": cluster.name,
        "terms": list(cluster.terms),
        "queries": len(cluster.queries),
        **_ranks(cluster),
        "better": cluster.better,
        "worse": cluster.worse,
        "examples": [query.query_id for query in cluster.examples],
    }


def _ranks(of: "Cluster | RankedQuery") -> dict[str, float | None]:
    """JSON has no infinity."""
    values = {"baseline": of.baseline, "model": of.model, "gain": of.gain}
    return {name: value if abs(value) < inf else None for name, value in values.items()}
