"""`glassrank tune`: the first stage's parameters, chosen on dev queries."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from glassrank.cli import console


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
    """Choose k1 and b, mu, or RM3's parameters."""
    from glassrank.corpus import read_qrels, read_queries
    from glassrank.measure.tune import best, candidates, on_the_edge
    from glassrank.measure.tune import tune as try_all
    from glassrank.retrieve import Index, method_name, parse_method

    start = parse_method(method)
    asked, judgments = read_queries(queries, field), read_qrels(qrels)
    trials = try_all(Index(index), asked, judgments, start, measure)
    total = len(candidates(start))
    done = list(console.track(trials, "Trying", total=total, quiet=quiet))
    chosen = best(done)
    edge = on_the_edge(chosen.method)
    if edge:
        console.say(
            f"the best {' and '.join(edge)} lies on the edge of what was tried, so that there may "
            "be better ones beyond; try them with --method",
            quiet=quiet,
        )
    if json:
        console.print_json(
            {
                "measure": measure,
                "best": {"method": method_name(chosen.method), "value": chosen.value},
                "on_the_edge": edge,
                "trials": [{"method": method_name(t.method), "value": t.value} for t in done],
            }
        )
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
