"""One training step: score a batch, compute the loss and gradients, update the weights."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer, SparseAdam

from glassrank.models import Ranker, TokenBatch, TokenEmbeddings, WordRanker
from glassrank.research.train.batches import Examples
from glassrank.research.train.config import OptimizerConfig, TrainConfig
from glassrank.research.train.distillation import vector_loss
from glassrank.research.train.distributed import ALONE, Team
from glassrank.research.train.losses import compute_loss
from glassrank.research.train.state import RunProgress


def look_up(model: Ranker, batch: TokenBatch) -> Any:
    """Look up the word vectors of texts; ids of subwords stay as they are."""
    return model.look_up(batch) if uses_embedding_table(model) else batch


def encoder_names(model: Ranker) -> tuple[str, str]:
    """The names of the methods that encode looked-up queries and documents."""
    if uses_embedding_table(model):
        return "query_words", "doc_words"
    return "encode_query", "encode_doc"


def uses_embedding_table(model: Ranker) -> TypeGuard[WordRanker]:
    """Whether a model looks up word vectors in a table first."""
    return isinstance(model, WordRanker) and all(
        getattr(type(model), name) is getattr(WordRanker, name)
        for name in ("encode_query", "encode_doc")
    )


def encode_texts(
    model: Ranker, query: Any, doc: Any, precision: str
) -> tuple[TokenEmbeddings, TokenEmbeddings]:
    """Encode looked-up queries (B, ...) and documents (B * N, ...)."""
    with autocast(precision, query[0].device):
        for_query, for_doc = (getattr(model, name) for name in encoder_names(model))
        return for_query(query), for_doc(doc)


def score_encoded(
    model: Ranker,
    words: tuple[TokenEmbeddings, TokenEmbeddings],
    first_stage: Tensor,
    precision: str,
) -> Tensor:
    """(B, N) of encoded texts: each query is encoded once for its N documents."""
    width = first_stage.shape[1]
    # Expanded, not indexed: the gradient is then a plain sum.
    each = TokenEmbeddings(
        *(part[:, None].expand(-1, width, *part.shape[1:]).flatten(0, 1) for part in words[0])
    )
    scores = score_interaction(model, each, words[1], first_stage.flatten(), precision)
    return scores.view(-1, width)


def score_interaction(
    model: Ranker, query: TokenEmbeddings, doc: TokenEmbeddings, first_stage: Tensor, precision: str
) -> Tensor:
    """Scores (B,). Kernel pooling needs float32, transformers do not."""
    rounded = precision if model.info.interacts_in_bfloat16 else "float32"
    with autocast(rounded, first_stage.device):
        score: Tensor = model.rank(query, doc, first_stage).score
    return score


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Compute products in the config's precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def make_optimizers(model: Ranker, config: OptimizerConfig) -> dict[str, Optimizer]:
    """Adam with a rate for encoders and one for the rest; sparse updates for word vectors."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    words: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.startswith("words."):
            words.append(parameter)
            continue
        key = name.split(".")[0] in model.info.encoders, parameter.ndim > 1
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
    """The learning rate schedule: it rises during warm-up, then stays or falls to zero."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "constant":
        return warm
    left = (config.steps - step) / max(1, config.steps - config.warmup)
    return min(warm, left)


class Step:
    """A step on batches of any shape."""

    def __init__(
        self,
        model: Ranker,
        optimizers: dict[str, Optimizer],
        config: TrainConfig,
        team: Team = ALONE,
        vector_teacher: Ranker | None = None,
    ) -> None:
        self._model, self._optimizers = model, optimizers
        self._config, self._team, self._vector_teacher = config, team, vector_teacher

    def gradients(self, examples: Examples) -> Tensor:
        """Compute the loss of a batch and its gradients."""
        return self._compute(self._look_up(examples), batch_targets(examples))

    def _compute(self, texts: tuple[Any, Any], targets: Sequence[Tensor]) -> Tensor:
        """The same for looked-up queries and documents and their targets."""
        config, precision = self._config, self._config.optimizer.precision
        first_stage, grades, *teacher = targets
        self._model.zero_grad(set_to_none=True)
        words = encode_texts(self._model, *texts, precision)
        scores = score_encoded(self._model, words, first_stage, precision)
        value = compute_loss(config.loss, scores, grades, teacher[0] if teacher else None)
        if self._vector_teacher is not None:
            theirs = encode_texts(self._vector_teacher, *texts, precision)
            value = value + config.loss.vectors * vector_loss(words, theirs)
        value = self._team.weigh(value, len(grades), config.sampler.batch)
        torch.autograd.backward(value)
        self._team.add_gradients(self._model.parameters())
        if config.optimizer.clip is not None:  # not of word vectors
            parameters = self._model.parameters()
            dense = [p for p in parameters if p.grad is not None and not p.grad.is_sparse]
            nn.utils.clip_grad_norm_(dense, config.optimizer.clip)
        return value.detach()

    def _look_up(self, examples: Examples) -> tuple[Any, Any]:
        return look_up(self._model, examples.query), look_up(self._model, examples.doc)

    def update(self, progress: RunProgress) -> None:
        """Update the weights with the rates of this step."""
        planned = rate_factor(progress.step, self._config.optimizer)
        for name, optimizer in self._optimizers.items():
            for group in optimizer.param_groups:
                # As in the TK authors' code, only dense rates fall on a plateau.
                factor = progress.rate_factor if name == "dense" else 1.0
                group["lr"] = group["base"] * planned * factor
            optimizer.step()


def batch_targets(examples: Examples) -> list[Tensor]:
    """First-stage scores, grades and teacher scores of a batch."""
    given = (examples.first_stage, examples.grades, examples.teacher)
    return [tensor for tensor in given if tensor is not None]
