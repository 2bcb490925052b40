"""Losses: functions of scores (B, N), with the positive in column 0 and negatives in the others."""

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.research.train.config import LossConfig


def compute_loss(
    config: LossConfig, scores: Tensor, grades: Tensor, teacher: Tensor | None
) -> Tensor:
    """The mean loss of a batch. All inputs are (B, N); unjudged documents have grade 0."""
    of_scores = {"hinge": hinge, "ranknet": ranknet, "pointwise": pointwise, "softmax": softmax}
    if config.kind in of_scores:
        return of_scores[config.kind](scores)
    if config.kind == "gains":
        return custom_gains(scores, grades)
    if teacher is None:
        raise ValueError(
            f"loss.kind = {config.kind!r} needs teacher scores; set candidates.teacher"
        )
    if config.kind == "margin_mse":
        return margin_mse(scores, teacher)
    positives = (grades > 0) * config.positive_bonus
    wanted = standardize(teacher) if config.standardized else teacher
    return listwise_kl(scores, config.temperature * wanted + positives)


def hinge(scores: Tensor) -> Tensor:
    """max(0, 1 - positive + negative), as in the TK paper."""
    return torch.relu(1 - scores[:, :1] + scores[:, 1:]).mean()


def ranknet(scores: Tensor) -> Tensor:
    """-log sigmoid(positive - negative)."""
    return functional.softplus(scores[:, 1:] - scores[:, :1]).mean()


def pointwise(scores: Tensor) -> Tensor:
    """Binary cross-entropy of each document."""
    wanted = torch.zeros_like(scores)
    wanted[:, 0] = 1
    return functional.binary_cross_entropy_with_logits(scores, wanted)


def softmax(scores: Tensor) -> Tensor:
    """Cross-entropy of the positive: equation 1 of the RPACRR paper."""
    return -scores.log_softmax(1)[:, 0].mean()


def custom_gains(scores: Tensor, grades: Tensor) -> Tensor:
    """Cross-entropy with targets of 2^grade - 1: equation 4 of the RPACRR paper."""
    gains = torch.exp2(grades.float().clamp(min=0)) - 1  # (B, N)
    shares = gains / gains.sum(1, keepdim=True).clamp(min=1e-9)
    return -(shares * scores.log_softmax(1)).sum(1).mean()


def margin_mse(scores: Tensor, teacher: Tensor) -> Tensor:
    """Squared error of the margins between positive and negatives."""
    ours, theirs = scores[:, :1] - scores[:, 1:], teacher[:, :1] - teacher[:, 1:]
    return functional.mse_loss(ours, theirs)


def standardize(scores: Tensor) -> Tensor:
    """Standardize each row; a row of equal scores becomes 0."""
    centred = scores - scores.mean(1, keepdim=True)
    return centred / (centred.pow(2).mean(1, keepdim=True).sqrt() + 1e-4)


def listwise_kl(scores: Tensor, teacher: Tensor) -> Tensor:
    """KL divergence of the softmax over the list from the teacher's."""
    return functional.kl_div(
        scores.log_softmax(1), teacher.log_softmax(1), log_target=True, reduction="batchmean"
    )
