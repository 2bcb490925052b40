"""`glassrank evaluate` and `glassrank tune`: evaluate runs, tune the first stage."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from glassrank import console
from glassrank.errors import InputError

if TYPE_CHECKING:
    from glassrank.research.evaluate import Comparison, Evaluation

_DEFAULT = ("RR@10", "nDCG@10", "R@1000", "AP")


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Runs in TREC or MS MARCO format."),
    ],
    qrels: Annotated[str, typer.Argument(help="Judgments.")],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="RR@10, nDCG@10, nDCG(dcg='exp-log2')@20, AP, P@20, R@100, ERR@20, RBP(p=0.8), "
            "Rprec, Bpref, Judged@10, …",
        ),
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="A run to compare with.")] = None,
    test: Annotated[str, typer.Option(help="Significance test: t or permutation.")] = "t",
    correction: Annotated[
        str, typer.Option(help="Correction for multiple tests: none, bonferroni, holm or bh.")
    ] = "holm",
    margin: Annotated[
        list[float] | None,
        typer.Option(help="Margin of non-inferiority as a share; default: 0.02 and 0.05."),
    ] = None,
    judged_only: Annotated[
        bool, typer.Option("--judged-only", help="Remove unjudged documents.")
    ] = False,
    per_query: Annotated[
        bool, typer.Option("--per-query", help="Print the value of every query.")
    ] = False,
    json: console.AsJson = False,
) -> None:
    """Evaluate runs, and test them against a baseline."""
    from glassrank.corpus import read_qrels, read_run
    from glassrank.research.evaluate import compare_all
    from glassrank.research.evaluate import evaluate as evaluate_run

    if baseline is None and (test != "t" or correction != "holm" or margin):
        raise InputError("--test, --correction and --margin need --baseline")
    judgments = read_qrels(qrels)
    measures = measure or list(_DEFAULT)

    def evaluate_file(path: Path) -> "Evaluation":
        return evaluate_run(read_run(path), judgments, measures, judged_only=judged_only)

    evaluations = {str(path): evaluate_file(path) for path in runs}
    comparisons: dict[str, dict[str, Comparison]] = {name: {} for name in evaluations}
    if baseline is not None:
        rows = compare_all(
            evaluations,
            evaluate_file(baseline),
            test=test,  # type: ignore[arg-type]
            correction=correction,  # type: ignore[arg-type]
            margins=margin or (0.02, 0.05),
        )
        for row in rows:
            comparisons[row.system_name][row.measure] = row
    if json:
        reports = {
            name: _as_json(evaluation, comparisons[name], per_query=per_query)
            for name, evaluation in evaluations.items()
        }
        console.print_json({"runs": reports} if len(runs) > 1 else reports[str(runs[0])])
        return
    for name, evaluation in evaluations.items():
        if len(runs) > 1 and (per_query or baseline is not None):
            console.out.print(name, markup=False)
        if per_query:
            for number, query_id in enumerate(evaluation.query_ids):
                for measure_name, values in evaluation.per_query.items():
                    print(f"{query_id}\t{measure_name}\t{values[number]:.4f}")
        if baseline is not None:
            console.out.print(_comparison_table(comparisons[name]))
    if baseline is None:
        console.out.print(_table(evaluations))
    console.out.print(f"[dim]{len(judgments):,} judged queries[/]")


def _table(evaluations: "dict[str, Evaluation]") -> Table:
    table = Table("measure", box=None, pad_edge=False)
    for name in evaluations:
        table.add_column(name if len(evaluations) > 1 else "mean", justify="right")
    for measure in next(iter(evaluations.values())).mean:
        means = (f"{evaluation.mean[measure]:.4f}" for evaluation in evaluations.values())
        table.add_row(measure, *means)
    return table


def _comparison_table(comparisons: "dict[str, Comparison]") -> Table:
    table = Table("measure", box=None, pad_edge=False)
    for column in ("run", "baseline", "difference", "p", "p corrected", "non-inferior at"):
        table.add_column(column, justify="right")
    for name, row in comparisons.items():
        margins = [_share(claim.margin) for claim in row.non_inferiority if claim.holds]
        table.add_row(
            name,
            f"{row.system:.4f}",
            f"{row.baseline:.4f}",
            f"{row.difference:+.4f}",
            f"{row.p_value:.4f}",
            f"{row.corrected_p:.4f}",
            ", ".join(margins) or "no margin",
        )
    return table


def _as_json(
    evaluation: "Evaluation", comparisons: "dict[str, Comparison]", *, per_query: bool
) -> dict[str, Any]:
    result: dict[str, Any] = {"queries": len(evaluation.query_ids), "mean": evaluation.mean}
    if per_query:
        result["per_query"] = {
            name: dict(zip(evaluation.query_ids, values.tolist(), strict=True))
            for name, values in evaluation.per_query.items()
        }
    if comparisons:
        result["baseline"] = {
            name: {
                "mean": row.baseline,
                "difference": row.difference,
                "statistic": row.statistic,
                "p": row.p_value,
                "p_corrected": row.corrected_p,
                "non_inferior": {
                    _share(claim.margin): {"p": claim.p_value, "holds": claim.holds}
                    for claim in row.non_inferiority
                },
            }
            for name, row in comparisons.items()
        }
    return result


def _share(margin: float) -> str:
    """
    >>> _share(0.02), _share(0.025)
    ('2%', '2.5%')
    """
    return f"{100 * margin:g}%"


def tune(
    index: Annotated[Path, typer.Argument(help="The index folder.")],
    queries: Annotated[str, typer.Argument(help="Dev queries.")],
    qrels: Annotated[str, typer.Argument(help="Their judgments.")],
    method: console.MethodName = "bm25",
    measure: Annotated[str, typer.Option("--measure", "-m", help="What to maximise.")] = "nDCG@10",
    field: console.TopicField = "title",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Tune k1 and b, mu, or RM3's parameters on dev queries."""
    from glassrank.corpus import read_qrels, read_queries
    from glassrank.index import Index, method_name, parse_method
    from glassrank.research.evaluate.tune import find_best, find_edge_parameters, make_grid
    from glassrank.research.evaluate.tune import tune as try_all

    start = parse_method(method)
    asked, judgments = read_queries(queries, field), read_qrels(qrels)
    trials = try_all(Index(index), asked, judgments, start, measure)
    done = list(console.track(trials, "Trying", total=len(make_grid(start)), quiet=quiet))
    chosen = find_best(done)
    edge = find_edge_parameters(chosen.method)
    if edge:
        console.say(
            f"the best {' and '.join(edge)} is at the edge of the grid; values beyond it may be "
            "better: try them with --method",
            quiet=quiet,
        )
    if json:
        report = {
            "measure": measure,
            "best": {"method": method_name(chosen.method), "value": chosen.value},
            "on_the_edge": edge,
            "trials": [{"method": method_name(t.method), "value": t.value} for t in done],
        }
        console.print_json(report)
        return
    table = Table("method", box=None, pad_edge=False)
    table.add_column(measure, justify="right")
    for trial in sorted(done, key=lambda trial: -trial.value)[:10]:
        table.add_row(method_name(trial.method), f"{trial.value:.4f}")
    console.out.print(table)
    console.out.print(
        f"\nBest of {len(done)}: [bold]--method '{method_name(chosen.method)}'[/]  "
        f"{measure} {chosen.value:.4f}, as given {done[0].value:.4f}",
        soft_wrap=True,
    )
