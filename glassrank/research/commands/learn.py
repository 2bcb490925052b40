"""`glassrank learn`: a model learns a collection."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from glassrank import console


def learn(
    index: Annotated[Path, typer.Argument(help="The index folder, with the model's store.")],
    out: Annotated[Path, typer.Option(help="The new model's folder.")],
    queries: Annotated[
        Path | None,
        typer.Option(
            help="A log of queries and clicks, learned by PyTorch; else queries are made of "
            "documents."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The model to begin from.")] = "default",
    minutes: Annotated[float, typer.Option(min=0.01, help="About how long it may take.")] = 30.0,
    layers: Annotated[
        int | None,
        typer.Option(
            min=1, help="With clicks, so many of the last layers learn: 2 on a CPU, all on a GPU."
        ),
    ] = None,
    device: console.Device = "cpu",
    html: Annotated[Path | None, typer.Option(help="The report as an HTML page.")] = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Learn a collection, from its documents or from clicks; writes nothing that does not help."""
    from glassrank.errors import InputError, sanitize
    from glassrank.index import Index
    from glassrank.models.io.model_folder import MODEL_FILES
    from glassrank.rerank import Reranker
    from glassrank.research.learn.learn import Learner
    from glassrank.research.learn.logs import read_log
    from glassrank.research.learn.outcome_report import describe, render
    from glassrank.storage.atomic_folders import check_replaceable
    from glassrank.storage.files import atomic_write

    if queries is None and (layers is not None or device != "cpu"):
        raise InputError("--layers and --device are for learning from clicks; give --queries")
    console.check_writable(html)
    check_replaceable(out, "model", MODEL_FILES)
    log = None if queries is None else read_log(queries)
    opened, reranker = Index(index), Reranker.load(model)
    say = partial(console.say, quiet=quiet)
    learner = Learner(opened, reranker, say, layers=layers, device=device)
    outcome = learner.learn(60 * minutes, log)
    for reason, count in () if log is None else log.skipped.items():
        if count:
            console.say(f"{queries}: left out {count:,} ({reason})", quiet=quiet)
    report = sanitize(describe(outcome, opened.snapshot.doc))
    if outcome.helps:
        learner.save(out, outcome, report)
    if html is not None:
        with atomic_write(html) as file:
            file.write(render(outcome, opened.snapshot.doc))
    if json:
        fields = ("share", "queries", "held_out", "before", "after", "interval", "helps")
        console.print_json({name: getattr(outcome, name) for name in fields})
        return
    console.out.print(report, markup=False, highlight=False, soft_wrap=True)
    if outcome.helps:
        console.say(f"{out} is written; next: glassrank encode {index} --model {out}", quiet=quiet)
