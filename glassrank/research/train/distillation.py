"""Distillation of token vectors, hundreds of values for each token of each text, judged or not:
V. Sanh et al., "DistilBERT, a distilled version of BERT", 2019.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from glassrank.errors import InputError
from glassrank.models import Ranker, TokenBatch, TokenEmbeddings
from glassrank.models.bi_encoders import LateInteraction

_RIDGE = 1e-4  # ridge of the least squares, relative to the states' mean square


@torch.no_grad()
def fit_projection(small: Ranker, teacher: Ranker, docs: Iterable[TokenBatch]) -> None:
    """Set the small model's projection by least squares: nearest to the teacher's vectors."""
    assert isinstance(small, LateInteraction)
    size = small.config.encoder.size
    moment = small.projection.weight.new_zeros(size, size, dtype=torch.float64)  # (H, H)
    wanted = moment.new_zeros(size, small.config.size)  # (H, E)
    for batch in docs:
        real = batch.mask > 0
        states = small.encoder(batch.ids, batch.mask)[real].double()  # (T, H)
        vectors = teacher.encode_doc(batch).vectors[real].double()  # (T, E)
        moment += states.T @ states
        wanted += states.T @ vectors
    moment += _RIDGE * moment.diagonal().mean() * torch.eye(size, device=moment.device)
    if moment.any():
        small.projection.weight.copy_(torch.linalg.solve(moment, wanted).T)


def freeze_teacher(model: Ranker) -> Ranker:
    """The model in evaluation mode, without gradients."""
    if not isinstance(model, LateInteraction):
        raise InputError(
            f"loss.vectors: start.model must be a kernel_bert or maxsim, found {model.name}"
        )
    return model.eval().requires_grad_(False)


def vector_loss(
    ours: tuple[TokenEmbeddings, TokenEmbeddings], theirs: tuple[TokenEmbeddings, TokenEmbeddings]
) -> Tensor:
    """The mean of 1 - cosine over tokens, plus the squared difference of query weights."""
    (query, doc), (teacher_query, teacher_doc) = ours, theirs
    query_mask, doc_mask = teacher_query.mask, teacher_doc.mask
    return (
        _masked_mean(1 - (query.vectors * teacher_query.vectors).sum(-1), query_mask)
        + _masked_mean(1 - (doc.vectors * teacher_doc.vectors).sum(-1), doc_mask)
        + _masked_mean((query.idf - teacher_query.idf).pow(2), query_mask)
    )


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)
