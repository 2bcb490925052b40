"""What one training step does: scores of a batch, gradients, and how far each weight moves."""

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer, SparseAdam

from glassrank.models import Ranker, TokenBatch, Words
from glassrank.train.batches import Examples
from glassrank.train.config import OptimizerConfig
from glassrank.train.distributed import ALONE, Team
from glassrank.train.state import RunProgress


def scores_of(model: Ranker, examples: Examples, precision: str = "float32") -> Tensor:
    """(B, N): each query is encoded once for its N documents."""
    batch, width = examples.grades.shape
    device = examples.grades.device
    which = torch.arange(batch, device=device).repeat_interleave(width)
    first_stage = examples.first_stage.flatten()
    with rounding(precision, device):
        query = model.encode_query(examples.query)
    scores = pair_scores(model, query, which, examples.doc, first_stage, precision)
    return scores.view(batch, width)


def pair_scores(
    model: Ranker,
    query: Words,
    which: Tensor,
    doc: TokenBatch,
    first_stage: Tensor,
    precision: str = "float32",
) -> Tensor:
    """(B,): document i with encoded query `which[i]`. Soft counts need float32, transformers do
    not."""
    with rounding(precision, which.device):
        words, docs = query.rows(which), model.encode_doc(doc)
        if model.interacts_rounded:
            rounded: Tensor = model.rank(words, docs, first_stage).score
            return rounded
    score: Tensor = model.rank(words, docs, first_stage).score
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
    optimizers: dict[str, Optimizer] = {"dense": AdamW(dense, weight_decay=0.0)}
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


def update(
    model: nn.Module,
    optimizers: dict[str, Optimizer],
    value: Tensor,
    config: OptimizerConfig,
    progress: RunProgress,
    team: Team = ALONE,
) -> None:
    """Rates as they are at this step, gradients, clipped, and one step of each optimizer."""
    planned = rate_factor(progress.step, config)
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            # As in the authors' code, only the dense rates fall when dev stops improving.
            factor = progress.rate_factor if name == "dense" else 1.0
            group["lr"] = group["base"] * planned * factor
        optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(value)
    team.add_gradients(model.parameters())
    if config.clip is not None:
        dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
        nn.utils.clip_grad_norm_(dense, config.clip)
    for optimizer in optimizers.values():
        optimizer.step()
