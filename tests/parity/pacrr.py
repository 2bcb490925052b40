"""PACRR and CO-PACRR from the weights of TK's authors."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from glassrank.models.torch_models import Ranker
from glassrank.research.papers.pacrr import PACRR, CoPACRR, CoPACRRConfig, PACRRConfig

Weights = dict[str, Tensor]
Description = dict[str, Any]

_NAMES = {
    "convolutions.0.1": "ngrams.convolutions.0",
    "convolutions.1.1": "ngrams.convolutions.1",
    "dense": "combine.hidden.0",
    "dense2": "combine.hidden.1",
    "dense3": "combine.last",
}


def load(model: Ranker, weights: Weights) -> Ranker:
    """Every weight must have a name of ours: none is left out unnoticed."""
    renamed = {}
    for name, tensor in weights.items():
        module, kind = name.rsplit(".", 1)
        renamed[f"{_NAMES[module]}.{kind}"] = tensor
    model.load_state_dict(renamed)
    return model


def _lengths(description: Description) -> tuple[int, int]:
    hyper = description["hyper"]
    return hyper["unified_query_length"], hyper["unified_document_length"]


def pacrr(description: Description, weights: Weights) -> Ranker:
    return load(PACRR(PACRRConfig.tk_authors(*_lengths(description))), weights)


def co_pacrr(description: Description, weights: Weights) -> Ranker:
    return load(CoPACRR(CoPACRRConfig.tk_authors(*_lengths(description))), weights)


BUILDERS: dict[str, Callable[[Description, Weights], Ranker]] = {
    "pacrr": pacrr,
    "co_pacrr": co_pacrr,
}
