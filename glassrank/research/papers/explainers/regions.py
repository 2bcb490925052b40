"""TKL: the score is a sum over regions, query words and kernels.

A document word's share is what the score loses if the word is not counted, while the others keep
their vectors and the regions stay where they are.
"""

import torch

from glassrank.backends.match import kernel_values
from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    make_term_parts,
)
from glassrank.explanations.kernels import attribute_to_kernels
from glassrank.explanations.structure import PathShare, ScorePart
from glassrank.research.papers.tkl import TKL


@torch.no_grad()
def explain_regions(pair: ScoredPair) -> Attribution:
    """By regions and query words."""
    model, output = pair.model, pair.output.parts
    assert isinstance(model, TKL)
    config, terms, words = model.config, len(pair.query_tokens), pair.num_doc_tokens
    similarity = output["similarity"][0, :terms, :words]
    values = kernel_values(similarity, model.kernels)  # (Q, D, K)
    feature = pair.query.idf[:, :terms]  # (1, Q)
    shares = torch.zeros(values.shape, dtype=torch.float64)
    parts, columns = [], []
    for number, places in enumerate(output["places"][0].tolist()):
        by_term = torch.zeros(terms, dtype=torch.float64)
        by_kernel = torch.zeros(len(config.kernels), dtype=torch.float64)
        weights = zip(places, model.region_weights[number], strict=True)
        chosen = [(place, weight) for place, weight in weights if place >= 0]
        for place, weight in chosen:
            inside = slice(place * config.stride, min(place * config.stride + config.window, words))
            counted = values[:, inside]  # (Q, n, K)
            count = counted.shape[1]
            length = counted.new_full((1, 1), count)
            counts = counted.sum(1, keepdim=True)  # (Q, 1, K)
            signal = model.saturate(counts[None], feature, length)[0]  # (Q, 1, K)
            without = (counts - counted).clamp(min=0)  # (Q, n, K), the counts without each word
            left = model.saturate(without[None], feature, (length - 1).expand(1, count))[0]
            left = left * (count > 1)  # a window of this word alone is gone without it
            scale = weight * model.kernel_weights  # (K,)
            shares[:, inside] += (scale * (signal - left)).cpu()
            by_kernel += (scale * signal).sum((0, 1)).cpu()
            by_term += (weight * output["by_term"][0, :terms, place]).cpu()
        name = f"region {number + 1}"
        if chosen:
            first, last = chosen[0][0] * config.stride, chosen[-1][0] * config.stride
            name = f"{name}, words {first + 1} to {min(last + config.window, words)}"
        by_word = make_term_parts(pair.query_tokens, by_term.tolist())
        parts.append(ScorePart.total(name, "path", by_word))
        total = by_kernel.sum()  # the model sums in another order: its last digits are right
        by_kernel *= by_term.sum() / total if total else 1.0
        columns.append([PathShare(name, None, None, value) for value in by_kernel.tolist()])
    similarity, values = similarity.cpu().double(), values.cpu().double()
    return attribute_to_kernels(
        tuple(parts), config.kernels, columns, values, shares, {"similarity": similarity}
    )
