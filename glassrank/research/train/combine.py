"""Combine models: select an ensemble, or average the weights of runs with the same start.

Selection: S. Hofstätter, M. Zlabinger, A. Hanbury, "TU Wien @ TREC Deep Learning '19", run
TUW19-p3: in the order of their own quality, a model is kept if it improves the mean of raw scores.

Averages of weights cost as much as one model and are usually better than each (M. Wortsman et al.,
"Model soups", ICML 2022).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.models.io.load import load_model, load_named
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.evaluate import DepthCurve
from glassrank.research.papers.ensemble import Ensemble, save_ensemble
from glassrank.research.train.batches import SplitTensors
from glassrank.research.train.config import Say
from glassrank.research.train.prepared import Prepared, Split
from glassrank.research.train.validate import measure_by_depth, score_candidates


@dataclass(frozen=True)
class Selection:
    """The models that are kept."""

    chosen: tuple[int, ...]
    """Numbers of the models, best first."""
    value: float
    """Quality of the mean of their scores."""
    alone: tuple[float, ...]
    """Quality of each model."""


def select(
    scores: Sequence[NDArray[np.floating]], quality: Callable[[NDArray[np.float64]], float]
) -> Selection:
    """Greedy forward selection by the quality of scores (n,) of each model. Ties are left out."""
    alone = tuple(quality(model_scores.astype(np.float64)) for model_scores in scores)
    total = np.zeros(len(scores[0]))
    chosen: list[int] = []
    best = float("-inf")
    for number in sorted(range(len(scores)), key=lambda number: (-alone[number], number)):
        value = quality((total + scores[number]) / (len(chosen) + 1))
        if value > best:
            chosen.append(number)
            total += scores[number]
            best = value
    return Selection(tuple(chosen), best, alone)


def select_models(
    folders: Sequence[Path],
    prepared: Prepared,
    out: Path,
    measure: str = "RR@10",
    device: str = "cpu",
    say: Say = lambda _: None,
) -> Selection:
    """Select checkpoints on dev queries, and save the ensemble with its best depth."""
    if not folders:
        raise InputError("give one model or more")
    queries = np.arange(len(prepared.dev.queries))

    def by_depth(scores: NDArray[np.float64]) -> DepthCurve:
        return measure_by_depth(prepared.dev, queries, scores, measure)[0]

    usages: list[Usage] = []
    scores: list[NDArray[np.float32]] = []
    for folder in folders:  # one at a time: only one model is in memory
        saved = load_model(folder)
        if saved.vocabulary != prepared.words:
            raise InputError(
                f"{folder} has another vocabulary than the arrays; give its own arrays"
            )
        scores.append(_score(saved, prepared, prepared.dev, device))
        usages.append(saved.usage)
    removed = {usage.remove_stop_words for usage in usages}
    if len(removed) > 1:
        raise InputError("some models remove stop words and others do not; give models of one kind")
    selection = select(scores, lambda scores: float(by_depth(scores).mean[-1]))
    for number, folder in enumerate(folders):
        kept = "kept" if number in selection.chosen else "left out"
        say(f"{folder}: {measure} {selection.alone[number]:.4f} on dev queries, {kept}")
    mean = np.mean([scores[number].astype(np.float64) for number in selection.chosen], axis=0)
    curve = by_depth(mean)
    usage = Usage(
        max(usages[number].query_length for number in selection.chosen),
        max(usages[number].doc_length for number in selection.chosen),
        curve.best_depth,
        usages[selection.chosen[0]].first_stage,
        remove_stop_words=removed.pop(),
    )
    members = [folders[number] for number in selection.chosen]
    save_ensemble(out, members, usage, _make_card(folders, selection, measure, usage))
    say(
        f"{out}: an ensemble of {len(members)}, {measure} {selection.value:.4f} on dev queries, "
        f"{curve.at(curve.best_depth):.4f} at depth {curve.best_depth}"
    )
    if prepared.test is not None:  # once, with the depth chosen on dev queries
        test = prepared.test
        mean = _score(load_model(out), prepared, test, device)
        on_test, _ = measure_by_depth(test, np.arange(len(test.queries)), mean, measure)
        say(f"on test queries {on_test.at(usage.depth or test.depths[-1]):.4f}")
    return selection


def _score(saved: SavedModel, prepared: Prepared, split: Split, device: str) -> NDArray[np.float32]:
    lengths = saved.usage.query_length, saved.usage.doc_length
    data = SplitTensors.read(split, prepared.docs, lengths, device)
    return score_candidates(saved.model.to(device), data, np.arange(len(split.queries)))


def _make_card(folders: Sequence[Path], selection: Selection, measure: str, usage: Usage) -> str:
    rows = "".join(
        f"| {place} | {'/'.join(folders[number].parts[-2:])} | {selection.alone[number]:.4f} |\n"
        for place, number in enumerate(selection.chosen)
    )
    return (
        f"# ensemble\n\nThe mean of the raw scores of {len(selection.chosen)} of {len(folders)} "
        f"models, chosen by greedy forward selection: {measure} {selection.value:.4f} on dev "
        f"queries, all candidates re-ranked; used to a depth of {usage.depth}.\n\n"
        f"| member | model | {measure} alone |\n|---|---|---|\n{rows}"
    )


def average(runs: Sequence[SavedModel]) -> SavedModel:
    """The first model with the mean of all weights."""
    first = runs[0]
    if any(run.model.name == Ensemble.info.name for run in runs):
        raise InputError("an ensemble has no weights; average its members")
    for run in runs[1:]:
        alike = type(run.model) is type(first.model) and run.model.config == first.model.config
        if not alike or run.vocabulary != first.vocabulary:
            raise InputError(
                "models must have the same family, config and vocabulary to be averaged"
            )
    states = [run.model.state_dict() for run in runs]
    with torch.no_grad():
        for name, weights in first.model.state_dict().items():
            if weights.is_floating_point():
                weights.copy_(torch.stack([state[name] for state in states]).mean(0))
    return first


def average_models(
    models: Sequence[str], out: Path, vectors: str = "float32", layers: str = "float32"
) -> None:
    """Average models by name and save the result; `vectors` and `layers` as in `save_model`."""
    mean = average([load_named(name) for name in models])
    card = f"The mean of the weights of {', '.join(models)}.\n"
    save_model(out, mean.model, mean.usage, mean.vocabulary, card, vectors, layers)
