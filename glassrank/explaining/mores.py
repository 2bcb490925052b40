"""MORES: where its modules and blocks look, and what the score loses when a word is out of sight.

As in the paper's Figure 2, attention is shown of the document module, of the query module, and of
each interaction block to the document. Attention tells where a layer looks, not what that is worth.
So a document word's share is measured: one block after the other is kept from looking at it, while
the other words keep their vectors, in which it has left its mark. What the score loses at each step
is that block's signal.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from glassrank.explaining.cases import Case, Findings, as_matrix
from glassrank.explaining.leave_one_out import (
    Units,
    piece_marks,
    query_parts,
    shades_of_pieces,
    terms_of,
    together,
)
from glassrank.explaining.structure import Matrix, PathShare, Signal
from glassrank.explaining.whole_words import shared_evenly, whole_words
from glassrank.models.mores import MORES
from glassrank.nn.attention import key_bias

APPROXIMATE = (
    "Approximate: a document word's value is what the score loses when no block may look at it, a "
    "query word's what it loses without the word; pieces of a word share evenly, and what words do "
    "together is a part of its own."
)
ATTENTION = (
    "Attention (last layer, mean of heads) tells where a module looks and is no part of the score: "
    "the document module's has no value."
)
LARGEST = 256
"""Pieces of a document whose attention to each other is still a picture to look at."""
_PIECES_AT_ONCE = 2048


def explain_mores(case: Case) -> Findings:
    """By words that no block may look at, and attention."""
    model = case.model
    assert isinstance(model, MORES)
    with torch.no_grad():
        maps = model.explain(case.query_batch, case.doc_batch).parts
        # As the document was ranked: a store may have rounded it.
        maps |= model.interact(case.query, case.doc, explain=True).parts
    blocks = _plain(maps["cross_attention"])  # (blocks, Q, D)
    words = whole_words(case.doc_words)
    by_signal = [shared_evenly(lost, words, case.doc_count) for lost in _lost(case, model, words)]
    signals = [
        _signal(f"block {number + 1}", case, blocks[number].amax(0), values)
        for number, values in enumerate(by_signal)
    ]
    if "doc_attention" in maps:
        by_signal.append([0.0] * case.doc_count)
        weights = _plain(maps["doc_attention"])[-1].mean(0)  # (D,)
        signal = _signal("document module", case, weights, by_signal[-1])
        signals.append(replace(signal, first_look=False))
    parts = query_parts(case)
    marks = piece_marks(case, words, by_signal, blocks[-1])
    return Findings(
        exact=False,
        parts=parts,
        signals=tuple(signals),
        marks=marks,
        rest=(together(case, [mark.share for mark in marks]),),
        matrices=tuple(_matrices(case, maps, blocks)),
        terms=terms_of(parts),
        notes=(APPROXIMATE, ATTENTION, *_left_out(case)),
    )


def _plain(maps: Tensor) -> Tensor:
    """(1, layers, heads, L, M) to (layers, L, M), the mean of heads."""
    return maps[0].mean(1).cpu().double()


def _signal(name: str, case: Case, weights: Tensor, values: list[float]) -> Signal:
    total = math.fsum(values)
    strength = shades_of_pieces(weights, case.doc_words)
    return Signal(name, None, None, (PathShare("words", None, None, total),), total, strength)


def _matrices(case: Case, maps: dict[str, Tensor], blocks: Tensor) -> Iterator[Matrix]:
    """In the order of the paper's Figure 2."""
    if "doc_attention" in maps and case.doc_count <= LARGEST:
        layers = _plain(maps["doc_attention"])
        name = f"document module, layer {len(layers)}"
        yield as_matrix(name, layers[-1], rows="document", attention=True)
    if "query_attention" in maps:
        layers = _plain(maps["query_attention"])
        yield as_matrix(
            f"query module, layer {len(layers)}", layers[-1], columns="query", attention=True
        )
    for number, block in enumerate(blocks):
        yield as_matrix(f"block {number + 1}: query to document", block, attention=True)


def _left_out(case: Case) -> Iterator[str]:
    if case.doc_count > LARGEST:
        yield (
            f"The document module's matrix is left out: {case.doc_count} pieces, and {LARGEST} "
            "are the most that are drawn."
        )


@torch.no_grad()
def _lost(case: Case, model: MORES, words: Units) -> list[list[float]]:
    """For each block, what the score loses when it may not look at each word either, after the
    blocks before it. The sum over blocks is what is lost when none may."""
    mask = case.doc.mask  # (1, D)
    lost: list[list[float]] = [[] for _ in model.interaction.stack()]
    step = max(1, _PIECES_AT_ONCE // mask.shape[1])
    for start in range(0, len(words), step):
        case.check_time()
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


def _scores(case: Case, model: MORES, masks: list[Tensor]) -> Tensor:
    """Of one document, of which each block sees what its mask (1 or B, D) shows: (1 or B,)."""
    interaction = model.interaction
    head = interaction.head
    doc = case.doc if case.doc.vectors.dim() == 5 else model.project(case.doc)
    vectors = doc.vectors.to(head.weight)  # (1, D, blocks, 2, H)
    vectors = vectors.expand(max(map(len, masks)), *vectors.shape[1:])
    query_bias = key_bias(case.query.mask, vectors)
    x = case.query.vectors.to(head.weight)  # (1, Q, H)
    for number, (block, mask) in enumerate(zip(interaction.stack(), masks, strict=True)):
        x = block(x, vectors[:, :, number], query_bias, key_bias(mask, vectors))  # (B, Q, H)
    logits = functional.linear(x[:, 0].float(), head.weight.float(), head.bias.float())
    score = logits[:, 1] - logits[:, 0] if interaction.config.two_logits else logits[:, 0]
    return score.double()
