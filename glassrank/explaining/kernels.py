"""TK, KNRM and CONV-KNRM: the score is a sum over paths, query words and kernels.

The parts are the model's own tensors. A document word's share is what the score would lose if the
word were not counted, while the others keep their vectors: that needs no approximation, since each
count is a sum over words. A logarithm falls little when one of several like words goes, so that
shares alone do not make up the score; what the words do together belongs to none of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from glassrank.explaining.cases import Case, Findings, as_matrix, marks_of, spread
from glassrank.explaining.structure import PathShare, ScorePart, Signal
from glassrank.models import Ranker
from glassrank.nn.kernels import FLOOR, KernelBank, Kernels, Readout, kernel_values
from glassrank.nn.ngrams import ngram_name

NEAR = 0.4
"""Kernels around similarities below this are not coloured at first."""


@dataclass(frozen=True)
class KernelPath:
    """A score path: one way on which soft counts become score."""

    name: str
    weight: Tensor  # (K,)
    signal: Tensor  # (Q, K)
    part: Tensor  # (Q, K), the model's own: weight times signal
    shares: Tensor  # (Q, D, K), of the words


def has_kernels(model: Ranker) -> bool:
    """Whether the score is a sum of soft counts on TK's two paths, and no more."""
    return bool(model.readouts()) and set(model.summands) <= {"log", "length"}


def explain_kernels(case: Case) -> Findings:
    """By the model's own sums over paths, query words and kernels."""
    bank = case.model.kernels
    assert isinstance(bank, KernelBank)
    kernels: Kernels = case.model.config.kernels
    readouts = case.model.readouts()
    names = _matrix_names(len(readouts))
    paths: list[KernelPath] = []
    similarities: list[Tensor] = []
    strength = torch.zeros(case.doc_count, len(kernels), dtype=torch.double)  # (D, K)
    for number, readout in enumerate(readouts):
        similarity = _similarity(case, readout)  # (Q, D)
        # In the model's precision: a narrow kernel sees the last bit of a similarity.
        values = kernel_values(similarity, bank).cpu().double()  # (Q, D, K)
        paths += _paths(case, readout, number, values)
        similarities.append(similarity.cpu().double())
        if len(values):
            strength = strength.maximum(values.amax(0))
    shares = torch.stack([path.shares for path in paths]).sum(0)  # (Q, D, K)
    nearest = nearest_kernels(similarities[0], kernels)
    parts = tuple(_tree(path, case.query_words, kernels) for path in paths)
    return Findings(
        exact=True,
        parts=parts,
        signals=kernel_table(kernels, [_column(path) for path in paths], strength, nearest),
        marks=marks_of(shares, similarities[0], nearest),
        rest=(together(parts, shares),),
        matrices=tuple(map(as_matrix, names, similarities)),
    )


def _matrix_names(count: int) -> list[str]:
    """CONV-KNRM has one for each pair of n-gram sizes, the query's counting slower."""
    if count == 1:
        return ["similarity"]
    sizes = range(1, math.isqrt(count) + 1)
    return [f"{ngram_name(query)} to {ngram_name(doc)}" for query in sizes for doc in sizes]


def path_names(model: Ranker, summand: str) -> list[str]:
    """Of a summand's paths, one for each match matrix where it has several."""
    names = _matrix_names(len(model.readouts()))
    return names if summand == "log" and len(names) > 1 else [summand]


def _similarity(case: Case, readout: Readout) -> Tensor:
    """(Q, D), on the model's device."""
    query = case.query.vectors.flatten(2)[0, : len(case.query_words), readout.query_columns]
    doc = case.doc.vectors.flatten(2)[0, : case.doc_count, readout.doc_columns]
    return query @ doc.T


def _paths(case: Case, readout: Readout, number: int, values: Tensor) -> Iterator[KernelPath]:
    """The log path of one match matrix, and the length path where the model has one."""
    model, parts = case.model, case.output.parts
    weight = (case.query.idf if model.weighs_terms else case.query.mask)[0].cpu().double()
    weight = weight[: len(values), None]  # (Q, 1)
    counts = values.sum(1)  # (Q, K)
    matrices = len(model.readouts())
    # A column stands for the n-gram that begins there; document sizes count faster.
    ngram = number % math.isqrt(matrices) + 1

    left = (counts[:, None] - values).clamp(min=0)  # (Q, D, K), counts without each word

    log = readout.log.detach().cpu().double()  # (K,)
    signal = weight * log_counts(counts)  # (Q, K)
    shares = log * (signal[:, None] - weight[:, None] * log_counts(left))  # (Q, D, K)
    yield KernelPath(
        path_names(model, "log")[number],
        log,
        signal,
        _own(parts["log"], number)[: len(values)],
        spread(shares, 0, ngram - 1, case.doc_count)[0],
    )
    if "length" in model.summands:
        by_length = readout.length.detach().cpu().double()  # (K,)
        words = case.doc_count
        signal = weight * counts / (words + 1)  # (Q, K)
        yield KernelPath(
            "length",
            by_length,
            signal,
            _own(parts["length"], number)[: len(values)],
            # Without the word the document is shorter, too.
            by_length * (signal[:, None] - weight[:, None] * left / max(words, 1)),
        )


def log_counts(counts: Tensor) -> Tensor:
    """Logarithms of soft counts, with the models' floor."""
    return counts.clamp(min=FLOOR).log()


def _own(part: Tensor, number: int) -> Tensor:
    """(1, Q', K) or (1, Q', matrices, K) to one matrix' (Q', K)."""
    part = part[0].detach().cpu().double()
    return part if part.dim() == 2 else part[:, number]


def _tree(path: KernelPath, terms: tuple[str, ...], kernels: Kernels) -> ScorePart:
    values = path.part.tolist()
    names = kernel_names(kernels)
    rows = [
        ScorePart.total(
            term,
            "term",
            (
                ScorePart(name, "signal", value, k)
                for k, (name, value) in enumerate(zip(names, values[q], strict=True))
            ),
            q,
        )
        for q, term in enumerate(terms)
    ]
    return ScorePart.total(path.name, "path", rows)


def _column(path: KernelPath) -> list[PathShare]:
    columns = path.weight.tolist(), path.signal.sum(0).tolist(), path.part.sum(0).tolist()
    return [PathShare(path.name, *row) for row in zip(*columns, strict=True)]


def kernel_names(kernels: Kernels) -> list[str]:
    """As tables have them."""
    return [f"kernel {center}" for center in kernels.centers]


def kernel_table(
    kernels: Kernels,
    columns: list[list[PathShare]],  # one for each path, each of K
    strength: Tensor,  # (D, K)
    nearest: list[int],  # (D,)
) -> tuple[Signal, ...]:
    """A signal for each kernel, with what it added on each path."""
    coloured = _standing_out(kernels, nearest)
    return tuple(
        Signal(
            name,
            kernels.centers[k],
            kernels.widths[k],
            tuple(column[k] for column in columns),
            math.fsum(column[k].value for column in columns),
            tuple(strength[:, k].tolist()),
            first_look=k in coloured,
        )
        for k, name in enumerate(kernel_names(kernels))
    )


def _standing_out(kernels: Kernels, nearest: list[int]) -> set[int]:
    """Kernels of high similarity, from the highest down to the first that has words, and on while
    no more than half of all words would be coloured: contextual words may all be alike."""
    coloured: set[int] = set()
    words = 0
    for k in sorted(range(len(kernels)), key=lambda k: -kernels.centers[k]):
        count = nearest.count(k)
        if kernels.centers[k] < NEAR or (words and words + count > len(nearest) / 2):
            break
        coloured.add(k)
        words += count
    return coloured


def together(parts: tuple[ScorePart, ...], shares: Tensor) -> ScorePart:
    """What is left when each word has its share."""
    whole = math.fsum(part.value for part in parts)
    return ScorePart("together", "constant", whole - float(shares.sum()))


def nearest_kernels(similarity: Tensor, kernels: Kernels) -> list[int]:
    """The kernel whose center is closest to each word's best similarity: (Q, D) to D numbers."""
    if not len(similarity):
        return [0] * similarity.shape[1]
    centers = torch.tensor(kernels.centers, dtype=torch.double)
    distance = (similarity.amax(0)[:, None] - centers).abs()  # (D, K)
    return distance.argmin(1).tolist()
