"""PACRR and CO-PACRR from the weights of TK's authors."""

from collections.abc import Callable
from functools import partial

from glassrank.models.torch_models import Ranker
from glassrank.research.papers.pacrr import PACRR, CoPACRR
from tests.parity.authors import Description, Weights, tk_authors

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


def build(family: type[PACRR], description: Description, weights: Weights) -> Ranker:
    hyper = description["hyper"]
    query_length, doc_length = hyper["unified_query_length"], hyper["unified_document_length"]
    config = tk_authors(family, query_length=query_length, doc_length=doc_length)
    return load(family(config), weights)


BUILDERS: dict[str, Callable[[Description, Weights], Ranker]] = {
    "pacrr": partial(build, PACRR),
    "co_pacrr": partial(build, CoPACRR),
}
