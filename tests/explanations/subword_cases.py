"""Small transformers with a vocabulary of pieces, as model folders and as rerankers."""

from functools import partial
from pathlib import Path

import pytest
import torch
from explain_cases import DEFINITION, QUERY, THERAPY

from glassrank.explanations import Explanation, explain
from glassrank.explanations.structure import Matrix
from glassrank.models import MODELS, SubwordRanker, TokenBatch
from glassrank.models.io.model_folder import Passages, SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Reranker
from glassrank.settings import from_plain
from glassrank.text import split_words

pytest.importorskip("tokenizers")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_WHOLE = sorted({*split_words(QUERY), *split_words(DEFINITION), *split_words(THERAPY)})
BROKEN = ("androgen", "receptor", "therapy", "nr3c4")
SUBWORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("##tor", "##gen", "andro", "recep", "caf", "thera", "##py"),
    *"()[],;:.!?<>&'\"-",
    *("\u1112", "##\u1161", "##\u11ab"),  # the three letters of the Korean syllable \ud55c
    *(word for word in _WHOLE if len(word) > 1 and word not in BROKEN),
]

_ENCODER = {
    "vocabulary": len(SUBWORDS),
    "size": 12,
    "layers": 2,
    "heads": 3,
    "feed_forward": 16,
    "positions": 64,
    "dropout": 0.0,
}
SMALL_SUBWORD_MODELS: dict[str, dict[str, object]] = {
    "bert": {"encoder": _ENCODER},
    "mores": {"document": {**_ENCODER, "size": 9}, "query": {**_ENCODER, "layers": 1}},
    "kernel_bert": {"encoder": _ENCODER, "size": 8},
    "maxsim": {"encoder": _ENCODER, "size": 8},
    "single_vector": {"encoder": _ENCODER},
}
explain_subwords = partial(explain, subwords=True)
"""By pieces, as the models read them: what is measured, before it is added up for words."""

TRANSFORMERS = ("bert", "mores")
"""Whose explanations are approximate, and show attention."""
VARIANTS = [
    ("bert", {}),
    ("bert", {"pooler": False, "text": {"doc_words": 9, "query_words": 2}}),
    ("mores", {}),
    ("mores", {"reuse": "s2", "two_logits": True}),
    ("mores", {"blocks": 1, "text": {"doc_words": 9, "query_words": 2}}),
    (
        "mores",
        {
            "blocks": 3,
            "query": {
                "vocabulary": len(SUBWORDS),
                "layers": 0,
                "size": 12,
                "heads": 3,
                "feed_forward": 8,
                "positions": 64,
            },
        },
    ),
]


def make_subword_ranker(name: str, seed: int = 0, **changes: object) -> SubwordRanker:
    """With weights that are larger than a fresh model's, so that scores really differ."""
    torch.manual_seed(seed)
    family = MODELS[name]
    model = family(from_plain(family.info.config_type, {**SMALL_SUBWORD_MODELS[name], **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    assert isinstance(model, SubwordRanker)
    return model.eval()


def make_subword_reranker(
    model: SubwordRanker, query_length: int = 16, doc_length: int = 48, most_passages: int = 64
) -> Reranker:
    usage = Usage(query_length, doc_length, passages=Passages(most=most_passages))
    return Reranker(SavedModel(model, usage, SUBWORDS), exact=True)


def make_subword_folder(folder: Path, name: str, **changes: object) -> Path:
    """As a trained one would be saved."""
    save_model(folder, make_subword_ranker(name, **changes), Usage(16, 48), SUBWORDS, "# card\n")
    return folder


def own_reranker(name: str, **changes: object) -> Reranker:
    return make_subword_reranker(make_subword_ranker(name, **changes))


def texts(found: Explanation) -> tuple[list[str], list[str]]:
    return [word.text for word in found.query.words], [word.text for word in found.doc.words]


def by_name(found: Explanation) -> dict[str, Matrix]:
    return {matrix.name: matrix for matrix in found.matrices}


def make_batch(pieces: list[str]) -> TokenBatch:
    ids = torch.tensor([[SUBWORDS.index(piece) for piece in pieces]])
    return TokenBatch(ids, torch.ones(ids.shape))
