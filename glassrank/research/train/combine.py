"""Several trained models as one: an ensemble of those that are better together, or the mean of the
weights of runs that began alike.

S. Hofstätter, M. Zlabinger, A. Hanbury, "TU Wien @ TREC Deep Learning '19", run TUW19-p3: models go
by their own quality, best first, and each is kept if the mean of raw scores is better with it.

The mean of weights costs no more than one of them and is usually better than each (M. Wortsman et
al., "Model soups", ICML 2022), if they began with the same weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.backends.gpu import get_device
from glassrank.errors import InputError
from glassrank.models.io.load import load_model, load_named
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.ensemble import Ensemble, save_ensemble
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.config import Say
from glassrank.research.train.prepared import Prepared, Split
from glassrank.research.train.validate import best_depth, measure_by_depth, score_candidates

Quality = Callable[[NDArray[np.float64]], float]
"""How good scores (n,) are."""


@dataclass(frozen=True)
class Selection:
    """Which models are kept."""

    chosen: tuple[int, ...]
    """Numbers of the models, best first."""
    value: float
    """Of the mean of their scores."""
    alone: tuple[float, ...]
    """Of every model on its own."""


def select(scores: Sequence[NDArray[np.floating]], quality: Quality) -> Selection:
    """`scores` are one array (n,) for each model; one that only equals what is there stays out."""
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
    """Chooses among saved models on the dev queries and writes the ensemble's folder. Quality is
    that with all candidates re-ranked; the best depth is then kept as the ensemble's."""
    if not folders:
        raise InputError("an ensemble needs one model or more to choose from")
    queries = np.arange(len(prepared.dev.queries))

    def by_depth(scores: NDArray[np.float64]) -> dict[int, float]:
        return measure_by_depth(prepared.dev, queries, scores, measure)[0]

    usages: list[Usage] = []
    scores: list[NDArray[np.float32]] = []
    for folder in folders:  # one at a time: only one model is in memory
        saved = load_model(folder)
        if saved.vocabulary != prepared.words:
            raise InputError(f"{folder} has another vocabulary than the prepared arrays")
        data = _tensors(saved, prepared, prepared.dev, device)
        scores.append(score_candidates(saved.model.to(device), data, queries))
        usages.append(saved.usage)
    removed = {usage.remove_stop_words for usage in usages}
    if len(removed) > 1:
        raise InputError("some of the models remove stop words and others do not; name one kind")
    selection = select(scores, lambda mean: _at_all(by_depth(mean)))
    for number, folder in enumerate(folders):
        kept = "kept" if number in selection.chosen else "left out"
        say(f"{folder}: {measure} {selection.alone[number]:.4f} on dev queries, {kept}")
    mean = np.mean([scores[number].astype(np.float64) for number in selection.chosen], axis=0)
    at = by_depth(mean)
    usage = Usage(
        max(usages[number].query_length for number in selection.chosen),
        max(usages[number].doc_length for number in selection.chosen),
        best_depth(at),
        usages[selection.chosen[0]].first_stage,
        remove_stop_words=removed.pop(),
    )
    members = [folders[number] for number in selection.chosen]
    save_ensemble(out, members, usage, _card(folders, selection, measure, usage))
    say(
        f"{out}: an ensemble of {len(members)}, {measure} {selection.value:.4f} on dev queries, "
        f"{at[best_depth(at)]:.4f} at depth {best_depth(at)}"
    )
    if prepared.test is not None:  # looked at once, with the depth that dev chose
        value = _test_value(load_model(out), prepared, prepared.test, measure, device)
        say(f"on test queries {value:.4f}")
    return selection


def _at_all(by_depth: dict[int, float]) -> float:
    return by_depth[max(by_depth)]


def _tensors(saved: SavedModel, prepared: Prepared, split: Split, device: str) -> SplitTensors:
    """Texts as long as this model reads them."""
    target = get_device(device)
    docs = Tokens.of(prepared.docs, saved.usage.doc_length, target)
    return SplitTensors.of(split, docs, saved.usage.query_length, target)


def _test_value(
    saved: SavedModel, prepared: Prepared, split: Split, measure: str, device: str
) -> float:
    data = _tensors(saved, prepared, split, device)
    queries = np.arange(len(split.queries))
    scores = score_candidates(saved.model.to(device), data, queries)
    at, _ = measure_by_depth(split, queries, scores, measure)
    return at[min(saved.usage.depth or max(at), max(at))]


def _card(folders: Sequence[Path], selection: Selection, measure: str, usage: Usage) -> str:
    rows = [
        f"| {place} | {'/'.join(folders[number].parts[-2:])} | {selection.alone[number]:.4f} |"
        for place, number in enumerate(selection.chosen)
    ]
    return "\n".join(
        [
            "# ensemble",
            "",
            f"The mean of the raw scores of {len(rows)} of {len(folders)} models, chosen by greedy "
            f"forward selection: {measure} {selection.value:.4f} on dev queries, all candidates "
            f"re-ranked; used to a depth of {usage.depth}.",
            "",
            f"| member | model | {measure} alone |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def average(runs: Sequence[SavedModel]) -> SavedModel:
    """The first of them, with the mean of all weights."""
    first = runs[0]
    if any(run.model.name == Ensemble.info.name for run in runs):
        raise InputError("an ensemble has no weights of its own; take the mean of its members")
    for run in runs[1:]:
        alike = type(run.model) is type(first.model) and run.model.config == first.model.config
        if not alike or run.vocabulary != first.vocabulary:
            raise InputError("only models of one family, config and vocabulary have a mean")
    states = [run.model.state_dict() for run in runs]
    with torch.no_grad():
        for name, weights in first.model.state_dict().items():
            if weights.is_floating_point():
                weights.copy_(torch.stack([state[name] for state in states]).mean(0))
    return first


def average_models(
    models: Sequence[str], out: Path, vectors: str = "float32", layers: str = "float32"
) -> None:
    """The mean of models by name, as a folder; `vectors` and `layers` as in `save_model`."""
    mean = average([load_named(name) for name in models])
    card = f"The mean of the weights of {', '.join(models)}.\n"
    save_model(out, mean.model, mean.usage, mean.vocabulary, card, vectors, layers)
