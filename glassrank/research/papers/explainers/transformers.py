"""BERT[CLS] and MORES: ablation, and attention maps. Attention says where a layer looks, not what
that is worth, so shares are measured by ablation.

BERT reads query and document as one text, so each ablation encodes both again: one text for each
word, or for each run of words of a long document. The score is computed from the last layer's
[CLS]; all other tokens reach it through the layer before.

For MORES, as in Figure 2 of the paper, attention is shown of the document module, of the query
module, and of each interaction block to the document. One block after the other is kept from
attending to a document word, while the other words keep their vectors, which the word has
influenced. What the score loses at each step is that block's signal.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.backends.attention import make_key_bias
from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    make_signal,
    to_matrix,
)
from glassrank.explanations.leave_one_out import (
    MAX_ABLATIONS,
    SUBWORDS_APPROXIMATE,
    Units,
    ablate_doc,
    attribute_to_subwords,
    make_ablation_signal,
    scale_subwords,
)
from glassrank.explanations.reading import FIRST
from glassrank.explanations.structure import Matrix, Side, Signal
from glassrank.explanations.subword_merging import group_subwords, merge_runs, share_evenly
from glassrank.research.papers.bert import BERT
from glassrank.research.papers.mores import MORES

BERT_ATTENTION = (
    "Attention (mean of heads) says where a layer looks and is no part of the score; of the last "
    "layer only the row of [CLS] reaches the score."
)


def explain_bert(pair: ScoredPair) -> Attribution:
    """By ablation, and attention maps."""
    assert isinstance(pair.model, BERT)
    with torch.no_grad():
        maps = pair.model.interact(pair.query, pair.doc, explain=True).parts["attention"]
    layers = _average_heads(maps)  # (layers, L, L)
    words = group_subwords(pair.doc_tokens)
    runs = merge_runs(words, MAX_ABLATIONS)
    # An encoded document begins with a [CLS] that is no part of the joined text.
    first = 0 if _has_first(pair) else 1
    lost = ablate_doc(pair, [[place + first for place in run] for run in runs])
    shares = share_evenly(lost, runs, pair.num_doc_tokens)
    attention = _select_attention(pair, layers[-2:][0], "query", "document")  # (Q, D)
    signals, matrices = [make_ablation_signal(shares)], _bert_matrices(pair, layers)
    notes = [SUBWORDS_APPROXIMATE, BERT_ATTENTION]
    if len(runs) < len(words):
        notes.append(
            f"The document's {len(words)} words are left out in {len(runs)} runs of neighbours, "
            "which share evenly: each run is one more text to read."
        )
    return attribute_to_subwords(pair, runs, signals, [shares], attention, matrices, notes)


def _has_first(pair: ScoredPair) -> bool:
    """As in an ensemble with models that read the document by itself."""
    return pair.doc_tokens[:1] == (FIRST,)


def _select_attention(pair: ScoredPair, layer: Tensor, rows: Side, columns: Side) -> Tensor:
    """Attention from one text's subwords to the other's: a part of (L, L)."""
    queries = len(pair.query_tokens)
    skipped = [-1] if _has_first(pair) else []
    docs = [*skipped, *range(queries, queries + pair.num_doc_tokens - len(skipped))]
    places = {"query": list(range(queries)), "document": docs}
    padded = functional.pad(layer, (0, 1, 0, 1))  # zeros for a missing token
    return padded[places[rows]][:, places[columns]]


def _bert_matrices(pair: ScoredPair, layers: Tensor) -> Iterator[Matrix]:
    """Of the last layer the row of [CLS] counts, of the layer before all rows between the texts."""
    last = len(layers)
    wanted: list[tuple[int, Side, Side]] = [(last, "query", "query"), (last, "query", "document")]
    if last > 1:
        wanted += [(last - 1, "query", "document"), (last - 1, "document", "query")]
    for layer, rows, columns in wanted:
        values = _select_attention(pair, layers[layer - 1], rows, columns)
        yield to_matrix(
            f"layer {layer}: {rows} to {columns}", values, rows, columns, attention=True
        )


MORES_APPROXIMATE = (
    "Approximate: a document word's value is what the score loses when no block attends to it, a "
    "query word's what it loses without the word; subwords of a word share evenly, and what words "
    "add together is a part of its own."
)
MORES_ATTENTION = (
    "Attention (last layer, mean of heads) says where a module looks and is no part of the score: "
    "the document module's has no value."
)
MAX_DRAWN = 256
"""Subwords of a document whose attention to each other is still a picture to look at."""
_TOKENS_AT_ONCE = 2048


def explain_mores(pair: ScoredPair) -> Attribution:
    """By hiding words from each block, and attention maps."""
    model = pair.model
    assert isinstance(model, MORES)
    with torch.no_grad():
        maps = model.explain(pair.query_batch, pair.doc_batch).parts
        # With the document as it was ranked: a store may have rounded it.
        maps |= model.interact(pair.query, pair.doc, explain=True).parts
    blocks = _average_heads(maps["cross_attention"])  # (blocks, Q, D)
    words = group_subwords(pair.doc_tokens)
    by_signal = [
        share_evenly(lost, words, pair.num_doc_tokens)
        for lost in _ablate_blocks(pair, model, words)
    ]
    signals = [
        _make_signal(f"block {number + 1}", pair, blocks[number].amax(0), values)
        for number, values in enumerate(by_signal)
    ]
    if "doc_attention" in maps:
        by_signal.append([0.0] * pair.num_doc_tokens)
        weights = _average_heads(maps["doc_attention"])[-1].mean(0)  # (D,)
        signal = _make_signal("document module", pair, weights, by_signal[-1])
        signals.append(replace(signal, is_highlighted=False))
    notes = [MORES_APPROXIMATE, MORES_ATTENTION]
    if pair.num_doc_tokens > MAX_DRAWN:
        notes.append(
            f"The document module's matrix is left out: it has {pair.num_doc_tokens} tokens, and "
            f"at most {MAX_DRAWN} are drawn."
        )
    matrices = _mores_matrices(pair, maps, blocks)
    return attribute_to_subwords(pair, words, signals, by_signal, blocks[-1], matrices, notes)


def _average_heads(maps: Tensor) -> Tensor:
    """(1, layers, heads, L, M) to (layers, L, M), the mean of heads."""
    return maps[0].mean(1).cpu().double()


def _make_signal(name: str, pair: ScoredPair, weights: Tensor, values: list[float]) -> Signal:
    strength = scale_subwords(weights, pair.doc_tokens)
    return make_signal(name, {"words": math.fsum(values)}, strength)


def _mores_matrices(pair: ScoredPair, maps: dict[str, Tensor], blocks: Tensor) -> Iterator[Matrix]:
    """In the order of the paper's Figure 2."""
    modules: dict[str, Side] = {"doc_attention": "document", "query_attention": "query"}
    for part, side in modules.items():
        if part in maps and (side == "query" or pair.num_doc_tokens <= MAX_DRAWN):
            layers = _average_heads(maps[part])
            name = f"{side} module, layer {len(layers)}"
            yield to_matrix(name, layers[-1], side, side, attention=True)
    for number, block in enumerate(blocks):
        yield to_matrix(f"block {number + 1}: query to document", block, attention=True)


@torch.no_grad()
def _ablate_blocks(pair: ScoredPair, model: MORES, words: Units) -> list[list[float]]:
    """For each block, what the score loses when each word is hidden from it too, after the blocks
    before it. The sum over blocks is what is lost when the word is hidden from all."""
    mask = pair.doc.mask  # (1, D)
    lost: list[list[float]] = [[] for _ in model.interaction.stack()]
    step = max(1, _TOKENS_AT_ONCE // mask.shape[1])
    for start in range(0, len(words), step):
        pair.deadline.check("this explanation")
        some = words[start : start + step]
        hidden = mask.repeat(len(some), 1)  # (B, D)
        for row, places in enumerate(some):
            hidden[row, list(places)] = 0
        before = _scores(pair, model, [mask] * len(lost)).expand(len(some))  # (B,)
        for block, block_losses in enumerate(lost):
            masks = [hidden if number <= block else mask for number in range(len(lost))]
            after = _scores(pair, model, masks)  # (B,)
            block_losses += (before - after).tolist()
            before = after
    return lost


def _scores(pair: ScoredPair, model: MORES, masks: list[Tensor]) -> Tensor:
    """Scores (1 or B,) of one document; each block reads what its mask (1 or B, D) shows."""
    interaction = model.interaction
    weight = interaction.head.weight
    doc = pair.doc if pair.doc.vectors.dim() == 5 else model.project(pair.doc)
    vectors = doc.vectors.to(weight)  # (1, D, blocks, 2, H)
    vectors = vectors.expand(max(map(len, masks)), *vectors.shape[1:])
    query_bias = make_key_bias(pair.query.mask, vectors)
    x = pair.query.vectors.to(weight)  # (1, Q, H)
    for number, (block, mask) in enumerate(zip(interaction.stack(), masks, strict=True)):
        x = block(x, vectors[:, :, number], query_bias, make_key_bias(mask, vectors))  # (B, Q, H)
    return interaction.to_score(interaction.logits(x[:, 0])).double()
