"""TK, KNRM and CONV-KNRM: the score is a sum over paths, query words and kernels.

For models over subwords, shares are integrated gradients (M. Sundararajan, A. Taly, Q. Yan,
"Axiomatic Attribution for Deep Networks", ICML 2017) from [CLS] and [SEP] alone to the whole text.
They have a closed form here: a word's part in what the counts gain.

Models over words have no such baseline: a count of zero is far below any that a model has seen.
There, a share is what the score loses if the word is not counted, while the others keep their
vectors. A logarithm falls little when one of several like words goes, so shares alone do not add
up to the score; what the words add together belongs to none of them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import FLOOR, Kernels, ScoringHead
from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    Values,
    make_marks,
    make_part,
    make_path,
    spread_over_windows,
    to_float64,
    to_matrix,
)
from glassrank.explanations.leave_one_out import TOGETHER
from glassrank.explanations.structure import PathShare, ScorePart, Signal
from glassrank.models.model import Model, to_array
from glassrank.models.onnx_models import compute_kernels
from glassrank.text.english import MARKERS

WITHOUT_WORDS = "without words"
"""What a text without words has: it belongs to no document word."""
TINY = 1e-30
NEAR = 0.4
"""Kernels around similarities below this are not coloured by default."""


@dataclass(frozen=True)
class KernelPath:
    """A score path: one way from soft counts to the score."""

    name: str
    weight: Values  # (K,)
    signal: Values  # (Q, K)
    part: Values  # (Q, K), the model's own: weight times signal
    shares: Values  # (Q, D, K), of the words


def has_kernels(model: Model) -> bool:
    """Whether the score is a sum of soft counts on TK's two paths alone."""
    return bool(model.scoring_heads()) and set(model.info.summands) <= {"log", "length"}


def explain_kernels(pair: ScoredPair) -> Attribution:
    """Sums over paths, query words and kernels, as the model computes them."""
    kernels: Kernels = pair.model.config.kernels
    scoring_heads = pair.model.scoring_heads()
    names = _matrix_names(len(scoring_heads))
    paths: list[KernelPath] = []
    similarities: dict[str, Values] = {}
    best: Values = np.zeros((1, pair.num_doc_tokens, len(kernels)))  # (1, D, K) of all matrices
    for number, (name, readout) in enumerate(zip(names, scoring_heads, strict=True)):
        similarity = _similarity(pair, readout)  # (Q, D)
        # In the model's precision: a narrow kernel sees the last bit of a similarity.
        values = to_float64(np.stack([*compute_kernels(similarity, kernels)], 2))  # (Q, D, K)
        paths += _paths(pair, readout, number, values)
        similarities[name] = to_float64(similarity)
        best = np.concatenate([best, values]).max(0, keepdims=True)
    signals = name_kernels(kernels)
    return attribute_to_kernels(
        tuple(make_path(p.name, pair.query_tokens, p.part.tolist(), signals) for p in paths),
        kernels,
        [_column(path) for path in paths],
        best,
        np.stack([path.shares for path in paths]).sum(0),  # (Q, D, K)
        similarities,
        WITHOUT_WORDS if markers(pair) else TOGETHER,
    )


def _matrix_names(count: int) -> list[str]:
    """CONV-KNRM has one matrix for each pair of n-gram sizes; the query's size changes slower."""
    if count == 1:
        return ["similarity"]
    from glassrank.backends.match import ngram_name

    sizes = range(1, math.isqrt(count) + 1)
    return [f"{ngram_name(query)} to {ngram_name(doc)}" for query in sizes for doc in sizes]


def name_paths(model: Model, summand: str) -> list[str]:
    """The paths of a summand: one for each match matrix."""
    names = _matrix_names(len(model.scoring_heads()))
    return names if summand == "log" and len(names) > 1 else [summand]


def _similarity(pair: ScoredPair, readout: ScoringHead) -> NDArray[np.float32]:
    """(Q, D)."""
    query = pair.query.vectors[0].reshape(pair.query.mask.shape[1], -1)
    doc = pair.doc.vectors[0].reshape(pair.doc.mask.shape[1], -1)
    read = query[: len(pair.query_tokens), readout.query_columns]
    return to_array(read @ doc[: pair.num_doc_tokens, readout.doc_columns].T)


def _paths(
    pair: ScoredPair, readout: ScoringHead, number: int, values: Values
) -> Iterator[KernelPath]:
    """The log path of one match matrix, and the length path if the model has one."""
    model, parts = pair.model, pair.output.parts
    weight = to_float64((pair.query.idf if model.info.has_term_weights else pair.query.mask)[0])
    weight = weight[: len(values), None]  # (Q, 1)
    counts = values.sum(1)  # (Q, K)
    matrices = len(model.scoring_heads())
    # A column stands for the n-gram that begins there; document sizes change faster.
    ngram = number % math.isqrt(matrices) + 1

    left = np.maximum(counts[:, None] - values, 0)  # (Q, D, K), counts without each word
    empty = markers(pair)

    log = to_float64(readout.log)  # (K,)
    signal = weight * log_counts(counts)  # (Q, K)
    if empty:
        base = values[:, empty].sum(1)  # (Q, K)
        gained = weight * (log_counts(counts) - log_counts(base))
        part_of = values / np.maximum(counts - base, TINY)[:, None]  # (Q, D, K)
        part_of[:, empty] = 0
        shares = log * gained[:, None] * part_of
    else:
        shares = log * (signal[:, None] - weight[:, None] * log_counts(left))  # (Q, D, K)
    yield KernelPath(
        name_paths(model, "log")[number],
        log,
        signal,
        _own(parts["log"], number, values),
        spread_over_windows(shares, 0, ngram - 1, pair.num_doc_tokens)[0],
    )
    if "length" in model.info.summands:
        by_length = to_float64(readout.length)  # (K,)
        words = pair.num_doc_tokens
        signal = weight * counts / (words + 1)  # (Q, K)
        if empty:
            shares = by_length * weight[:, None] * values / (words + 1)
            shares[:, empty] = 0
        else:  # without the word the document is shorter, too
            shares = by_length * (signal[:, None] - weight[:, None] * left / max(words, 1))
        yield KernelPath("length", by_length, signal, _own(parts["length"], number, values), shares)


def markers(pair: ScoredPair) -> list[int]:
    """The places of [CLS] and [SEP] in the document: what is left of it without words."""
    return [place for place, token in enumerate(pair.doc_tokens) if token in MARKERS]


def _own(part: Any, number: int, like: Values) -> Values:
    """(1, Q', K) or (1, Q', matrices, K) to one matrix' (Q, K)."""
    own = to_float64(part[0, : len(like)])
    return own if own.ndim == 2 else own[:, number]


def log_counts(counts: Values) -> Values:
    """Logarithms of soft counts, floored as in the models."""
    return np.log(np.maximum(counts, FLOOR))


def _column(path: KernelPath) -> list[PathShare]:
    columns = path.weight.tolist(), path.signal.sum(0).tolist(), path.part.sum(0).tolist()
    return [PathShare(path.name, *row) for row in zip(*columns, strict=True)]


def name_kernels(kernels: Kernels) -> list[str]:
    """The names of kernels in tables."""
    return [f"kernel {center}" for center in kernels.centers]


def attribute_to_kernels(
    parts: tuple[ScorePart, ...],
    kernels: Kernels,
    columns: list[list[PathShare]],  # one for each path, each of K
    values: Any,  # (Q, D, K)
    shares: Any,  # (Q, D, K)
    similarities: Mapping[str, Any],  # each (Q, D); words are coloured by the first
    remainder: str = TOGETHER,
) -> Attribution:
    """A signal for each kernel, with what it adds on each path, and the shares of words."""
    similarity = np.asarray(next(iter(similarities.values())))
    nearest = _find_nearest(similarity, kernels)
    coloured = _choose_coloured(kernels, nearest)
    strength = np.asarray(values).max(0, initial=0.0)  # (D, K)
    signals = tuple(
        Signal(
            name,
            kernels.centers[k],
            kernels.widths[k],
            tuple(column[k] for column in columns),
            math.fsum(column[k].value for column in columns),
            tuple(strength[:, k].tolist()),
            is_highlighted=k in coloured,
        )
        for k, name in enumerate(name_kernels(kernels))
    )
    total = math.fsum(part.value for part in parts)
    return Attribution(
        is_additive=True,
        parts=parts,
        signals=signals,
        marks=make_marks(shares, similarity, nearest),
        rest=(make_part(remainder, total, [float(shares.sum())]),),
        matrices=tuple(to_matrix(name, matrix) for name, matrix in similarities.items()),
    )


def _choose_coloured(kernels: Kernels, nearest: list[int]) -> set[int]:
    """Kernels of high similarity: from the highest down to the first that has words, and on while
    at most half of all words are coloured, since contextual embeddings may all be alike."""
    coloured: set[int] = set()
    words = 0
    for k in sorted(range(len(kernels)), key=lambda k: -kernels.centers[k]):
        count = nearest.count(k)
        if kernels.centers[k] < NEAR or (words and words + count > len(nearest) / 2):
            break
        coloured.add(k)
        words += count
    return coloured


def _find_nearest(similarity: NDArray[Any], kernels: Kernels) -> list[int]:
    """The kernel whose center is closest to each word's best similarity: (Q, D) to D numbers."""
    if not len(similarity):
        return [0] * similarity.shape[1]
    distance = np.abs(similarity.max(0)[:, None] - np.array(kernels.centers))  # (D, K)
    nearest: list[int] = distance.argmin(1).tolist()
    return nearest
