"""Probabilities of relevance: a trained model's scores, calibrated on its dev queries."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassrank.models import Ranker
from glassrank.models.calibration import JudgedScores, Quality, calibrate
from glassrank.models.checkpoint import Usage
from glassrank.train.batches import SplitTensors
from glassrank.train.validate import score_candidates

_MOST_QUERIES = 1000


def with_calibration(
    usage: Usage, model: Ranker, dev: SplitTensors, precision: str = "float32"
) -> tuple[Usage, str]:
    """How the model is used, with its calibrations; and a paragraph for its card, empty where dev
    queries are too few, or scores do not tell what is relevant."""
    queries = np.arange(len(dev.split.queries))[:_MOST_QUERIES]
    scores = score_candidates(model, dev, queries, precision).astype(np.float64)
    fitted = calibrate(judged(dev, queries, scores))
    if fitted is None:
        return usage, ""
    usage = replace(usage, calibration=fitted[0])
    told = {"With the first stage's candidates": fitted[1]}
    weight = model.first_stage_weight
    if weight is not None:
        first_stage = dev.first_stage.cpu().numpy()[: len(scores)].astype(np.float64)
        texts = calibrate(judged(dev, queries, scores - weight.item() * first_stage), drawn=True)
        if texts is not None:
            usage = replace(usage, texts_calibration=texts[0])
            told["With texts alone"] = texts[1]
    return usage, card_paragraph(told)


def judged(
    dev: SplitTensors, queries: NDArray[np.int64], scores: NDArray[np.float64]
) -> list[JudgedScores]:
    """What the first stage lists, best first, of the first queries. What nobody judged counts as
    not relevant."""
    split = dev.split
    lists = []
    for query in queries.tolist():
        begin, end = split.docs.offsets[query : query + 2]
        ranks = split.ranks[begin:end]
        order = np.argsort(ranks, kind="stable")
        places = begin + order[ranks[order] > 0]
        lists.append(JudgedScores(scores[places], split.grades[places] > 0))
    return lists


def card_paragraph(told: dict[str, Quality]) -> str:
    """What a model's card says of its probabilities."""
    lines = [
        f"{name}: Brier score {quality.brier:.4f}, {quality.brier_of_mean:.4f} of their mean; "
        f"calibration error {quality.error:.4f}, on {quality.lists:,} lists."
        for name, quality in told.items()
    ]
    fitted = "Fitted on every other dev query, measured on those between."
    return "\n".join(["", "## Probabilities", "", fitted, *lines, ""])
