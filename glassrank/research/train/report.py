"""Reports of a run: the model card, learning curves, TensorBoard and W&B."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassrank.errors import GlassrankError, InputError, needs_extra, wrap_os_errors
from glassrank.research.figures import save_figure
from glassrank.research.train.config import Say, TrainConfig
from glassrank.settings import to_plain
from glassrank.storage.checksummed_json import parse_json
from glassrank.storage.folders import Folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassrank.models import Ranker
    from glassrank.research.train.prepared import Prepared
    from glassrank.research.train.state import RunProgress
    from glassrank.research.train.validate import Validation


LOG = "log.jsonl"
_MOST_BYTES = 1 << 28
_LOSS, _MEASURE, _FIRST_STAGE = "#c2571a", "#1f5fa8", "#777777"


def _describe_start(config: TrainConfig, count: int, numbers: int) -> str:
    start = config.start
    if start.model is not None and start.bert is not None:
        return f"- Started from {start.model}, with the encoder of {start.bert}"
    if start.model is not None:
        return f"- Started from {start.model}; fine-tuned: {start.parts}"
    if start.bert is not None:
        return f"- Started from {start.bert}; interaction: {start.interaction}"
    trained = "trained" if config.vectors.train else "frozen"
    return (
        f"- Word vectors: {count:,} words, {numbers:,} numbers, from "
        f"{config.vectors.source}, {trained}"
    )


def make_card(
    config: TrainConfig,
    prepared: "Prepared",
    model: "Ranker",
    progress: "RunProgress",
    final: "Validation | None" = None,
) -> str:
    """The model card in Markdown: settings, training data and quality."""
    words = 0 if model.words is None else sum(p.numel() for p in model.words.parameters())
    rest = sum(p.numel() for p in model.parameters()) - words
    lines = [
        f"# {config.model}",
        "",
        f"Trained on {', '.join(c.name for c in config.collections)} "
        f"({len(prepared.train.queries):,} queries, {prepared.doc_count:,} documents) "
        f"for {progress.step:,} steps of {config.sampler.batch} queries.",
        "",
        f"- Loss: {config.loss.kind}; negatives: {config.sampler.negatives}, {config.sampler.kind}",
        _describe_start(config, len(prepared.words), words),
        f"- Other parameters: {rest:,}",
        f"- Teacher: {config.candidates.teacher or 'none'}",
        f"- Best at step {progress.best_step:,}: {config.validation.measure} {progress.best:.4f} "
        f"on up to {config.validation.queries:,} dev queries, "
        + ("re-ranking all" if config.validation.depth == "all" else "at the best depth from 5 on"),
    ]
    if prepared.passages is not None:
        best = prepared.passages.best
        lines.append(
            f"- Documents in {len(prepared.docs):,} passages: training draws one at random, with "
            "its document's grade; a document's score here is that of "
            + ("its best" if best == 1 else f"its best {best} together")
            + (f", {first:g} of it the first one's" if (first := prepared.passages.first) else "")
        )
    arrays = prepared.description.get("config", {}).get("seed", config.seed)
    if arrays != config.seed:  # several runs may share them
        lines.append(f"- Seed: {config.seed}; the arrays were prepared with seed {arrays}")
    if final is not None:
        lines.append(
            f"- On all dev queries: {final.value:.4f} re-ranking {final.depth}, {final.at_all:.4f} "
            f"re-ranking all; the first stage alone {final.first_stage:.4f}"
        )
        if final.test is not None:
            lines.append(
                f"- On test queries: {final.test:.4f} at that depth; the first stage "
                f"alone {final.test_first_stage:.4f}"
            )
    settings = json.dumps(to_plain(config), indent=2)
    return "\n".join([*lines, "", "```json", settings, "```", ""])


def read_log(path: Path) -> list[dict[str, Any]]:
    """One row for each validation; a killed run may leave a step twice, or half a line."""
    with wrap_os_errors(f"read {path}"):
        try:
            with Folder.open(path.parent) as folder:
                lines = folder.read(path.name, _MOST_BYTES).split(b"\n")
        except FileNotFoundError:
            raise InputError(
                f"{path} does not exist; the first validation of a run writes it"
            ) from None
    rows = {}
    for line in lines:
        try:
            row = parse_json(line)
            step = int(row["step"])
            drawn = {name: float(row[name]) for name in ("compared", "loss", "first_stage")}
            rows[step] = {"step": step, **drawn}
        except (ValueError, TypeError, KeyError, OverflowError):  # half a line, or a loss of NaN
            continue
    if not rows:
        raise InputError(f"{path} has no validation to draw")
    return [rows[step] for step in sorted(rows)]


def draw_curves(folder: Path, measure: str, picture: str = "curves.svg") -> Path:
    """Draw the curves of a run; the file name sets the format: svg, png or pdf."""
    with needs_extra("train", "a picture of curves"):
        import matplotlib  # noqa: F401
    rows = read_log(folder / LOG)
    save_figure(lambda: _figure(rows, measure), folder / picture)
    return folder / picture


def try_to_draw(folder: Path, measure: str, say: Say) -> None:
    """Draw, or say why not: a missing library must not fail a finished run."""
    try:
        say(f"curves in {draw_curves(folder, measure)}")
    except GlassrankError as error:
        say(f"no curves: {error}")


def _figure(rows: list[dict[str, Any]], measure: str) -> "Figure":
    from matplotlib.figure import Figure  # pyplot would need a display

    figure = Figure(figsize=(7, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    steps = [row["step"] for row in rows]
    values = [row["compared"] for row in rows]
    upper.plot(steps, [row["loss"] for row in rows], color=_LOSS, marker=".")
    upper.set_ylabel("loss")
    lower.plot(steps, values, color=_MEASURE, marker=".", label="re-ranked")
    # The first stage is the same in all rows.
    lower.axhline(
        rows[-1]["first_stage"], color=_FIRST_STAGE, linestyle="--", label="first stage alone"
    )
    best = max(range(len(rows)), key=lambda i: (values[i], -i))  # ties: the first
    name = f"best: {values[best]:.4f} at step {steps[best]:,}"
    lower.plot(steps[best], values[best], color=_MEASURE, marker="*", ms=13, ls="", label=name)
    lower.set_ylabel(f"{measure} on dev queries")
    lower.set_xlabel("steps")
    lower.legend(loc="lower right", frameon=False)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure


Track = Callable[[Mapping[str, float]], None]


@contextmanager
def open_trackers(names: Sequence[str], out: Path, config: TrainConfig) -> Iterator[Track]:
    """Open the named trackers; the result logs one validation to all."""
    with ExitStack() as stack:
        trackers = []
        for name in names:
            if name not in _TRACKERS:
                raise InputError(f"unknown tracker {name!r}; expected {' or '.join(_TRACKERS)}")
            trackers.append(stack.enter_context(_TRACKERS[name](out, config)))

        def track(row: Mapping[str, float]) -> None:
            for tracker in trackers:
                tracker(row)

        yield track


@contextmanager
def _tensorboard(out: Path, config: TrainConfig) -> Iterator[Track]:
    """Log to `out/tensorboard`; a resumed run adds a file."""
    with needs_extra("train", "--log tensorboard"):
        board: Any = import_module("torch.utils.tensorboard")
    writer = board.SummaryWriter(str(out / "tensorboard"))

    def track(row: Mapping[str, float]) -> None:
        for name, value in _select_values(row, config).items():
            writer.add_scalar(name, value, int(row["step"]))
        writer.flush()

    try:
        yield track
    finally:
        writer.close()


@contextmanager
def _wandb(out: Path, config: TrainConfig) -> Iterator[Track]:
    """Log to W&B, configured by its environment variables. A resumed run continues there."""
    with needs_extra("train", "--log wandb"):
        import wandb
    out.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project="glassrank",
        name=out.name,
        id=hashlib.blake2b(str(out.resolve()).encode(), digest_size=8).hexdigest(),
        resume="allow",
        dir=str(out),
        config=to_plain(config),
    )
    try:
        yield lambda row: run.log(_select_values(row, config), step=int(row["step"]))
    finally:
        run.finish()


_TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb}


def _select_values(row: Mapping[str, float], config: TrainConfig) -> dict[str, float]:
    """All values but the step, with the measure's name."""
    names = {"value": config.validation.measure}
    return {names.get(name, name): value for name, value in row.items() if name != "step"}
