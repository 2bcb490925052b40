"""BERT[CLS] and MORES: what the score loses without a word, and where their layers look. Attention
tells where a layer looks, not what that is worth, so shares are measured.

Query and document are one text to BERT, so that a document without a word is read anew, together
with the query: one text for each word, and for long documents one for each run of words. The score
is read from the last layer's [CLS]; all other rows reach it by way of the layer before.

Of MORES, as in the paper's Figure 2, attention is shown of the document module, of the query
module, and of each interaction block to the document. One block after the other is kept from
looking at a document word, while the other words keep their vectors, in which it has left its mark.
What the score loses at each step is that block's signal.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.backends.attention import make_key_bias
from glassrank.explanations.attribution import Attribution, ScoredPair, to_matrix
from glassrank.explanations.leave_one_out import (
    MOST_TEXTS,
    PIECES_APPROXIMATE,
    Units,
    ablate_doc,
    ablate_query_parts,
    make_ablation_signal,
    make_subword_marks,
    make_terms,
    scale_subwords,
    together,
)
from glassrank.explanations.reading import FIRST
from glassrank.explanations.structure import Matrix, PathShare, Side, Signal
from glassrank.explanations.subword_merging import group_subwords, merge_runs, share_evenly
from glassrank.research.papers.bert import BERT
from glassrank.research.papers.mores import MORES

BERT_ATTENTION = (
    "Attention (mean of heads) tells where a layer looks and is no part of the score; of the last "
    "layer only the row of [CLS] reaches the score."
)


def explain_bert(case: ScoredPair) -> Attribution:
    """By texts without a word, each read anew, and attention."""
    assert isinstance(case.model, BERT)
    with torch.no_grad():
        maps = case.model.interact(case.query, case.doc, explain=True).parts["attention"]
    layers = maps[0].mean(1).cpu().double()  # (layers, L, L)
    words = group_subwords(case.doc_tokens)
    runs = merge_runs(words, MOST_TEXTS)
    # An encoded document begins with a [CLS] that is no part of the joined text.
    first = 0 if _has_first(case) else 1
    lost = ablate_doc(case, [[place + first for place in run] for run in runs])
    shares = share_evenly(lost, runs, case.num_doc_tokens)
    parts = ablate_query_parts(case)
    looks = _between(case, layers[-2:][0], "query", "document")  # (Q, D)
    return Attribution(
        is_additive=False,
        parts=parts,
        signals=(make_ablation_signal(shares),),
        marks=make_subword_marks(case, runs, [shares], looks),
        rest=(together(case, shares),),
        matrices=tuple(_bert_matrices(case, layers)),
        terms=make_terms(parts),
        notes=(PIECES_APPROXIMATE, BERT_ATTENTION, *_runs(len(words), len(runs))),
    )


def _has_first(case: ScoredPair) -> bool:
    """As in an ensemble with models that read the document by itself."""
    return case.doc_tokens[:1] == (FIRST,)


def _between(case: ScoredPair, layer: Tensor, rows: Side, columns: Side) -> Tensor:
    """How much one text's pieces look at the other's: a part of (L, L)."""
    queries = len(case.query_tokens)
    skipped = [-1] if _has_first(case) else []
    docs = [*skipped, *range(queries, queries + case.num_doc_tokens - len(skipped))]
    places = {"query": list(range(queries)), "document": docs}
    padded = functional.pad(layer, (0, 1, 0, 1))  # zeros for a piece that is not there
    return padded[places[rows]][:, places[columns]]


def _bert_matrices(case: ScoredPair, layers: Tensor) -> Iterator[Matrix]:
    """Of the last layer [CLS]'s row counts; between the two texts, all rows of the one before."""
    last = len(layers)
    wanted: list[tuple[int, Side, Side]] = [(last, "query", "query"), (last, "query", "document")]
    if last > 1:
        wanted += [(last - 1, "query", "document"), (last - 1, "document", "query")]
    for layer, rows, columns in wanted:
        values = _between(case, layers[layer - 1], rows, columns)
        yield to_matrix(
            f"layer {layer}: {rows} to {columns}", values, rows, columns, attention=True
        )


def _runs(words: int, runs: int) -> Iterator[str]:
    if runs < words:
        yield (
            f"The document's {words} words were left out in {runs} runs of neighbours, which share "
            "evenly: each run is read anew."
        )


MORES_APPROXIMATE = (
    "Approximate: a document word's value is what the score loses when no block may look at it, a "
    "query word's what it loses without the word; pieces of a word share evenly, and what words do "
    "together is a part of its own."
)
MORES_ATTENTION = (
    "Attention (last layer, mean of heads) tells where a module looks and is no part of the score: "
    "the document module's has no value."
)
LARGEST = 256
"""Subwords of a document whose attention to each other is still a picture to look at."""
_PIECES_AT_ONCE = 2048


def explain_mores(case: ScoredPair) -> Attribution:
    """By words that no block may look at, and attention."""
    model = case.model
    assert isinstance(model, MORES)
    with torch.no_grad():
        maps = model.explain(case.query_batch, case.doc_batch).parts
        # As the document was ranked: a store may have rounded it.
        maps |= model.interact(case.query, case.doc, explain=True).parts
    blocks = _plain(maps["cross_attention"])  # (blocks, Q, D)
    words = group_subwords(case.doc_tokens)
    by_signal = [
        share_evenly(lost, words, case.num_doc_tokens) for lost in _lost(case, model, words)
    ]
    signals = [
        _signal(f"block {number + 1}", case, blocks[number].amax(0), values)
        for number, values in enumerate(by_signal)
    ]
    if "doc_attention" in maps:
        by_signal.append([0.0] * case.num_doc_tokens)
        weights = _plain(maps["doc_attention"])[-1].mean(0)  # (D,)
        signal = _signal("document module", case, weights, by_signal[-1])
        signals.append(replace(signal, is_highlighted=False))
    parts = ablate_query_parts(case)
    marks = make_subword_marks(case, words, by_signal, blocks[-1])
    return Attribution(
        is_additive=False,
        parts=parts,
        signals=tuple(signals),
        marks=marks,
        rest=(together(case, [mark.share for mark in marks]),),
        matrices=tuple(_mores_matrices(case, maps, blocks)),
        terms=make_terms(parts),
        notes=(MORES_APPROXIMATE, MORES_ATTENTION, *_left_out(case)),
    )


def _plain(maps: Tensor) -> Tensor:
    """(1, layers, heads, L, M) to (layers, L, M), the mean of heads."""
    return maps[0].mean(1).cpu().double()


def _signal(name: str, case: ScoredPair, weights: Tensor, values: list[float]) -> Signal:
    total = math.fsum(values)
    strength = scale_subwords(weights, case.doc_tokens)
    return Signal(name, None, None, (PathShare("words", None, None, total),), total, strength)


def _mores_matrices(case: ScoredPair, maps: dict[str, Tensor], blocks: Tensor) -> Iterator[Matrix]:
    """In the order of the paper's Figure 2."""
    if "doc_attention" in maps and case.num_doc_tokens <= LARGEST:
        layers = _plain(maps["doc_attention"])
        name = f"document module, layer {len(layers)}"
        yield to_matrix(name, layers[-1], rows="document", attention=True)
    if "query_attention" in maps:
        layers = _plain(maps["query_attention"])
        yield to_matrix(
            f"query module, layer {len(layers)}", layers[-1], columns="query", attention=True
        )
    for number, block in enumerate(blocks):
        yield to_matrix(f"block {number + 1}: query to document", block, attention=True)


def _left_out(case: ScoredPair) -> Iterator[str]:
    if case.num_doc_tokens > LARGEST:
        yield (
            f"The document module's matrix is left out: {case.num_doc_tokens} pieces, and "
            f"{LARGEST} are the most that are drawn."
        )


@torch.no_grad()
def _lost(case: ScoredPair, model: MORES, words: Units) -> list[list[float]]:
    """For each block, what the score loses when it may not look at each word either, after the
    blocks before it. The sum over blocks is what is lost when none may."""
    mask = case.doc.mask  # (1, D)
    lost: list[list[float]] = [[] for _ in model.interaction.stack()]
    step = max(1, _PIECES_AT_ONCE // mask.shape[1])
    for start in range(0, len(words), step):
        case.check_deadline()
        some = words[start : start + step]
        hidden = mask.repeat(len(some), 1)  # (B, D)
        for row, places in enumerate(some):
            hidden[row, list(places)] = 0
        before = _scores(case, model, [mask] * len(lost)).expand(len(some))  # (B,)
        for block, block_losses in enumerate(lost):
            masks = [hidden if number <= block else mask for number in range(len(lost))]
            after = _scores(case, model, masks)  # (B,)
            block_losses += (before - after).tolist()
            before = after
    return lost


def _scores(case: ScoredPair, model: MORES, masks: list[Tensor]) -> Tensor:
    """Of one document, of which each block sees what its mask (1 or B, D) shows: (1 or B,)."""
    interaction = model.interaction
    head = interaction.head
    doc = case.doc if case.doc.vectors.dim() == 5 else model.project(case.doc)
    vectors = doc.vectors.to(head.weight)  # (1, D, blocks, 2, H)
    vectors = vectors.expand(max(map(len, masks)), *vectors.shape[1:])
    query_bias = make_key_bias(case.query.mask, vectors)
    x = case.query.vectors.to(head.weight)  # (1, Q, H)
    for number, (block, mask) in enumerate(zip(interaction.stack(), masks, strict=True)):
        x = block(x, vectors[:, :, number], query_bias, make_key_bias(mask, vectors))  # (B, Q, H)
    logits = functional.linear(x[:, 0].float(), head.weight.float(), head.bias.float())
    score = logits[:, 1] - logits[:, 0] if interaction.config.two_logits else logits[:, 0]
    return score.double()
