"""Small transformers with random weights, and an index of real text that they read."""

from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import torch

from glassrank.backends.configs import EncoderConfig
from glassrank.corpus import python_docs
from glassrank.index import Index
from glassrank.models import SubwordRanker
from glassrank.models.io.model_folder import Passages, SavedModel, Usage
from glassrank.models.model import SubwordText
from glassrank.research.papers.bert import BERT, BERTConfig
from glassrank.research.papers.mores import MORES, MORESConfig
from glassrank.types import Doc

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
COMMON = ["the", "and", "return", "object", "string", "file", "list", "class", "number", "import"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{x}" for x in LETTERS), *COMMON]
USAGE = Usage(query_length=12, doc_length=40, passages=Passages(most=3))
QUERIES = ("return a list of strings", "open the file", "import an object of a class")
ENCODER = EncoderConfig(
    vocabulary=len(PIECES), size=24, layers=3, heads=3, feed_forward=32, positions=40, dropout=0.0
)


def small_mores(
    blocks: int = 2, tie: bool = False, seed: int = 1, doc_words: int | None = None
) -> SavedModel:
    torch.manual_seed(seed)
    text = SubwordText(doc_words=doc_words)
    model = MORES(MORESConfig.like(ENCODER, blocks, tie_encoders=tie, text=text))
    return SavedModel(_stronger(model), USAGE, PIECES)


def small_bert(seed: int = 1) -> SavedModel:
    torch.manual_seed(seed)
    return SavedModel(_stronger(BERT(BERTConfig(ENCODER))), USAGE, PIECES)


def _stronger(model: SubwordRanker) -> SubwordRanker:
    """With larger weights than a fresh model has, so that scores really differ."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@cache
def some_pydocs() -> list[Doc]:
    """Of all lengths, most longer than what the models read."""
    docs = islice(python_docs(), 0, 1200, 40)
    return [Doc("none", ""), Doc("one", "file"), *(replace(d, text=d.text[:400]) for d in docs)]


def small_index(folder: Path) -> Index:
    """Of two segments."""
    docs = some_pydocs()
    index = Index.build(docs[:25], folder)
    index.add(docs[25:])
    assert len(index.snapshot.segments) == 2
    return index
