"""Domain adaptation: a trained model goes on with the few queries of other texts, fold by fold.

L. Gao, Z. Dai, J. Callan, EMNLP 2020, section 5: all of the model is fine-tuned, or only MORES'
interaction, or only its representation; each query is tested by a model that has not seen it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.gpu import get_device
from glassrank.errors import InputError
from glassrank.models import Ranker
from glassrank.research.evaluate import Evaluation, evaluate
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.build import build_model
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.experiment import FIRST_STAGE
from glassrank.research.train.loop import train, validation_precision
from glassrank.research.train.prepared import Prepared, of_fold, queries_by_fold
from glassrank.research.train.validate import both_runs, score_candidates
from glassrank.types import Run

Mode = Literal["none", "all", "interaction", "representation"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Adapted:
    """All queries, each scored by the model of its fold."""

    first_stage: Evaluation
    modes: dict[Mode, Evaluation]
    runs: dict[str, Run] = field(default_factory=dict)
    """Those of the modes and the first stage's, with the ids of the collection; none where arrays
    were prepared without ids."""


def adapt(
    config: TrainConfig,
    prepared: Prepared,
    out: Path,
    device: str = "cpu",
    modes: Sequence[Mode] = MODES,
    measures: Sequence[str] = ("nDCG@10", "RR@10", "AP"),
    say: Say = lambda _: None,
    base: Path = Path(),
) -> Adapted:
    """`none` is the model as it was. Models go to `out`/MODE/FOLD; what is there already, from a
    call that was stopped, is not trained again."""
    tested = queries_by_fold(prepared)
    if config.start.model is None or not tested:
        raise InputError(
            "to adapt takes a trained model and folds: set start.model, add [folds], and prepare"
        )
    queries = np.arange(len(prepared.train.queries))
    first_stage: Evaluation | None = None
    adapted: dict[Mode, Evaluation] = {}
    runs: dict[str, Run] = {}
    for mode in modes:
        scores = np.zeros(len(prepared.train.grades), np.float32)
        for fold, fold_queries in enumerate(tested):
            say(f"{mode}, fold {fold + 1} of {len(tested)}")
            model = _model_of_fold(config, prepared, fold, mode, out, device, say, base)
            places = np.isin(prepared.train.docs.row_ids, fold_queries)
            scores[places] = _scored(config, prepared, model, fold_queries, device)
        first_run, second_run, qrels = both_runs(prepared.train, queries, scores)
        first_stage = first_stage or evaluate(first_run, qrels, measures)
        adapted[mode] = evaluate(second_run, qrels, measures)
        if prepared.ids is not None:
            runs |= {
                FIRST_STAGE: prepared.ids.named(first_run),
                mode: prepared.ids.named(second_run),
            }
        figures = ", ".join(f"{name} {mean:.4f}" for name, mean in adapted[mode].mean.items())
        say(f"{mode}: {figures}")
    if first_stage is None:
        raise InputError("name one way or more to adapt")
    return Adapted(first_stage, adapted, runs)


def _model_of_fold(
    config: TrainConfig,
    prepared: Prepared,
    fold: int,
    mode: Mode,
    out: Path,
    device: str,
    say: Say,
    base: Path,
) -> Ranker:
    if mode == "none":
        return build_model(config, prepared, base)
    split = replace(of_fold(prepared, fold), test=None)  # all modes are tested together
    wanted = replace(config, start=replace(config.start, parts=mode))
    return train(wanted, split, out / mode / str(fold), device, say, base=base).model


def _scored(
    config: TrainConfig,
    prepared: Prepared,
    model: Ranker,
    queries: NDArray[np.int64],
    device: str,
) -> NDArray[np.float32]:
    target = get_device(device)
    docs = Tokens.of(prepared.docs, config.doc_length, target)
    data = SplitTensors.of(prepared.train, docs, config.query_length, target)
    precision = validation_precision(config, model)
    return score_candidates(model.to(target), data, queries, precision)
