"""Domain adaptation: fine-tune a checkpoint on the queries of another collection, in folds.

L. Gao, Z. Dai, J. Callan, EMNLP 2020, section 5: fine-tune all of a model, or only MORES'
interaction, or only its representation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from glassrank.errors import InputError
from glassrank.research.evaluate import Evaluation, evaluate
from glassrank.research.train.batches import SplitTensors
from glassrank.research.train.build import build_model
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.experiment import FIRST_STAGE
from glassrank.research.train.loop import train, validation_precision
from glassrank.research.train.prepared import Prepared, make_fold, queries_by_fold
from glassrank.research.train.validate import make_runs, score_candidates
from glassrank.types import Run

Mode = Literal["none", "all", "interaction", "representation"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class AdaptationResult:
    """Evaluations of all queries, each scored by the model of its fold."""

    first_stage: Evaluation
    modes: dict[Mode, Evaluation]
    runs: dict[str, Run] = field(default_factory=dict)
    """Runs of the modes and of the first stage; empty if the arrays have no ids."""


def adapt(
    config: TrainConfig,
    prepared: Prepared,
    out: Path,
    device: str = "cpu",
    modes: Sequence[Mode] = MODES,
    measures: Sequence[str] = ("nDCG@10", "RR@10", "AP"),
    say: Say = lambda _: None,
    base: Path = Path(),
) -> AdaptationResult:
    """Mode `none` is the checkpoint itself. Models go to `out`/MODE/FOLD; a finished one is not
    trained again."""
    tested = queries_by_fold(prepared)
    if config.start.model is None or not tested:
        raise InputError(
            "adapt needs a checkpoint and folds: set start.model, add [folds], and prepare again"
        )
    data = SplitTensors.read(prepared.train, prepared.docs, config.lengths, device)
    queries = np.arange(len(prepared.train.queries))
    first_stage: Evaluation | None = None
    adapted: dict[Mode, Evaluation] = {}
    runs: dict[str, Run] = {}
    for mode in modes:
        scores = np.zeros(len(prepared.train.grades), np.float32)
        for fold, fold_queries in enumerate(tested):
            say(f"{mode}, fold {fold + 1} of {len(tested)}")
            if mode == "none":
                model = build_model(config, prepared, base).to(data.grades.device)
            else:
                # All modes are tested together.
                split = replace(make_fold(prepared, fold), test=None)
                wanted = replace(config, start=replace(config.start, parts=mode))
                folder = out / mode / str(fold)
                model = train(wanted, split, folder, device, say, base=base).model
            places = np.isin(prepared.train.docs.row_ids, fold_queries)
            precision = validation_precision(config, model)
            scores[places] = score_candidates(model, data, fold_queries, precision)
        first_run, second_run, qrels = make_runs(prepared.train, queries, scores)
        first_stage = first_stage or evaluate(first_run, qrels, measures)
        adapted[mode] = evaluate(second_run, qrels, measures)
        if prepared.ids is not None:
            runs[FIRST_STAGE] = prepared.ids.add_to(first_run)
            runs[mode] = prepared.ids.add_to(second_run)
        figures = ", ".join(f"{name} {mean:.4f}" for name, mean in adapted[mode].mean.items())
        say(f"{mode}: {figures}")
    if first_stage is None:
        raise InputError("name one way or more to adapt")
    return AdaptationResult(first_stage, adapted, runs)
