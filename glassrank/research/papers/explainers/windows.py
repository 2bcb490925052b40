"""TK windowed: the score is a sum over window sizes and windows.

A window's strength is an exponential of a sum over query words and kernels. It is divided exactly:
a window whose sum is zero has the strength 1, its base, and the difference to the base is divided
in proportion to the summands. A document word's share is what the score loses if the word is not
counted, as in TK; windows then get new ranks.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.backends.configs import Kernels
from glassrank.backends.match import kernel_values
from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    make_term_parts,
)
from glassrank.explanations.kernels import attribute_to_kernels
from glassrank.explanations.structure import PathShare, ScorePart
from glassrank.research.papers.tk import TKWindowed, log_counts, window_strength


@dataclass(frozen=True)
class Size:
    """All windows of one size. A window's value is the size's weight, times the weight of its rank,
    times its strength."""

    name: str
    size: int
    base: Tensor  # (W,)
    summands: Tensor  # (Q, W, K), which add up to the values less the bases
    shares: Tensor  # (Q, D, K)


def explain_windows(pair: ScoredPair) -> Attribution:
    """By window sizes, windows and query words."""
    model = pair.model
    assert isinstance(model, TKWindowed)
    kernels: Kernels = model.config.kernels
    similarity = pair.output.parts["similarity"][0, : len(pair.query_tokens), : pair.num_doc_tokens]
    with torch.no_grad():
        values = kernel_values(similarity, model.kernels).cpu().double()  # (Q, D, K)
    similarity = similarity.cpu().double()
    size_values = pair.output.parts["sizes"][0].tolist()
    sizes = [_size(model, number, values, value) for number, value in enumerate(size_values)]
    shares = torch.stack([size.shares for size in sizes]).sum(0)  # (Q, D, K)
    parts = tuple(_tree(size, pair) for size in sizes)
    columns = [
        [PathShare(size.name, None, None, value) for value in size.summands.sum((0, 1)).tolist()]
        for size in sizes
    ]
    return attribute_to_kernels(parts, kernels, columns, values, shares, {"similarity": similarity})


def _size(model: TKWindowed, number: int, values: Tensor, value: float) -> Size:
    """`value` is the model's own, of this size. Exponentials magnify the rounding of float32 sums:
    the parts are corrected so that the last digits are the model's, too."""
    size = model.config.windows[number]
    kernel_weights = model.kernel_weights[number].detach().cpu().double()  # (K,)
    scale = model.scales[number].item()
    words = values.shape[1]
    # No window of padding alone counts, so that only the last one's padding is of interest.
    windows = math.ceil(words / size)
    counts = functional.pad(values, (0, 0, 0, windows * size - words))
    counts = torch.unflatten(counts, 1, (windows, size)).sum(2)  # (Q, W, K)
    logs = kernel_weights * log_counts(counts)  # (Q, W, K)
    score = logs.sum((0, 2))  # (W,)
    weight = _rank_weights(model, number, score[None])[0]  # (W,)
    computed = float((weight * window_strength(score, scale)).sum())
    correction = value / computed if computed else 1.0
    base = correction * weight * (score != 0)
    # The base times (e^(scale * score) - 1), for each unit of the score.
    rate = base * torch.expm1(scale * score) / torch.where(score != 0, score, 1)  # (W,)
    return Size(
        f"windows of {size}",
        size,
        base,
        logs * rate[:, None],
        correction * _shares(model, number, values, counts, score),
    )


def _shares(
    model: TKWindowed, number: int, values: Tensor, counts: Tensor, score: Tensor
) -> Tensor:
    """What the score loses without each word (Q, D, K): its window's score changes, then the
    window's strength, then perhaps the ranks of all windows. The loss is divided in proportion to
    what the window's score loses."""
    scale = model.scales[number].item()
    kernel_weights = model.kernel_weights[number].detach().cpu().double()  # (K,)
    places = torch.arange(values.shape[1])  # (D,)
    window = places // model.config.windows[number]  # (D,)
    left = (counts[:, window] - values).clamp(min=0)  # (Q, D, K)
    loss = kernel_weights * (log_counts(counts)[:, window] - log_counts(left))  # (Q, D, K)
    without = score.repeat(len(places), 1)  # (D, W)
    without[places, window] -= loss.sum((0, 2))
    without[places, window] *= left.sum((0, 2)) != 0  # a window of this word alone is empty now
    before, after = (
        (_rank_weights(model, number, scores) * window_strength(scores, scale)).sum(1)
        for scores in (score[None], without)
    )  # (1,), (D,)
    whole = loss.sum((0, 2))  # (D,)
    return loss * ((before - after) / torch.where(whole != 0, whole, 1))[:, None]


def _rank_weights(model: TKWindowed, number: int, scores: Tensor) -> Tensor:
    """The weight of each window's rank among those beside it, times that of the size: (…, W)."""
    by_rank = model.rank_weights[number].detach().cpu().double() * model.size_weights[number].item()
    strength = window_strength(scores, model.scales[number].item())
    if model.config.authors_padding:  # late windows are cut before they are sorted
        strength = strength[:, : len(by_rank)]
    order = strength.argsort(dim=1, descending=True, stable=True)[:, : len(by_rank)]
    weights = by_rank[: order.shape[1]].expand(order.shape)
    return torch.zeros_like(scores).scatter(1, order, weights)


def _tree(size: Size, pair: ScoredPair) -> ScorePart:
    windows = []
    by_term = size.summands.sum(2).T.tolist()  # (W, Q)
    for number, base in enumerate(size.base.tolist()):
        start, stop = number * size.size, min((number + 1) * size.size, pair.num_doc_tokens)
        terms = make_term_parts(pair.query_tokens, by_term[number])
        name = f"words {start + 1} to {stop}"
        windows.append(
            ScorePart.total(name, "window", [*terms, ScorePart("base", "constant", base)])
        )
    return ScorePart.total(size.name, "path", windows)
