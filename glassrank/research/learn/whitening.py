"""Whitens the stored token embeddings of a collection: learned from documents alone, without the
encoder and without PyTorch.

A projection P of encoder states h, changed to A P, makes of the stored unit vector e = Ph / |Ph|
the unit vector of A e.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from glassrank.backends.cpu.kernels import StoredRows, pool_cpu
from glassrank.backends.onnx_encoders import Quantized
from glassrank.embeddings import Store
from glassrank.embeddings.rows import unpack
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.io.model_folder import CARD, MODEL_FILES, WEIGHTS, Usage, write_texts
from glassrank.models.model import aggregate_passages
from glassrank.rerank import Reranker
from glassrank.research.learn.examples import Example
from glassrank.storage.atomic_folders import write_checksummed_folder

Floats = NDArray[np.float32]

_POWER = 0.5
"""Of the eigenvalues: the far end, of which `learn` goes a share."""
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


class Whitening:
    """A map of the stored embeddings of a kernel model."""

    def __init__(self, index: Index, reranker: Reranker) -> None:
        model = reranker.model
        store = Store.find(index, model, verify=False)
        if store is None or store.count_missing(index.snapshot):
            raise InputError(
                f"{index.path} lacks embeddings of {reranker.name}; run: glassrank encode "
                f"{index.path} --model {reranker.name}"
            )
        self._store, self._snapshot, self._reranker = store, index.snapshot, reranker
        (self._head,) = model.scoring_heads()
        first_stage = model.first_stage_weight
        self._first_stage = np.float32(0.0 if first_stage is None else first_stage)
        self._old = np.eye(model.config.size, dtype=np.float32)
        self._new = self._old

    def learn(self) -> None:
        """From a sample of first passages."""
        count = int(self._snapshot.bases[-1])
        chosen = np.random.default_rng(0).permutation(count)[:_SAMPLE]
        moment = np.zeros(self._old.shape)
        for _, part, numbers in self._store.locate(self._snapshot, np.sort(chosen)):
            for some in np.array_split(numbers, -(-len(numbers) // _AT_ONCE)):
                places = part.passage_rows(part.passages[some])
                rows = unpack(part.rows(*places), self._store.layout)
                moment += rows.T @ rows
        self._new = whiten(moment)

    def _map(self, share: float) -> Floats:
        return ((1 - share) * self._old + share * self._new).astype(np.float32)

    def score(self, example: Example, share: float) -> Floats:
        """Scores (n,) of all candidates, as a pipeline gives them, a share of the way from the old
        embeddings to the new."""
        tokens, weights = self._read(example), self._map(share)
        scores = pool_cpu(
            _unit(example.vectors @ weights.T),
            example.weights,
            StoredRows(_unit(tokens.rows @ weights.T)),
            tokens.starts,
            tokens.lengths,
            self._reranker.model.config.kernels,
            self._head.log,
            self._head.length,
        )
        added = self._first_stage * example.first_scores
        scores = scores + added[tokens.docs]
        # A document without passages, which only an empty text is, comes last.
        missing = np.setdiff1d(np.arange(len(example.docs)), tokens.docs)
        lowest = np.full(len(missing), scores.min(initial=0) - 1, np.float32)
        docs = np.concatenate([tokens.docs, missing])
        first = self._reranker.usage.passages.first
        return aggregate_passages(np.concatenate([scores, lowest]), docs, added, 1, first).scores

    def _read(self, example: Example) -> PassageRows:
        """The passages of all candidates; of the source without what the query was taken from."""
        rows, lengths, docs = [], [], []
        for which, part, numbers in self._store.locate(self._snapshot, example.docs):
            for place, number in zip(which.tolist(), numbers.tolist(), strict=True):
                first, last = part.passages[number : number + 2].tolist()
                starts, counts = part.passage_rows(np.arange(first, last))
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

    def save(self, folder: Path, share: float, usage: Usage, card: str) -> None:
        """Writes a model folder that appears whole or not at all."""
        model = self._reranker.model
        size, states = model.config.size, model.config.encoder.size
        projection = self._map(share) @ model.weights.floats("projection.weight", size, states)
        arrays: dict[str, Any] = {**model.weights.arrays, "projection.weight": projection}
        plain = {}
        for name, array in arrays.items():
            if isinstance(array, Quantized):
                plain[name] = np.ascontiguousarray(array.values)
                plain[name.removesuffix(".weight") + ".scales"] = array.scales
            else:
                plain[name] = np.array(array, np.float32, order="C")
        with write_checksummed_folder(folder, "model", MODEL_FILES, beside=CARD) as part:
            save_file(plain, part / WEIGHTS)
            write_texts(part, model.name, model, usage, self._reranker.saved.vocabulary, card)


def whiten(moment: NDArray[np.floating]) -> Floats:
    """A map (E, E) that evens out the second moments of embeddings by a part of the way: tokens of
    one subject have much in common, which tells nothing (J. Mu, P. Viswanath, "All-but-the-top",
    ICLR 2018)."""
    values, vectors = np.linalg.eigh(moment)
    values = np.maximum(values / values.mean(), 1e-6) ** (-_POWER / 2)
    return np.asarray(vectors * values @ vectors.T, np.float32)


def _unit(rows: Floats) -> Floats:
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-9))
    return np.ascontiguousarray(rows / norms, np.float32)
