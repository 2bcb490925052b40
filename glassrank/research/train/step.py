"""What one training step does: scores of a batch, their loss, gradients, and how far each weight
moves."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer, SparseAdam

from glassrank.models import Ranker, TokenBatch, TokenEmbeddings, WordRanker
from glassrank.research.train.batches import Examples
from glassrank.research.train.config import OptimizerConfig, TrainConfig
from glassrank.research.train.distributed import ALONE, Team
from glassrank.research.train.losses import loss
from glassrank.research.train.smaller import apart
from glassrank.research.train.state import RunProgress


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
    texts = look_up(model, examples.query), look_up(model, examples.doc)
    words = encoded(model, *texts, precision)
    return scores_of_words(model, words, examples.first_stage, precision)


def encoded(
    model: Ranker, query: Any, doc: Any, precision: str
) -> tuple[TokenEmbeddings, TokenEmbeddings]:
    """Of looked-up texts: queries (B, ...), and documents (B * N, ...)."""
    with rounding(precision, query[0].device):
        for_query, for_doc = (getattr(model, name) for name in encoders_of(model))
        return for_query(query), for_doc(doc)


def scores_of_words(
    model: Ranker,
    words: tuple[TokenEmbeddings, TokenEmbeddings],
    first_stage: Tensor,
    precision: str,
) -> Tensor:
    """(B, N) of encoded texts."""
    width = first_stage.shape[1]
    # Repeated so, and not looked up by its number: the gradient is then a plain sum.
    each = TokenEmbeddings(
        *(part[:, None].expand(-1, width, *part.shape[1:]).flatten(0, 1) for part in words[0])
    )
    return met(model, each, words[1], first_stage.flatten(), precision).view(-1, width)


def pair_scores(
    model: Ranker, query: TokenEmbeddings, doc: Any, first_stage: Tensor, precision: str = "float32"
) -> Tensor:
    """(B,): each looked-up document with its encoded query."""
    with rounding(precision, first_stage.device):
        words: TokenEmbeddings = getattr(model, encoders_of(model)[1])(doc)
    return met(model, query, words, first_stage, precision)


def met(
    model: Ranker, query: TokenEmbeddings, doc: TokenEmbeddings, first_stage: Tensor, precision: str
) -> Tensor:
    """(B,). Soft counts need float32, transformers do not."""
    rounded = precision if model.info.interacts_in_bfloat16 else "float32"
    with rounding(rounded, first_stage.device):
        score: Tensor = model.rank(query, doc, first_stage).score
    return score


def batch_loss(
    model: Ranker,
    whole: Ranker | None,
    config: TrainConfig,
    texts: tuple[Any, Any],
    beside: Sequence[Tensor],
) -> Tensor:
    """Of looked-up queries and documents; beside them first-stage scores, grades and, where there
    is a teacher, its scores. With a `whole` model, its vectors are learned too."""
    first_stage, grades, *teacher = beside
    precision = config.optimizer.precision
    words = encoded(model, *texts, precision)
    scores = scores_of_words(model, words, first_stage, precision)
    value = loss(config.loss, scores, grades, teacher[0] if teacher else None)
    if whole is None:
        return value
    return value + config.loss.vectors * apart(words, encoded(whole, *texts, precision))


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
        whole: Ranker | None = None,
    ) -> None:
        self._model, self._optimizers = model, optimizers
        self._config, self._team, self._whole = config, team, whole

    def gradients(self, examples: Examples) -> Tensor:
        """The loss of a batch, and its gradients beside the weights."""
        texts = self._looked_up(examples)
        value = batch_loss(self._model, self._whole, self._config, texts, given_beside(examples))
        value = self._team.weighed(value, len(examples.grades), self._config.sampler.batch)
        self._model.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        self._team.add_gradients(self._model.parameters())
        clip(self._model, self._config.optimizer.clip)
        return value.detach()

    def _looked_up(self, examples: Examples) -> tuple[Any, Any]:
        return look_up(self._model, examples.query), look_up(self._model, examples.doc)

    def update(self, progress: RunProgress) -> None:
        """Weights move by these gradients, at the rates of this step."""
        planned = rate_factor(progress.step, self._config.optimizer)
        for name, optimizer in self._optimizers.items():
            for group in optimizer.param_groups:
                # As in the authors' code, only the dense rates fall when dev stops improving.
                factor = progress.rate_factor if name == "dense" else 1.0
                group["lr"] = group["base"] * planned * factor
            optimizer.step()


def given_beside(examples: Examples) -> list[Tensor]:
    """What belongs to a batch beside its texts."""
    given = (examples.first_stage, examples.grades, examples.teacher)
    return [tensor for tensor in given if tensor is not None]


def clip(model: nn.Module, largest: float | None) -> None:
    """Gradients of all but word vectors, to this length together."""
    if largest is not None:
        dense = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
        nn.utils.clip_grad_norm_(dense, largest)
