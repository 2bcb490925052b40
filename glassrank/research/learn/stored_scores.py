"""A kernel model over stored token embeddings whose projection and weights may change.

A projection P of encoder states h, changed to A P, makes of the stored unit vector e = Ph / |Ph|
the unit vector of A e: what is learned here needs no encoder. Scores and gradients are those of
`models/onnx_models.py`, whose kernels are those of C. Xiong and others, SIGIR 2017.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import FLOOR, Kernels, compute_kernel
from glassrank.backends.cpu.kernels import StoredRows, pool_cpu
from glassrank.embeddings import Store
from glassrank.embeddings.rows import unpack
from glassrank.index.snapshot import Snapshot
from glassrank.models.model import aggregate_passages

Floats = NDArray[np.float32]

_WHITENING = 0.5
"""The power of the eigenvalues: the far end, of which `learn` goes a share."""
_SAMPLE, _AT_ONCE = 4_000, 128
"""Documents."""


class PassageRows(NamedTuple):
    """Rows of some passages, one after another."""

    rows: Floats  # (T, E) unit vectors
    lengths: NDArray[np.int64]  # (P,) none is 0
    docs: NDArray[np.int64]  # (P,) the place of each passage's document in the list

    @property
    def starts(self) -> NDArray[np.int64]:
        """(P,) where each passage begins."""
        return np.cumsum(self.lengths) - self.lengths


@dataclass(frozen=True)
class Example:
    """A query with candidates, and how good each is."""

    text: str
    vectors: Floats  # (Q, E) unit vectors
    weights: Floats  # (Q,) of the query's tokens
    docs: NDArray[np.int64]  # (n,) numbers in the index
    first_scores: Floats  # (n,) of the first stage
    gains: NDArray[np.float64]  # (n,) 0: not known to be good
    source: int = -1
    """The place of the document that the query was taken from."""
    hidden: tuple[int, int] = (0, 0)
    """Rows of the source's first passage that the query was taken from."""

    def choose(self, places: NDArray[np.integer]) -> "Example":
        """With some of its candidates."""
        source = np.flatnonzero(places == self.source)
        return replace(
            self,
            docs=self.docs[places],
            first_scores=self.first_scores[places],
            gains=self.gains[places],
            source=int(source[0]) if len(source) else -1,
        )


@dataclass(frozen=True)
class LearnedWeights:
    """What is learned; embeddings are multiplied by `projection`."""

    projection: Floats  # (E, E)
    log: Floats  # (K,)
    length: Floats  # (K,)
    first_stage: float

    def toward(self, other: "LearnedWeights", share: float) -> "LearnedWeights":
        """A share of the way to other weights: geometric for those that are never negative."""

        def mix(one: Any, two: Any) -> Any:
            return one ** (1 - share) * two**share

        return LearnedWeights(
            ((1 - share) * self.projection + share * other.projection).astype(np.float32),
            mix(self.log, other.log),
            mix(self.length, other.length),
            mix(self.first_stage, other.first_stage) if self.first_stage else 0.0,
        )


class StoredDocs:
    """Reads candidates of examples from a store."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self._store, self._snapshot = store, snapshot

    def second_moment(self) -> NDArray[np.float64]:
        """Of all token embeddings (E, E), by a sample of first passages."""
        count = int(self._snapshot.bases[-1])
        chosen = np.random.default_rng(0).permutation(count)[:_SAMPLE]
        moment = np.zeros((self._store.layout.width,) * 2)
        for _, part, numbers in self._store.locate(self._snapshot, np.sort(chosen)):
            for some in np.array_split(numbers, -(-len(numbers) // _AT_ONCE)):
                places = part.passage_rows(part.passages[some])
                rows = unpack(part.rows(*places), self._store.layout)
                moment += rows.T @ rows
        return moment

    def read(self, example: Example, *, first_only: bool = False) -> PassageRows:
        """The passages of all candidates; of the source without what the query was taken from."""
        rows, lengths, docs = [], [], []
        for which, part, numbers in self._store.locate(self._snapshot, example.docs):
            for place, number in zip(which.tolist(), numbers.tolist(), strict=True):
                first, last = part.passages[number : number + 2].tolist()
                passages = np.arange(first, first + 1 if first_only else last)
                starts, counts = part.passage_rows(passages)
                vectors = unpack(part.rows(starts, counts), self._store.layout)
                if place == example.source and example.hidden[1]:
                    vectors = np.delete(vectors, slice(*example.hidden), axis=0)
                    counts[0] -= example.hidden[1] - example.hidden[0]
                rows.append(vectors)
                lengths.append(counts)
                docs.append(np.full(len(counts), place))
        counts = np.concatenate(lengths)
        kept = counts > 0
        return PassageRows(
            np.ascontiguousarray(np.concatenate(rows), np.float32),
            counts[kept],
            np.concatenate(docs)[kept],
        )


def whiten(moment: NDArray[np.floating]) -> Floats:
    """A map (E, E) that evens out the second moments of embeddings by a part of the way: tokens of
    one subject have much in common, which tells nothing (J. Mu, P. Viswanath, "All-but-the-top",
    ICLR 2018)."""
    values, vectors = np.linalg.eigh(moment)
    values = np.maximum(values / values.mean(), 1e-6) ** (-_WHITENING / 2)
    return np.asarray(vectors * values @ vectors.T, np.float32)


def score(
    example: Example, tokens: PassageRows, weights: LearnedWeights, kernels: Kernels, first: float
) -> NDArray[np.float32]:
    """Scores (n,) of all candidates, as a pipeline gives them; `first` is the first passage's
    share."""
    scores = pool_cpu(
        _unit(example.vectors @ weights.projection.T)[0],
        example.weights,
        StoredRows(_unit(tokens.rows @ weights.projection.T)[0]),
        tokens.starts,
        tokens.lengths,
        kernels,
        weights.log,
        weights.length,
    )
    count = len(example.docs)
    added = np.float32(weights.first_stage) * example.first_scores
    scores = scores + added[tokens.docs]
    # A document without passages, which only an empty text is, comes last.
    missing = np.setdiff1d(np.arange(count), tokens.docs)
    lowest = np.full(len(missing), scores.min(initial=0) - 1, np.float32)
    docs = np.concatenate([tokens.docs, missing])
    return aggregate_passages(np.concatenate([scores, lowest]), docs, added, 1, first).scores


class Gradient(NamedTuple):
    """Of a loss, by what is learned; kernels' weights by their logarithms."""

    projection: NDArray[np.floating]
    log: NDArray[np.floating]
    length: NDArray[np.floating]
    first_stage: float


def loss_gradient(
    example: Example, tokens: PassageRows, weights: LearnedWeights, kernels: Kernels
) -> tuple[float, Gradient]:
    """The cross-entropy of gains and softmax of scores over the candidates, each of which has one
    passage in `tokens`, and its gradient."""
    query, query_norms = _unit(example.vectors @ weights.projection.T)  # (Q, E)
    doc, doc_norms = _unit(tokens.rows @ weights.projection.T)  # (T, E)
    similarity = query @ doc.T  # (Q, T)
    starts, lengths = tokens.starts, tokens.lengths
    by_length = example.weights[:, None] / (lengths + 1)  # (Q, P)
    kinds, logs, shares = [], [], []
    for number in range(len(kernels)):
        values = compute_kernel(similarity, kernels, number)  # (Q, T)
        counts = np.add.reduceat(values, starts, axis=1)  # (Q, P)
        kinds.append((values, np.maximum(counts, np.float32(FLOOR))))
        logs.append(example.weights @ np.log(kinds[-1][1]))  # (P,)
        shares.append((by_length * counts).sum(0))  # (P,)
    features = np.stack([*logs, *shares])  # (2 K, P)
    both = np.concatenate([weights.log, weights.length])
    first_scores = example.first_scores[tokens.docs]
    scores = both @ features + weights.first_stage * first_scores  # (P,)
    scores = scores - scores.max()
    scores -= np.log(np.exp(scores).sum())
    chances = np.exp(scores)
    gains = example.gains[tokens.docs]
    loss = float(-(gains * scores).sum())
    slope = gains.sum() * chances - gains  # (P,) of the loss by scores
    by_similarity = np.zeros_like(similarity)
    for number, (values, counts) in enumerate(kinds):
        by_count = weights.log[number] * example.weights[:, None] / counts * (counts > FLOOR)
        by_count = (by_count + weights.length[number] * by_length) * slope  # (Q, P)
        distance = similarity - np.float32(kernels.centers[number])
        if kernels.at_least:
            distance = np.minimum(distance, 0)
        values *= distance * np.float32(-1 / kernels.widths[number] ** 2)
        by_similarity += values * np.repeat(by_count, lengths, axis=1).astype(np.float32)
    by_query = _through_unit(by_similarity @ doc, query, query_norms)
    by_doc = _through_unit(by_similarity.T @ query, doc, doc_norms)
    projection = by_query.T @ example.vectors + by_doc.T @ tokens.rows
    by_both = both * (features @ slope)
    half = len(kernels)
    first_stage = weights.first_stage * float(slope @ first_scores)
    return loss, Gradient(projection, by_both[:half], by_both[half:], first_stage)


def _unit(rows: Floats) -> tuple[Floats, Floats]:
    """Rows of length 1, and their lengths before."""
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-9))
    return np.ascontiguousarray(rows / norms, np.float32), norms


def _through_unit(gradient: Floats, unit: Floats, norms: Floats) -> Floats:
    """A gradient by unit rows, as one by the rows before."""
    return np.asarray((gradient - unit * (gradient * unit).sum(1, keepdims=True)) / norms)
