"""Learns on stored embeddings, from statistics and clicks, and keeps what helps on queries that it
has not seen.

Half of the held-out queries choose how far to go from the old weights to the new ones (M. Wortsman
and others, "Robust fine-tuning of zero-shot models", CVPR 2022). The other half decides: the new
weights help if all of the 95% interval of the mean difference in nDCG@10, by bootstrap over these
queries, lies above 0. Otherwise nothing is written.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import Kernels
from glassrank.embeddings import Store
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.calibration import Calibration
from glassrank.models.late_interaction import KERNEL_BERT
from glassrank.rerank import Reranker
from glassrank.research.learn.examples import ExampleMaker
from glassrank.research.learn.logs import Log
from glassrank.research.learn.stored_scores import (
    Example,
    Gradient,
    LearnedWeights,
    StoredDocs,
    loss_gradient,
    score,
    whiten,
)

HELD_OUT, FEWEST = 1_000, 40
"""Queries that choose and decide, at most; and at least."""
_SHARES = (0.25, 0.5, 0.75, 1.0)
_SHARES_OF_DOCS = (0.25, 0.5)
"""Made queries are easier than people's, so that they lead too far."""
_MOST_FROM_DOCS, _SHOWN, _OTHERS, _BATCH, _EPOCHS = 2_000, 10, 4, 16, 3
_RATE, _RATE_OF_WEIGHTS = 3e-4, 3e-3
_FOUND_AGAIN = 20
"""The rank up to which a made query's source counts as found."""
_RESAMPLES = 2_000
_MOST_CHANGES = 10


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

    weights: LearnedWeights
    calibration: Calibration | None
    share: float
    queries: int
    """That were learned from."""
    held_out: int
    """That decided."""
    before: float
    """nDCG@10 of these."""
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

    def __init__(self, index: Index, reranker: Reranker, say: Callable[[str], None]) -> None:
        model = reranker.model
        if model.info is not KERNEL_BERT or model.device is not None or not model.config.monotone:
            raise InputError(
                f"{reranker.name} is a {model.name}; expected a kernel_bert model on a CPU, such "
                "as default or fast"
            )
        store = Store.find(index, model, verify=False)
        if store is None or store.count_missing(index.snapshot):
            raise InputError(
                f"{index.path} lacks embeddings of {reranker.name}; run: glassrank encode "
                f"{index.path} --model {reranker.name}"
            )
        (head,) = model.scoring_heads()
        first_stage = model.first_stage_weight
        self.start = LearnedWeights(
            np.eye(model.config.size, dtype=np.float32),
            np.asarray(head.log, np.float32),
            np.asarray(head.length, np.float32),
            0.0 if first_stage is None else float(first_stage),
        )
        self._maker = ExampleMaker(index, reranker)
        self._docs = StoredDocs(store, index.snapshot)
        self._kernels: Kernels = model.config.kernels
        self._first = reranker.usage.passages.first
        self._calibration = reranker.usage.calibration
        self._say = say

    def learn(
        self, seconds: float, log: Log | None = None, *, corrected: bool = True, seed: int = 0
    ) -> Outcome:
        """Takes about so many seconds."""
        ending = time.monotonic() + seconds
        rng = np.random.default_rng(seed)
        if log is None:
            examples = self._find_again(ending - 0.5 * seconds, seed)
        else:
            examples = self._maker.from_log(log, corrected=corrected)
        if len(examples) < 2 * FEWEST:
            more = "more documents or more minutes" if log is None else "a log with more clicks"
            raise InputError(
                f"{len(examples)} queries can be learned from, expected {2 * FEWEST} or more; "
                f"give it {more}"
            )
        examples = [examples[place] for place in rng.permutation(len(examples))]
        count = min(HELD_OUT, len(examples) // 2)
        held_out, training = examples[:count], examples[count:]
        self._say(f"{len(training):,} queries to learn from, {count} held out")
        learned = replace(self.start, projection=whiten(self._docs.second_moment()))
        if log is not None:
            began = self.start.toward(learned, max(_SHARES_OF_DOCS))
            learned = self._descend(training, began, ending - 0.3 * seconds, rng)
        return self._decide(held_out, learned, len(training), is_from_docs=log is None)

    def _find_again(self, ending: float, seed: int) -> list[Example]:
        """Made queries whose source the model finds."""
        kept: list[Example] = []
        for example in islice(self._maker.from_docs(seed), _MOST_FROM_DOCS):
            scores = self._score(example, self.start)
            if (scores > scores[example.source]).sum() < _FOUND_AGAIN:
                kept.append(example)
            if time.monotonic() > ending:
                break
        return kept

    def _score(self, example: Example, weights: LearnedWeights) -> NDArray[np.float32]:
        return score(example, self._docs.read(example), weights, self._kernels, self._first)

    def _descend(
        self,
        examples: Sequence[Example],
        weights: LearnedWeights,
        ending: float,
        rng: np.random.Generator,
    ) -> LearnedWeights:
        """Adam on batches of lists, until the time or the epochs are over."""
        began = time.monotonic()
        scale = np.mean([example.gains.sum() for example in examples])
        optimizers = [_Adam() for _ in Gradient._fields]
        steps = max(1, _EPOCHS * len(examples) // _BATCH)
        order: list[int] = []
        for step in range(steps):
            past = max(step / steps, (time.monotonic() - began) / max(ending - began, 1e-9))
            if past >= 1:
                break
            gradient: Any
            total: list[Any] = [0.0] * len(Gradient._fields)
            for _ in range(_BATCH):
                order = order or rng.permutation(len(examples)).tolist()
                example = _sample(examples[order.pop()], rng)
                tokens = self._docs.read(example, first_only=True)
                _, gradient = loss_gradient(example, tokens, weights, self._kernels)
                total = [
                    one + two / _BATCH / scale for one, two in zip(total, gradient, strict=True)
                ]
            moves = [
                optimizer.step(each) * (1 - past)
                for optimizer, each in zip(optimizers, total, strict=True)
            ]
            weights = LearnedWeights(
                (weights.projection - _RATE * moves[0]).astype(np.float32),
                (weights.log * np.exp(-_RATE_OF_WEIGHTS * moves[1])).astype(np.float32),
                (weights.length * np.exp(-_RATE_OF_WEIGHTS * moves[2])).astype(np.float32),
                weights.first_stage * float(np.exp(-_RATE_OF_WEIGHTS * moves[3])),
            )
        self._say(f"{time.monotonic() - began:.0f} s of learning")
        return weights

    def _decide(
        self,
        held_out: Sequence[Example],
        learned: LearnedWeights,
        queries: int,
        *,
        is_from_docs: bool,
    ) -> Outcome:
        shares = _SHARES_OF_DOCS if is_from_docs else _SHARES
        half = len(held_out) // 2
        choosing, deciding = held_out[:half], held_out[half:]
        candidates = [self.start.toward(learned, share) for share in shares]
        best = int(np.argmax([self._measure(choosing, each)[1].mean() for each in candidates]))
        old, before = self._measure(deciding, self.start)
        new, after = self._measure(deciding, candidates[best])
        differences, count = after - before, len(deciding)
        resampled = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
        low, high = np.quantile(differences[resampled].mean(1), [0.025, 0.975])
        return Outcome(
            candidates[best],
            self._recalibrate(np.concatenate(old), np.concatenate(new)),
            shares[best],
            queries,
            count,
            float(before.mean()),
            float(after.mean()),
            (float(low), float(high)),
            _list_changes(deciding, old, new, differences),
        )

    def _measure(
        self, examples: Sequence[Example], weights: LearnedWeights
    ) -> tuple[list[NDArray[np.float32]], NDArray[np.float64]]:
        """The scores of all candidates of each example, and each one's nDCG@10 (n,)."""
        scores = [self._score(example, weights) for example in examples]
        return scores, np.array(list(map(_ndcg, examples, scores)))

    def _recalibrate(
        self, old: NDArray[np.floating], new: NDArray[np.floating]
    ) -> Calibration | None:
        """A calibration that gives new scores the probabilities of the old ones, on average."""
        if self._calibration is None:
            return None
        slope = old.std() / max(new.std(), 1e-9)
        shift = old.mean() - slope * new.mean()
        calibration = self._calibration
        return Calibration(
            float(calibration.slope * slope), float(calibration.bias + calibration.slope * shift)
        )


class _Adam:
    """D. Kingma, J. Ba, ICLR 2015."""

    def __init__(self) -> None:
        self._mean: Any = 0.0
        self._square: Any = 0.0
        self._steps = 0

    def step(self, gradient: Any) -> Any:
        """The direction, of about unit size."""
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean, square = self._mean / (1 - 0.9**self._steps), self._square / (1 - 0.999**self._steps)
        return mean / (np.sqrt(square) + 1e-8)


def _sample(example: Example, rng: np.random.Generator) -> Example:
    """What was shown, and a few others."""
    drawn = _SHOWN + rng.permutation(max(0, len(example.docs) - _SHOWN))[:_OTHERS]
    return example.choose(np.concatenate([np.arange(min(_SHOWN, len(example.docs))), drawn]))


def _ndcg(example: Example, scores: NDArray[np.floating]) -> float:
    """nDCG@10 among the candidates."""
    discounts = 1 / np.log2(np.arange(2, 12))
    ranked = example.gains[np.argsort(-scores, kind="stable")][:10]
    ideal = np.sort(example.gains)[::-1][:10]
    return float(ranked @ discounts[: len(ranked)] / (ideal @ discounts[: len(ideal)]))


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
