"""`glassrank evaluate`: measures of a run, alone or against a baseline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from glassrank.cli import console

if TYPE_CHECKING:
    from glassrank.measure import Comparison, Evaluation

_DEFAULT = ("RR@10", "nDCG@10", "R@1000", "AP")


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run in TREC's or MS MARCO's format.")],
    qrels: Annotated[str, typer.Argument(help="Judgments.")],
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="RR@10, nDCG@10, AP, P@20, R@100, ERR@20, …"),
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="A run to compare with.")] = None,
    test: Annotated[str, typer.Option(help="Significance: t or permutation.")] = "t",
    correction: Annotated[
        str, typer.Option(help="Over the measures: none, bonferroni, holm or bh.")
    ] = "holm",
    judged_only: Annotated[
        bool, typer.Option("--judged-only", help="Leave out documents nobody judged.")
    ] = False,
    per_query: Annotated[bool, typer.Option("--per-query", help="Every query's value.")] = False,
    json: console.AsJson = False,
) -> None:
    """Measure a run, and say whether it differs from a baseline."""
    from glassrank.corpus import read_qrels, read_run
    from glassrank.measure import compare
    from glassrank.measure import evaluate as measure_run

    judgments = read_qrels(qrels)
    measures = measure or list(_DEFAULT)
    evaluation = measure_run(read_run(run), judgments, measures, judged_only=judged_only)
    comparisons = None
    if baseline is not None:
        base = measure_run(read_run(baseline), judgments, measures, judged_only=judged_only)
        comparisons = compare(evaluation, base, test=test, correction=correction)  # type: ignore[arg-type]
    if json:
        console.print_json(_as_json(evaluation, comparisons, per_query=per_query))
        return
    if per_query:
        for number, query_id in enumerate(evaluation.query_ids):
            for name, values in evaluation.per_query.items():
                print(f"{query_id}\t{name}\t{values[number]:.4f}")
    table = _comparison_table(comparisons) if comparisons else _table(evaluation)
    console.out.print(table)
    console.out.print(f"[dim]{len(evaluation.query_ids):,} judged queries[/]")


def _table(evaluation: "Evaluation") -> Table:
    table = Table("measure", box=None, pad_edge=False)
    table.add_column("mean", justify="right")
    for name, value in evaluation.mean.items():
        table.add_row(name, f"{value:.4f}")
    return table


def _comparison_table(comparisons: "dict[str, Comparison]") -> Table:
    table = Table("measure", box=None, pad_edge=False)
    for column in ("run", "baseline", "difference", "p", "p corrected", "non-inferior at"):
        table.add_column(column, justify="right")
    for name, row in comparisons.items():
        margins = [f"{claim.margin:.0%}" for claim in row.non_inferiority if claim.holds]
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
    evaluation: "Evaluation", comparisons: "dict[str, Comparison] | None", *, per_query: bool
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
                    f"{claim.margin:.0%}": {"p": claim.p_value, "holds": claim.holds}
                    for claim in row.non_inferiority
                },
            }
            for name, row in comparisons.items()
        }
    return result
