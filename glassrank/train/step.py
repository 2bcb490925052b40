"""What one training step does: scores of a batch, gradients, and how far each weight moves."""

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer, SparseAdam

from glassrank.models import Ranker
from glassrank.train.config import OptimizerConfig
from glassrank.train.distributed import ALONE, Team
from glassrank.train.state import Progress
from glassrank.train.tensors import Examples


def scores_of(model: Ranker, examples: Examples, precision: str = "float32") -> Tensor:
    """(B, N): each query is encoded once for its N documents."""
    batch, width = examples.grades.shape
    device = examples.grades.device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        query = model.encode_query(examples.query)
        doc = model.encode_doc(examples.doc)
    repeated = query.rows(torch.arange(batch, device=device).repeat_interleave(width))
    return model.rank(repeated, doc, examples.first_stage.flatten()).score.view(batch, width)


def make_optimizers(model: Ranker, config: OptimizerConfig) -> dict[str, Optimizer]:
    """Adam with one rate for contextual layers and one for the rest; sparse updates for words."""
    contextual: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    words: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        group = (
            words if name.startswith("words.") else contextual if "contextual." in name else rest
        )
        group.append(parameter)
    groups = [
        {"params": parameters, "lr": rate, "base": rate}
        for parameters, rate in ((contextual, config.contextual), (rest, config.rest))
        if parameters
    ]
    optimizers: dict[str, Optimizer] = {"dense": Adam(groups)}
    if words:
        sparse = [{"params": words, "lr": config.vectors, "base": config.vectors}]
        optimizers["words"] = SparseAdam(sparse)
    return optimizers


def update(
    model: nn.Module,
    optimizers: dict[str, Optimizer],
    value: Tensor,
    config: OptimizerConfig,
    progress: Progress,
    team: Team = ALONE,
) -> None:
    """Rates as they are at this step, gradients, clipped, and one step of each optimizer."""
    warm = min(1.0, (progress.step + 1) / config.warmup) if config.warmup else 1.0
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            # As in the authors' code, only the dense rates fall when dev stops improving.
            factor = progress.rate_factor if name == "dense" else 1.0
            group["lr"] = group["base"] * warm * factor
        optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(value)
    team.add_gradients(model.parameters())
    if config.clip is not None:
        dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
        nn.utils.clip_grad_norm_(dense, config.clip)
    for optimizer in optimizers.values():
        optimizer.step()
