"""What one training step does: scores of a batch, their loss, gradients, and how far each weight
moves.

Losses are functions of scores, one row for each query: the first column is the positive document,
the others are negatives.
"""

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer, SparseAdam

from glassrank.models import Ranker, TokenBatch, WordRanker, Words
from glassrank.train.batches import Examples
from glassrank.train.config import LossConfig, OptimizerConfig, TrainConfig
from glassrank.train.distributed import ALONE, Team
from glassrank.train.state import RunProgress


def loss(config: LossConfig, scores: Tensor, grades: Tensor, teacher: Tensor | None) -> Tensor:
    """The mean over the batch. All are (B, N); grades are 0 where nobody judged."""
    if config.kind == "hinge":
        return hinge(scores)
    if config.kind == "ranknet":
        return ranknet(scores)
    if config.kind == "pointwise":
        return pointwise(scores)
    if config.kind == "softmax":
        return softmax(scores)
    if config.kind == "gains":
        return custom_gains(scores, grades)
    if teacher is None:
        raise ValueError(f"the loss {config.kind} needs teacher scores; set candidates.teacher")
    if config.kind == "margin_mse":
        return margin_mse(scores, teacher)
    positives = (grades > 0) * config.positive_bonus
    wanted = standardized(teacher) if config.standardized else teacher
    return listwise_kl(scores, config.temperature * wanted + positives)


def hinge(scores: Tensor) -> Tensor:
    """max(0, 1 - positive + negative), as in the TK paper."""
    return torch.relu(1 - scores[:, :1] + scores[:, 1:]).mean()


def ranknet(scores: Tensor) -> Tensor:
    """-log sigmoid(positive - negative)."""
    return functional.softplus(scores[:, 1:] - scores[:, :1]).mean()


def pointwise(scores: Tensor) -> Tensor:
    """Each document on its own: relevant or not."""
    wanted = torch.zeros_like(scores)
    wanted[:, 0] = 1
    return functional.binary_cross_entropy_with_logits(scores, wanted)


def softmax(scores: Tensor) -> Tensor:
    """-log of the positive's share among its negatives: equation 1 of the RPACRR paper."""
    return -scores.log_softmax(1)[:, 0].mean()


def custom_gains(scores: Tensor, grades: Tensor) -> Tensor:
    """Cross-entropy against shares of 2^grade - 1: equation 4 of the RPACRR paper."""
    gains = torch.exp2(grades.float().clamp(min=0)) - 1  # (B, N)
    shares = gains / gains.sum(1, keepdim=True).clamp(min=1e-9)
    return -(shares * scores.log_softmax(1)).sum(1).mean()


def margin_mse(scores: Tensor, teacher: Tensor) -> Tensor:
    """The distance from positive to negative shall be the teacher's."""
    ours, theirs = scores[:, :1] - scores[:, 1:], teacher[:, :1] - teacher[:, 1:]
    return functional.mse_loss(ours, theirs)


def standardized(scores: Tensor) -> Tensor:
    """Mean 0 and deviation 1 in each row; a row of equal scores stays at 0."""
    centred = scores - scores.mean(1, keepdim=True)
    return centred / (centred.pow(2).mean(1, keepdim=True).sqrt() + 1e-4)


def listwise_kl(scores: Tensor, teacher: Tensor) -> Tensor:
    """The whole list's shares shall be the teacher's."""
    return functional.kl_div(
        scores.log_softmax(1), teacher.log_softmax(1), log_target=True, reduction="batchmean"
    )


def look_up(model: Ranker, batch: TokenBatch) -> Any:
    """What of texts is looked up and not computed: the vectors of words that models share. Pieces
    stay ids."""
    return model.look_up(batch) if shares_words(model) else batch


def encoders_of(model: Ranker) -> tuple[str, str]:
    """The names of what makes encoded queries and documents of texts that are looked up."""
    if shares_words(model):
        return "query_words", "doc_words"
    return "encode_query", "encode_doc"


def shares_words(model: Ranker) -> TypeGuard[WordRanker]:
    """Whether a model has word vectors from a table that is looked up before anything else; one of
    somebody else's may do it in its own way."""
    return isinstance(model, WordRanker) and all(
        getattr(type(model), name) is getattr(WordRanker, name)
        for name in ("encode_query", "encode_doc")
    )


def scores_of(model: Ranker, examples: Examples, precision: str = "float32") -> Tensor:
    """(B, N): each query is encoded once for its N documents."""
    query, doc = look_up(model, examples.query), look_up(model, examples.doc)
    return scores_of_read(model, query, doc, examples.first_stage, precision)


def scores_of_read(
    model: Ranker, query: Any, doc: Any, first_stage: Tensor, precision: str = "float32"
) -> Tensor:
    """The same of texts that are looked up."""
    width = first_stage.shape[1]
    with rounding(precision, first_stage.device):
        words: Words = getattr(model, encoders_of(model)[0])(query)
    # Repeated so, and not looked up by its number: the gradient is then a plain sum.
    each = Words(
        *(part[:, None].expand(-1, width, *part.shape[1:]).flatten(0, 1) for part in words)
    )
    return pair_scores(model, each, doc, first_stage.flatten(), precision).view(-1, width)


def pair_scores(
    model: Ranker, query: Words, doc: Any, first_stage: Tensor, precision: str = "float32"
) -> Tensor:
    """(B,): each looked-up document with its encoded query. Soft counts need float32, transformers
    do not."""
    with rounding(precision, first_stage.device):
        encoded: Words = getattr(model, encoders_of(model)[1])(doc)
        if model.interacts_rounded:
            rounded: Tensor = model.rank(query, encoded, first_stage).score
            return rounded
    score: Tensor = model.rank(query, encoded, first_stage).score
    return score


def rounding(precision: str, device: torch.device) -> torch.autocast:
    """A context in which products are rounded as the config says."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def make_optimizers(model: Ranker, config: OptimizerConfig) -> dict[str, Optimizer]:
    """Adam with one rate for what encodes texts and one for the rest; sparse updates for words."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    words: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.startswith("words."):
            words.append(parameter)
            continue
        key = name.split(".")[0] in model.encoders, parameter.ndim > 1
        groups.setdefault(key, []).append(parameter)
    dense = []
    for (encodes, decays), parameters in sorted(groups.items(), reverse=True):
        rate = config.contextual if encodes else config.rest
        decay = config.weight_decay if decays else 0.0
        dense.append({"params": parameters, "lr": rate, "base": rate, "weight_decay": decay})
    fused = model.device.type == "cuda"  # one launch for all weights
    optimizers: dict[str, Optimizer] = {"dense": AdamW(dense, weight_decay=0.0, fused=fused)}
    if words:
        sparse = [{"params": words, "lr": config.vectors, "base": config.vectors}]
        optimizers["words"] = SparseAdam(sparse)
    return optimizers


def rate_factor(step: int, config: OptimizerConfig) -> float:
    """Rises during the warm-up; then stays, or falls to zero."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "constant":
        return warm
    left = (config.steps - step) / max(1, config.steps - config.warmup)
    return min(warm, left)


class Step:
    """One step in the plain way, on batches of any shape."""

    def __init__(
        self,
        model: Ranker,
        optimizers: dict[str, Optimizer],
        config: TrainConfig,
        team: Team = ALONE,
    ) -> None:
        self._model, self._optimizers = model, optimizers
        self._config, self._team = config, team

    def gradients(self, examples: Examples) -> Tensor:
        """The loss of a batch, and its gradients beside the weights."""
        scores = scores_of(self._model, examples, self._config.optimizer.precision)
        value = loss(self._config.loss, scores, examples.grades, examples.teacher)
        value = self._team.weighed(value, len(scores), self._config.sampler.batch)
        self._model.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        self._team.add_gradients(self._model.parameters())
        clip(self._model, self._config.optimizer.clip)
        return value.detach()

    def update(self, progress: RunProgress) -> None:
        """Weights move by these gradients, at the rates of this step."""
        planned = rate_factor(progress.step, self._config.optimizer)
        for name, optimizer in self._optimizers.items():
            for group in optimizer.param_groups:
                # As in the authors' code, only the dense rates fall when dev stops improving.
                factor = progress.rate_factor if name == "dense" else 1.0
                group["lr"] = group["base"] * planned * factor
            optimizer.step()


def clip(model: nn.Module, largest: float | None) -> None:
    """Gradients of all but word vectors, to this length together."""
    if largest is not None:
        dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
        nn.utils.clip_grad_norm_(dense, largest)
