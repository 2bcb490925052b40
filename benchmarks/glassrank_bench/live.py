"""Live encoding of real passages, against the authors' formulation of the same model."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.models import TokenBatch
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import SPECIAL_WORDS, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Reranker, load
from glassrank.research.papers.contextual import ContextualLayer, ContextualLayers, positions
from glassrank.text import pad, split_words
from glassrank_bench.measuring import Result, medians_ms
from glassrank_bench.workloads import questions, random_tk, texts

DOCS, AT_ONCE = 512, 256
LONGEST = 200


def against_the_authors(path: Path | None = None) -> Sequence[Result]:
    """The same 512 documents: ours from texts to scores; theirs from word ids, which are given to
    it, in two batches of 256 padded to the longest, with the whole attention matrix, in float32.
    Both read the first words of a document, since theirs has no passages."""
    some = [" ".join(split_words(text)[:LONGEST]) for text in texts(path)[:DOCS]]
    with tempfile.TemporaryDirectory() as folder:
        saved = _saved_tk(Path(folder) / "tk", some)
        reranker, plain = load(saved), Reranker(load_model(saved))
    ids = [reranker.vocabulary.ids(split_words(text)) for text in some]
    query = questions(1)[0]
    ours, theirs = medians_ms(
        [lambda: reranker.scores(query, some), lambda: _authors(plain, query, ids)], repeats=3
    )
    details: dict[str, float | str] = {
        "ours_docs_per_s": len(some) / ours * 1000,
        "theirs_docs_per_s": len(some) / theirs * 1000,
        "words": sum(min(len(row), LONGEST) for row in ids) / len(ids),
    }
    name = "live TK on passages as they come, against the authors' formulation"
    return [Result(name, theirs / ours, "times", 4.0, details=details)]


def _saved_tk(folder: Path, some: Sequence[str]) -> Path:
    """One that knows the words of these texts."""
    words = [*SPECIAL_WORDS, *sorted({word for text in some for word in split_words(text)})]
    usage = Usage(30, LONGEST, None, "bm25")
    save_model(folder, random_tk(words=len(words)), usage, words, "not trained")
    return folder


@torch.no_grad()
def _authors(reranker: Reranker, query: str, ids: Sequence[NDArray[np.int32]]) -> Tensor:
    model, longest = reranker.model, reranker.usage.doc_length
    encoded = reranker.encode_query(query)
    found = []
    for begin in range(0, len(ids), AT_ONCE):
        padded, mask = pad([row[:longest] for row in ids[begin : begin + AT_ONCE]])
        batch = TokenBatch(torch.from_numpy(padded), torch.from_numpy(mask).float())
        assert model.words is not None
        words = model.words(batch)
        vectors = authors_contextual(model.contextual, words.vectors, words.mask)
        unit = vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-13)
        docs = words._replace(vectors=unit)
        found.append(model.interact(model.expand(encoded, len(padded)), docs).score)
    return torch.cat(found)


def authors_contextual(layers: ContextualLayers, vectors: Tensor, mask: Tensor) -> Tensor:
    """The same numbers as `ContextualLayers`, with attention written out."""
    words = vectors * mask[..., None]  # (B, L, E)
    context = words + positions(words)
    allowed = ((1 - mask) * -1e32)[:, None, None, :]  # (B, 1, 1, L)
    for layer in layers.layers:
        assert isinstance(layer, ContextualLayer)
        h = layer.feed_forward_norm(layer.feed_forward(context) + context)
        split = torch.unflatten(layer.query_key_value(h), -1, (3, layer.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (B, H, L, A)
        attention = torch.softmax(query @ key.transpose(-1, -2) * layer.scale + allowed, -1)
        joined = (attention @ value).transpose(1, 2).flatten(2)
        context = layer.attention_norm(layer.output(joined) + h)
    return (layers.mix * words + (1 - layers.mix) * context) * mask[..., None]
