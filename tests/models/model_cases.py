"""Small models and random inputs that tests of every model share."""

import torch

from glassrank.models import MODELS, Ranker, TokenBatch, TokenEmbeddings
from glassrank.settings import from_plain

SMALL = {
    "tk": {
        "size": 12,
        "contextual": {"layers": 2, "heads": 2, "attention_size": 4, "feed_forward": 8},
    },
    "tk_windowed": {
        "size": 12,
        "contextual": {"layers": 1, "heads": 2, "attention_size": 4, "feed_forward": 8},
        "windows": [3, 5],
        "longest_doc": 20,
    },
    "tkl": {
        "size": 12,
        "contextual": {"layers": 1, "heads": 2, "attention_size": 4, "feed_forward": 8},
        "chunk": 4,
        "overlap": 1,
        "window": 4,
        "regions": 2,
        "neighbours": 1,
    },
    "knrm": {"size": 12},
    "conv_knrm": {"size": 12, "channels": 6},
    "matchpyramid": {
        "size": 12,
        "channels": [4, 4],
        "pools": [[6, 9], [3, 4]],
        "hidden": [8, 4],
    },
    "duet": {
        "size": 12,
        "hidden": 8,
        "query_length": 9,
        "doc_length": 16,
        "doc_pool": 4,
        "dropout": 0.0,
        "local": "cosine",
    },
    "pacrr": {"size": 12, "query_length": 9, "doc_length": 30, "filters": 4, "hidden": [6, 6]},
    "co_pacrr": {"size": 12, "query_length": 9, "doc_length": 30, "filters": 4, "hidden": [6, 6]},
    "rpacrr": {
        "size": 12,
        "query_length": 9,
        "doc_length": 30,
        "filters": 4,
        "hidden": [6, 6],
        "dropout": 0.0,
    },
}

_ENCODER = {
    "vocabulary": 40,
    "size": 12,
    "layers": 2,
    "heads": 3,
    "feed_forward": 16,
    "positions": 24,
    "dropout": 0.0,
}
# Transformers over pieces: they have vectors of their own, so other tests are theirs.
SMALL_PIECES = {
    "bert": {"encoder": _ENCODER},
    "mores": {"document": {**_ENCODER, "size": 9}, "query": {**_ENCODER, "layers": 1}},
    "kernel_bert": {"encoder": _ENCODER, "size": 8},
    "maxsim": {"encoder": _ENCODER, "size": 8},
    "single_vector": {"encoder": _ENCODER},
}


def small_model(name: str, seed: int = 0, **changes: object) -> Ranker:
    """With larger weights than a fresh model has, so that scores really differ."""
    torch.manual_seed(seed)
    family = MODELS[name]
    plain = {**(SMALL | SMALL_PIECES)[name], **changes}
    model = family(from_plain(family.info.config_type, plain))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def random_words(lengths: list[int], width: int, size: int = 12, seed: int = 0) -> TokenEmbeddings:
    """Word vectors (B, width, size) with trailing padding, which holds zeros."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).float()
    vectors = torch.randn(len(lengths), width, size, generator=generator) * mask[..., None]
    return TokenEmbeddings(
        vectors, mask, torch.rand(len(lengths), width, generator=generator) * mask
    )


def widened(words: TokenEmbeddings, extra: int, garbage: bool = False) -> TokenEmbeddings:
    """The same words with more padding, which may hold anything where a model masks."""
    batch, _, size = words.vectors.shape
    padding = torch.randn(batch, extra, size) if garbage else torch.zeros(batch, extra, size)
    zeros = torch.zeros(batch, extra)
    return TokenEmbeddings(
        torch.cat([words.vectors, padding], 1),
        torch.cat([words.mask, zeros], 1),
        torch.cat([words.idf, zeros], 1),
    )


def score(model: Ranker, query: TokenEmbeddings, doc: TokenEmbeddings) -> torch.Tensor:
    with torch.no_grad():
        return model.interact(model.query_words(query), model.doc_words(doc)).score


def piece_batch(lengths: list[int], seed: int = 0) -> TokenBatch:
    """Texts of pieces: 1 for [CLS], 2 for [SEP], anything between, zeros after."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(3, 40, mask.shape, generator=generator) * mask
    ids[:, 0] = 1
    ids[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = 2
    return TokenBatch(ids, mask.float())


def widened_ids(batch: TokenBatch, extra: int) -> TokenBatch:
    """The same texts with more padding, which may hold anything."""
    rows = len(batch.ids)
    ids = torch.cat([batch.ids, torch.randint(0, 40, (rows, extra))], 1)
    return TokenBatch(ids, torch.cat([batch.mask, torch.zeros(rows, extra)], 1))
