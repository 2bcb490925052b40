"""`glassrank prepare`, `train`, `adapt`, `select`, `average` and `push`: train models."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from glassrank import console
from glassrank.errors import InputError, wrap_os_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glassrank.research.evaluate import Comparison, Evaluation


_ALPHA = 0.05


def prepare(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.")],
    device: Annotated[str, typer.Option(help="Device of a teacher: cpu or cuda.")] = "cpu",
    quiet: console.Quiet = False,
) -> None:
    """Prepare the arrays of a training run."""
    from glassrank.research.train.config_files import read_config
    from glassrank.research.train.prepare import prepare as prepare_arrays
    from glassrank.research.train.prepared_folders import save_prepared
    from glassrank.research.train.training_texts import read_collections

    say = partial(console.say, quiet=quiet)
    run = read_config(config)
    texts = read_collections(run, config.parent, say)
    prepared = prepare_arrays(run, texts, config.parent, say, device)
    out = config.parent / run.prepared
    save_prepared(out, prepared)
    say(
        f"{out}: {prepared.doc_count:,} documents, {len(prepared.train.queries):,} training and "
        f"{len(prepared.dev.queries):,} dev queries, {len(prepared.words):,} words"
    )


def train(
    config: Annotated[Path | None, typer.Argument(help="The run's TOML file.")] = None,
    device: console.Device = "cpu",
    example: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Only print an example TOML file."),
    ] = None,
    curves: Annotated[
        bool, typer.Option("--curves", help="Only draw the run's curves so far.")
    ] = False,
    log: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard or wandb; repeatable."),
    ] = None,
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Train a model; run it again to resume."""
    if example is not None:
        from glassrank.research.train.config_files import make_example

        sys.stdout.write(make_example(example))
        return
    if config is None:
        raise InputError(
            "give the run's TOML file; for an example: glassrank train --example tk > run.toml"
        )
    from glassrank.research.train.config_files import read_config

    run = read_config(config)
    out = config.parent / run.out
    if curves:
        from glassrank.research.train.report import draw_curves

        console.say(f"curves in {draw_curves(out, run.validation.measure)}", quiet=quiet)
        return
    from glassrank.research.train.loop import train as run_training
    from glassrank.research.train.prepared_folders import load_prepared
    from glassrank.research.train.report import open_trackers

    prepared = load_prepared(config.parent / run.prepared, run)
    say = partial(console.say, quiet=quiet)
    with open_trackers(log or [], out, run) as track:
        trained = run_training(run, prepared, out, device, say, base=config.parent, track=track)
    if json:
        console.print_json({"model": str(out / "best"), **asdict(trained.final)})
    else:
        console.say(f"{out / 'best'}: the trained model", quiet=quiet)


def adapt(
    config: Annotated[
        Path, typer.Argument(help="The run's TOML file, with start.model and folds.")
    ],
    mode: Annotated[
        list[str] | None,
        typer.Option(help="none, all, interaction or representation; repeatable."),
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", "-m", help="Repeatable.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The baseline: a mode, or 'first stage'; default: all."),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Write the TREC runs of the first stage and each mode here.")
    ] = None,
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Fine-tune a model on another collection, by cross-validation."""
    from glassrank.corpus import write_run
    from glassrank.research.evaluate import compare_all
    from glassrank.research.train.adapt import MODES, Mode
    from glassrank.research.train.adapt import adapt as run
    from glassrank.research.train.config_files import find_model_class, read_config
    from glassrank.research.train.experiment import FIRST_STAGE
    from glassrank.research.train.prepared_folders import load_prepared

    plan = read_config(config)
    usual = MODES if find_model_class(plan).info.is_modular else MODES[:2]
    modes: list[Mode] = []
    for name in mode or usual:
        if name not in MODES:
            raise InputError(f"unknown mode {name!r}; expected {', '.join(MODES)}")
        modes.append(name)
    if baseline is None and "all" in modes:
        baseline = "all"
    if baseline not in (None, FIRST_STAGE, *modes):
        known = ", ".join([FIRST_STAGE, *modes])
        raise InputError(f"unknown baseline {baseline!r}; expected {known}")
    arrays = load_prepared(config.parent / plan.prepared, plan)
    if runs is not None and arrays.ids is None:
        raise InputError("--runs needs arrays with ids; prepare them again, from one collection")
    if runs is not None:  # before hours of training
        with wrap_os_errors(f"write to {runs}"):
            runs.mkdir(parents=True, exist_ok=True)
    say = partial(console.say, quiet=quiet)
    measures = measure or ("nDCG@10", "RR@10", "AP")
    out = config.parent / plan.out
    adapted = run(plan, arrays, out, device, modes, measures, say, config.parent)
    if runs is not None:
        for name, ranked in adapted.runs.items():
            tag = name.replace(" ", "-")
            write_run(ranked, runs / f"{tag}.run", tag)
    rows: dict[str, Evaluation] = {FIRST_STAGE: adapted.first_stage}
    rows.update({str(name): row for name, row in adapted.modes.items()})
    others = {name: row for name, row in rows.items() if name != baseline}
    compared = [] if baseline is None else compare_all(others, rows[baseline])
    if json:
        console.print_json(_plain(rows, baseline, compared))
    else:
        _print_table(rows, baseline, compared)


def _plain(
    rows: "Mapping[str, Evaluation]", baseline: str | None, compared: "Sequence[Comparison]"
) -> dict[str, object]:
    return {
        name: {
            "mean": row.mean,
            "per_query": {m: v.tolist() for m, v in row.per_query.items()},
            "comparisons": [
                {
                    "measure": comparison.measure,
                    "baseline": baseline,
                    "p": comparison.p_value,
                    "p_corrected": comparison.corrected_p,
                }
                for comparison in compared
                if comparison.system_name == name
            ],
        }
        for name, row in rows.items()
    }


def _print_table(
    rows: "Mapping[str, Evaluation]", baseline: str | None, compared: "Sequence[Comparison]"
) -> None:
    marks = {}
    for comparison in compared:
        claims = zip("†*", comparison.non_inferiority, strict=True)
        not_worse = "".join(sign for sign, claim in claims if claim.holds)[:1]
        differs = "‡" if comparison.corrected_p < _ALPHA else ""
        marks[comparison.system_name, comparison.measure] = not_worse + differs
    names = list(next(iter(rows.values())).mean)
    table = Table("", *names, box=None, pad_edge=False)
    for name, row in rows.items():
        table.add_row(name, *(f"{row.mean[m]:.4f}{marks.get((name, m), '')}" for m in names))
    console.out.print(table)
    if baseline is not None:
        what = "adapting all" if baseline == "all" else baseline
        console.out.print(
            f"Non-inferior to {what}: † at a margin of 2%, * at 5% (p < {_ALPHA}). ‡ differs from "
            f"it: p < {_ALPHA} in a paired t-test, Holm's correction for {len(compared)} "
            "comparisons."
        )


def select(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model folders.")],
    prepared: Annotated[Path, typer.Option(help="The prepared arrays, with dev queries.")],
    out: Annotated[Path, typer.Option(help="The ensemble's folder.")],
    measure: Annotated[str, typer.Option("--measure", "-m", help="What to maximise.")] = "RR@10",
    device: console.Device = "cpu",
    quiet: console.Quiet = False,
    json: console.AsJson = False,
) -> None:
    """Select an ensemble of models, greedily on dev queries."""
    from glassrank.research.train.combine import select_models
    from glassrank.research.train.prepared_folders import load_prepared

    say = partial(console.say, quiet=quiet)
    selection = select_models(models, load_prepared(prepared), out, measure, device, say)
    if json:
        report = {
            "model": str(out),
            "measure": measure,
            "value": selection.value,
            "members": [str(models[number]) for number in selection.chosen],
            "alone": dict(zip(map(str, models), selection.alone, strict=True)),
        }
        console.print_json(report)


def average(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Model folders.")],
    out: Annotated[Path, typer.Option(help="The new model's folder.")],
    vectors: Annotated[
        str, typer.Option(help="dtype of token vectors: float32, float16 or int8.")
    ] = "float32",
    layers: Annotated[str, typer.Option(help="dtype of layers; int8 is fastest.")] = "float32",
    quiet: console.Quiet = False,
) -> None:
    """Average the weights of several runs with the same start."""
    from glassrank.research.train.combine import average_models

    average_models(models, out, vectors, layers)
    console.say(f"{out}: the mean of {len(models)}", quiet=quiet)


def push(
    model: Annotated[str, typer.Argument(help="The model folder.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="The name on the hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="Create a private repository if it is new.")
    ] = False,
    quiet: console.Quiet = False,
) -> None:
    """Upload a model folder to the hub; `--model ORG/NAME` loads it."""
    from glassrank.models.hub import push as send
    from glassrank.models.io.load import load_for_inference
    from glassrank.models.io.model_folder import resolve_folder

    load_for_inference(Path(model))  # check that it loads
    folder, _ = resolve_folder(model)
    console.say(f"{folder}: sent, {send(folder, name, private=private)}", quiet=quiet)
