"""Validation on dev queries: quality by re-ranking depth, the best depth, and calibration."""

from dataclasses import dataclass, replace
from itertools import compress
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models import Ranker
from glassrank.models.io.model_folder import Usage
from glassrank.models.model import aggregate_passages
from glassrank.progress import say_progress
from glassrank.research.evaluate import DepthCurve, evaluate, evaluate_at_depths
from glassrank.research.train.batches import SplitTensors
from glassrank.research.train.config import Say
from glassrank.research.train.fit_calibration import (
    JudgedScores,
    concatenate,
    fit,
    measure_quality,
    weigh_ranks,
)
from glassrank.research.train.prepared import Split
from glassrank.research.train.step import autocast, score_interaction
from glassrank.types import Qrels, Run

_BATCH_PAIRS, _BATCH_LENGTH = 512, 200
"""Pairs in a batch for documents of this length; the memory of attention grows with its square."""
_SHALLOWEST = 5  # the smallest depth at which the TK authors' code compares steps


@dataclass(frozen=True)
class Validation:
    """A measure on dev queries at the best depth, and of the first stage."""

    value: float
    depth: int
    at_all: float
    """With all candidates re-ranked."""
    first_stage: float
    compared: float = 0.0
    """The value by which steps are compared: see `ValidationConfig.depth`."""
    test: float | None = None
    """On test queries, at that depth."""
    test_first_stage: float | None = None


@torch.no_grad()
def score_candidates(
    model: Ranker,
    data: SplitTensors,
    queries: NDArray[np.int64],
    precision: str = "float32",
    say: Say = lambda _: None,
) -> NDArray[np.float32]:
    """Scores of all candidates of these queries, in their order, aggregated over passages."""
    split = data.split
    owner = split.docs.row_ids
    places = np.flatnonzero(np.isin(owner, queries))
    texts, candidates = split.docs.values[places].astype(np.int64), np.arange(len(places))
    if split.passages is not None:
        texts, candidates = split.passages.expand(texts)
    # Sorted by length: little padding. Stable, so that results do not depend on the batch.
    order = np.argsort(data.docs.lengths[texts], kind="stable")
    scores = np.zeros(len(texts), np.float32)
    device, was_training = data.first_stage.device, model.training
    model.eval()
    longest = data.docs.lengths.max(initial=1)
    at_once = max(1, int(_BATCH_PAIRS * min(1.0, (_BATCH_LENGTH / longest) ** 2)))
    starts = range(0, len(order), at_once)
    for start in say_progress(starts, "pairs scored", len(order), say, at_once=at_once):
        part = order[start : start + at_once]
        at = places[candidates[part]]
        needed, which = np.unique(owner[at], return_inverse=True)
        with autocast(precision, device):
            query = model.encode_query(data.queries.batch(needed))  # each query once
            doc = model.encode_doc(data.docs.batch(texts[part]))
        first_stage = data.first_stage[torch.from_numpy(at).to(device)]
        each = query.rows(torch.from_numpy(which).to(device))
        scored = score_interaction(model, each, doc, first_stage, precision)
        scores[part] = scored.float().cpu().numpy()
    model.train(was_training)
    if split.passages is None:
        return scores
    weight = model.first_stage_weight
    shares = split.first_stage[places] * np.float32(0 if weight is None else weight.item())
    best, first = split.passages.best, split.passages.first
    return aggregate_passages(scores, candidates, shares, best, first).scores


def validate(
    model: Ranker,
    data: SplitTensors,
    measure: str,
    most_queries: int | None = None,
    precision: str = "float32",
    compared_at: Literal["all", "best"] = "all",
) -> Validation:
    """Score once, evaluate at every depth."""
    curve, first_stage = quality_by_depth(model, data, measure, most_queries, precision)
    depth, at_all = curve.best_depth, float(curve.mean[-1])
    deep = float(curve.mean[_SHALLOWEST - 1 :].max(initial=at_all))
    compared = deep if compared_at == "best" else at_all
    return Validation(curve.at(depth), depth, at_all, first_stage, compared)


def quality_by_depth(
    model: Ranker,
    data: SplitTensors,
    measure: str,
    most_queries: int | None = None,
    precision: str = "float32",
) -> tuple[DepthCurve, float]:
    """The measure at every depth, and of the first stage."""
    queries = np.arange(len(data.split.queries))[:most_queries]
    scores = score_candidates(model, data, queries, precision)
    return measure_by_depth(data.split, queries, scores, measure)


def measure_by_depth(
    split: Split, queries: NDArray[np.int64], scores: NDArray[np.floating], measure: str
) -> tuple[DepthCurve, float]:
    """The same for given scores, in the order of `score_candidates`."""
    first_run, second_run, qrels = make_runs(split, queries, scores)
    curve = evaluate_at_depths(first_run, second_run, qrels, [measure], split.depths)[measure]
    return curve, evaluate(first_run, qrels, [measure]).mean[measure]


def make_runs(
    split: Split, queries: NDArray[np.int64], scores: NDArray[np.floating]
) -> tuple[Run, Run, Qrels]:
    """Runs of the first stage and of these scores over what it found, and the judgments."""
    first, second = [], []
    qrels: Qrels = {}
    at = 0
    for query in queries.tolist():
        rows = slice(*split.docs.offsets[query : query + 2])
        docs = list(map(str, split.docs.values[rows].tolist()))
        ranks, mine = split.ranks[rows], scores[at : at + len(docs)]
        at += len(docs)
        retrieved = ranks > 0  # without judged documents that it missed
        listed = list(compress(docs, retrieved.tolist()))
        first.append((str(query), listed, -ranks[retrieved].astype(float)))
        second.append((str(query), listed, mine[retrieved].astype(float)))
        judged = zip(docs, split.grades[rows].tolist(), strict=True)
        qrels[str(query)] = {doc: grade for doc, grade in judged if grade >= 0}
    return Run.from_rows(first), Run.from_rows(second), qrels


_MOST_QUERIES = 1000


def add_calibration(
    usage: Usage, model: Ranker, dev: SplitTensors, precision: str = "float32"
) -> tuple[Usage, str]:
    """Fit a calibration on every other dev query. Returns the usage with it, and a paragraph for
    the model card with its quality on the other queries; empty if it cannot be fitted."""
    queries = np.arange(len(dev.split.queries))[:_MOST_QUERIES]
    scores = score_candidates(model, dev, queries, precision).astype(np.float64)
    weight = model.first_stage_weight
    if weight is not None:
        scores -= weight.item() * dev.first_stage.cpu().numpy()[: len(scores)].astype(np.float64)
    split, lists = dev.split, []
    for query in queries.tolist():
        rows = slice(*split.docs.offsets[query : query + 2])
        listed = split.ranks[rows] > 0
        if listed.any():
            relevant = split.grades[rows][listed] > 0
            weights = weigh_ranks(split.ranks[rows][listed])
            lists.append(JudgedScores(scores[rows][listed], relevant, weights))
    if len(lists) < 2:
        return usage, ""
    fitted_on, measured_on = concatenate(lists[::2]), concatenate(lists[1::2])
    calibration = fit(fitted_on)
    if calibration is None:
        return usage, ""
    measured = measure_quality(calibration.probabilities(measured_on.scores), measured_on)
    return replace(usage, calibration=calibration), (
        "\n## Probabilities\n\nFitted on every other dev query, measured on the first ten and the "
        f"first hundred candidates of the {len(lists) // 2:,} between: Brier score "
        f"{measured.brier:.4f}, {measured.brier_of_mean:.4f} of their mean; calibration error "
        f"{measured.error:.4f}. Unjudged documents count as not relevant, so true probabilities "
        "are rather higher.\n"
    )
