"""Small models with a vocabulary of their own, and the example of the TK paper."""

import math

import torch
from hypothesis import strategies as st

from glassrank.explanations import Explanation
from glassrank.models import MODELS, EmbeddingTable, Output, Ranker, TokenBatch
from glassrank.models.io.model_folder import Passages, SavedModel, Usage
from glassrank.rerank import Reranker
from glassrank.research.papers.ensemble import Ensemble
from glassrank.settings import from_plain
from glassrank.text import split_words

QUERY = "androgen receptor define"
DEFINITION = (
    "The androgen receptor (AR), also known as NR3C4, is a type of nuclear receptor: a protein "
    "that binds hormones in cells."
)
THERAPY = (
    "Androgen therapy is given to men with low hormones; doctors study how androgen levels "
    "change in the body after weeks of treatment."
)
WORDS = [
    "<pad>",
    "<unk>",
    *sorted({*split_words(QUERY), *split_words(DEFINITION), *split_words(THERAPY)} - {"nr3c4"}),
]

CONTEXT = {"layers": 1, "heads": 2, "attention_size": 4, "feed_forward": 8}
SMALL: dict[str, dict[str, object]] = {
    "tk": {"size": 8, "contextual": CONTEXT, "term_weights": True},
    "tk_windowed": {"size": 8, "contextual": CONTEXT, "windows": [4, 6], "longest_doc": 24},
    "tkl": {"size": 8, "contextual": CONTEXT, "chunk": 6, "overlap": 2, "window": 6, "regions": 2},
    "knrm": {"size": 8},
    "conv_knrm": {"size": 8, "channels": 6},
    "matchpyramid": {"size": 8, "channels": [4, 4], "pools": [[6, 9], [3, 4]], "hidden": [8, 4]},
    "duet": {"size": 8, "hidden": 6, "query_length": 9, "doc_length": 30, "doc_pool": 5},
    "pacrr": {"size": 8, "query_length": 9, "doc_length": 40, "filters": 4, "hidden": [6, 6]},
    "co_pacrr": {"size": 8, "query_length": 9, "doc_length": 40, "filters": 4, "hidden": [6, 6]},
    "rpacrr": {"size": 8, "query_length": 9, "doc_length": 40, "filters": 4, "hidden": [6, 6]},
}
ADDITIVE = ("tk", "tk_windowed", "tkl", "knrm", "conv_knrm")
APPROXIMATE = tuple(name for name in SMALL if name not in ADDITIVE)


def small_ranker(name: str, seed: int = 0, **changes: object) -> Ranker:
    """With weights that are larger than a fresh model's, so that scores really differ."""
    torch.manual_seed(seed)
    vectors = torch.randn(len(WORDS), 8)
    vectors[0] = 0
    table = EmbeddingTable(vectors, torch.rand(len(WORDS)), trained=False)
    family = MODELS[name]
    model = family(from_plain(family.info.config_type, {**SMALL[name], **changes}), table)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if not parameter_name.startswith("words."):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def reranker(
    model: Ranker, query_length: int = 30, doc_length: int = 200, most_passages: int = 64
) -> Reranker:
    usage = Usage(query_length, doc_length, passages=Passages(most=most_passages))
    return Reranker(SavedModel(model, usage, WORDS), exact=True)


def small_ensemble() -> Ensemble:
    """Members that read less than the ensemble is given."""
    members = [small_ranker("tk"), small_ranker("knrm", 1), small_ranker("pacrr", 2)]
    return Ensemble(members, [(6, 14), (2, 20), (4, 9)])


def make_batch(text: str) -> TokenBatch:
    ids = [WORDS.index(word) if word in WORDS else 1 for word in split_words(text)]
    return TokenBatch(torch.tensor([ids]), torch.ones(1, len(ids)))


def own_output(model: Ranker, query: str, text: str) -> Output:
    """The contract's three calls, with nothing in between."""
    with torch.no_grad():
        return model.interact(
            model.encode_query(make_batch(query)), model.encode_doc(make_batch(text))
        )


def size_of(explanation: Explanation) -> float:
    """Against which rounding is measured: what was added up, signs aside."""
    return math.fsum(abs(leaf.value) for leaf in explanation.parts.leaves())


some_words = st.lists(st.sampled_from([*WORDS[2:], "zebra"]), max_size=12).map(" ".join)
