"""Learns from documents or clicks, and keeps what helps on queries that it has not seen.

Held-out queries choose how far to go from the old weights to the new ones (M. Wortsman and others,
"Robust fine-tuning of zero-shot models", CVPR 2022), and decide: each half is measured where the
other half would go, so that none judges its own choice. The new weights are written only if all of
the 95% interval of the difference in nDCG@10, by bootstrap over these queries, lies above 0.

Of a click log, only what was shown is ranked to decide: a model that would show something else
loses no clicks by it. Queries count by their clicks' weights, which correct for position bias.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.calibration import Calibration
from glassrank.models.io.model_folder import Usage
from glassrank.models.late_interaction import KERNEL_BERT
from glassrank.rerank import Reranker
from glassrank.research.learn.examples import Example, ExampleMaker
from glassrank.research.learn.logs import Log
from glassrank.research.learn.whitening import Whitening

HELD_OUT, FEWEST = 1_000, 40
"""Queries that choose and decide, at most; and at least."""
_SHARES = (0.5, 0.75, 1.0)
_SHARES_OF_DOCS = (0.25, 0.5)
"""Made queries are easier than people's, so that they lead too far."""
_MOST_FROM_DOCS = 2_000
_MOST_WEIGHT = 2.0
"""Of a click to learn from: far down most clicks are noise. A click that decides has its whole
weight, or the old order would be preferred."""
_FOUND_AGAIN = 20
"""The rank up to which a made query's source counts as found."""
_RESAMPLES = 2_000
_MOST_CHANGES = 10


class Learned(Protocol):
    """New weights of a model, beside the old ones. A share of 0 is the old, 1 the new."""

    def score(self, example: Example, share: float) -> NDArray[np.float32]:
        """Scores (n,) of all candidates."""

    def save(self, folder: Path, share: float, usage: Usage, card: str) -> None:
        """Writes a model folder that appears whole or not at all."""


@dataclass(frozen=True)
class ChangedQuery:
    """The best hits of a held-out query before and after, by their numbers in the index."""

    text: str
    before: list[int]
    after: list[int]
    gain: float


@dataclass(frozen=True)
class Outcome:
    """What was learned, and whether it helps."""

    learned: Learned
    calibration: Calibration | None
    share: float
    queries: int
    """That were learned from."""
    held_out: int
    """That decided."""
    before: float
    """nDCG@10 of these; a query whose clicks weigh more counts more."""
    after: float
    interval: tuple[float, float]
    """Of the difference."""
    changes: list[ChangedQuery]
    """The queries whose first hits changed most."""

    @property
    def helps(self) -> bool:
        """Whether the interval is above 0."""
        return self.interval[0] > 0


class Learner:
    """Learns one model on one index."""

    def __init__(
        self,
        index: Index,
        reranker: Reranker,
        say: Callable[[str], None],
        *,
        layers: int | None = None,
        device: str = "cpu",
    ) -> None:
        """With clicks, so many of the last `layers` learn on the device."""
        model = reranker.model
        if model.info is not KERNEL_BERT or model.device is not None or not model.config.monotone:
            raise InputError(
                f"{reranker.name} is a {model.name}; expected a kernel_bert model on a CPU, such "
                "as default or fast"
            )
        self._index, self._reranker = index, reranker
        self._maker = ExampleMaker(index, reranker)
        self._layers, self._device = layers, device
        self._say = say

    def learn(
        self, seconds: float, log: Log | None = None, *, corrected: bool = True, seed: int = 0
    ) -> Outcome:
        """Takes about so many seconds."""
        ending = time.monotonic() + seconds
        if log is None:
            return self._learn_docs(ending - 0.5 * seconds, seed)
        if find_spec("torch") is None:
            raise InputError("learning from clicks needs PyTorch: pip install 'glassrank[torch]'")
        stored = Whitening(self._index, self._reranker)
        score = (lambda example: stored.score(example, 0.0)) if corrected else None
        examples = self._maker.from_log(log, score)
        return self._learn_clicks(examples, ending, seconds, seed)

    def _learn_docs(self, ending: float, seed: int) -> Outcome:
        learned = Whitening(self._index, self._reranker)
        examples = self._find_again(learned, ending, seed)
        held_out, rest = self._hold_out(examples, HELD_OUT, 2, seed, "more documents or minutes")
        learned.learn()
        return self._decide(held_out, learned, _SHARES_OF_DOCS, len(rest))

    def _learn_clicks(
        self, examples: list[Example], ending: float, seconds: float, seed: int
    ) -> Outcome:
        from glassrank.research.learn.encoder import EncoderLearner

        # One a second: what was shown for them is encoded several times, in a third of the time.
        most = max(FEWEST, min(HELD_OUT, int(seconds)))
        held_out, training = self._hold_out(examples, most, 4, seed, "a log with more clicks")
        training = [replace(e, gains=np.minimum(e.gains, _MOST_WEIGHT)) for e in training]
        learned = EncoderLearner(self._index, self._reranker, self._layers, self._device)
        learned.learn(training, ending - 0.35 * seconds, np.random.default_rng(seed), self._say)
        held_out = [example.choose(np.arange(example.shown)) for example in held_out]
        return self._decide(held_out, learned, _SHARES, len(training))

    def _hold_out(
        self, examples: list[Example], most: int, part: int, seed: int, remedy: str
    ) -> tuple[list[Example], list[Example]]:
        """At random at most `most` of them, and one of `part`; and all others."""
        if len(examples) < 2 * FEWEST:
            raise InputError(
                f"{len(examples)} queries can be learned from, expected {2 * FEWEST} or more; "
                f"give it {remedy}"
            )
        order = np.random.default_rng(seed).permutation(len(examples))
        examples = [examples[place] for place in order]
        count = min(most, max(FEWEST, len(examples) // part))
        self._say(f"{len(examples) - count:,} queries to learn from, {count} held out")
        return examples[:count], examples[count:]

    def _find_again(self, learned: Whitening, ending: float, seed: int) -> list[Example]:
        """Made queries whose source the model finds."""
        kept: list[Example] = []
        for example in islice(self._maker.from_docs(seed), _MOST_FROM_DOCS):
            scores = learned.score(example, 0.0)
            if (scores > scores[example.source]).sum() < _FOUND_AGAIN:
                kept.append(example)
            if time.monotonic() > ending:
                break
        return kept

    def _decide(
        self,
        held_out: Sequence[Example],
        learned: Learned,
        shares: Sequence[float],
        queries: int,
    ) -> Outcome:
        scores = {share: [learned.score(e, share) for e in held_out] for share in (0.0, *shares)}
        dcg = {share: _dcg(held_out, own) for share, own in scores.items()}

        def choose(which: NDArray[np.bool_]) -> float:
            return max(shares, key=lambda share: float(dcg[share][which].sum()))

        count = len(held_out)
        half, ideal = np.arange(count) % 2 == 0, _ideal_dcg(held_out)
        best = choose(np.ones(count, np.bool_))
        before, after = dcg[0.0], np.where(half, dcg[choose(~half)], dcg[choose(half)])
        resampled = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
        differences = (after - before)[resampled].sum(1) / ideal[resampled].sum(1)
        low, high = np.quantile(differences, [0.025, 0.975])
        return Outcome(
            learned,
            self._recalibrate(np.concatenate(scores[0.0]), np.concatenate(scores[best])),
            best,
            queries,
            count,
            float(before.sum() / ideal.sum()),
            float(after.sum() / ideal.sum()),
            (float(low), float(high)),
            _list_changes(held_out, scores[0.0], scores[best], (dcg[best] - before) / ideal),
        )

    def save(self, folder: Path, outcome: Outcome, report: str) -> None:
        """Writes the model of an outcome."""
        usage = replace(self._reranker.usage, calibration=outcome.calibration)
        card = f"# {folder.name}\n\n```text\n{report}\n```\n"
        outcome.learned.save(folder, outcome.share, usage, card)

    def _recalibrate(
        self, old: NDArray[np.floating], new: NDArray[np.floating]
    ) -> Calibration | None:
        """A calibration that gives new scores the probabilities of the old ones, on average."""
        calibration = self._reranker.usage.calibration
        if calibration is None:
            return None
        slope = old.std() / max(new.std(), 1e-9)
        shift = old.mean() - slope * new.mean()
        return Calibration(
            float(calibration.slope * slope), float(calibration.bias + calibration.slope * shift)
        )


_DISCOUNTS = 1 / np.log2(np.arange(2, 12))


def _dcg(
    examples: Sequence[Example], scores: Sequence[NDArray[np.floating]]
) -> NDArray[np.float64]:
    """DCG@10 of each example's candidates (n,)."""
    orders = [np.argsort(-own, kind="stable")[:10] for own in scores]
    ranked = [example.gains[order] for example, order in zip(examples, orders, strict=True)]
    return np.array([gains @ _DISCOUNTS[: len(gains)] for gains in ranked])


def _ideal_dcg(examples: Sequence[Example]) -> NDArray[np.float64]:
    return _dcg(examples, [example.gains for example in examples])


def _list_changes(
    examples: Sequence[Example],
    old: Sequence[NDArray[np.floating]],
    new: Sequence[NDArray[np.floating]],
    differences: NDArray[np.floating],
) -> list[ChangedQuery]:
    """Those whose nDCG changed most, for better or worse, and whose first three differ."""
    changes = []
    for place in np.argsort(-abs(differences), kind="stable").tolist():
        example = examples[place]
        before, after = (
            example.docs[np.argsort(-scores[place], kind="stable")[:3]].tolist()
            for scores in (old, new)
        )
        if before != after:
            changes.append(ChangedQuery(example.text, before, after, float(differences[place])))
    return changes[:_MOST_CHANGES]
