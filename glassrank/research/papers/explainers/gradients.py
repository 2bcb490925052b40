"""Gradient attribution for PACRR, CO-PACRR, RPACRR, MatchPyramid and DUET.

Layers with ReLUs lie between the match matrix and the score. Near one input they are linear: the
score is a constant plus, for each value, its gradient times the value. So the parts add up, but
each holds for small changes only: they are marked approximate.

For the PACRR family the values are the words and phrases that were chosen; the text is marked as in
the RPACRR paper, by the strongest value of each column of the pooled matrix. MatchPyramid reads the
matrix as an image: a cell is worth its gradient times its similarity. DUET adds two halves before
its last layers; its match matrix can be binary, without gradients, so words are left out one by one
instead.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassrank.backends.match import ngram_name
from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    Values,
    make_marks,
    make_part,
    make_path,
    make_signal,
    make_term_parts,
    scale_columns,
    spread_over_windows,
    to_matrix,
)
from glassrank.explanations.leave_one_out import (
    TOGETHER,
    ablate_doc,
    ablate_query,
    make_ablation_marks,
    make_ablation_signal,
)
from glassrank.explanations.structure import QueryTerm, ScorePart, Signal
from glassrank.models import Output
from glassrank.research.papers.ngrams import NGrams, window_padding

NGRAMS = (
    "Approximate: dense layers lie between the chosen matches and the score; each value is "
    "multiplied by its gradient at this document."
)


@dataclass(frozen=True)
class NGramPath:
    """Gradients times the chosen values, for each of S n-gram sizes. Some models do not mask
    padding: there may be more rows than query words, and choices outside the document."""

    name: str
    values: Tensor  # (Q', S)
    shares: Tensor  # (Q', D, S)
    outside: Tensor  # (Q', S)


def explain_ngrams(pair: ScoredPair) -> Attribution:
    """By gradients at the chosen values."""
    out = pair.interact_with_gradients()
    gradients = _get_gradients(out)
    names = [name.removesuffix("_values") for name in gradients if name.endswith("_values")]
    paths = [_make_path("matches", "values", pair, out, gradients, _ngram_windows(pair, names))]
    if f"{names[0]}_context" in gradients:
        around = pair.model.config.words_before, pair.model.config.words_after
        windows = dict.fromkeys(names, around)
        paths.append(_make_path("context", "context", pair, out, gradients, windows))
    words = len(pair.query_tokens)
    matrices = [pair.trim_padding(out.parts[name]) for name in names]
    shares = torch.stack([path.shares[:words] for path in paths]).sum(0)  # (Q, D, S)
    idf = _make_idf(pair, out, gradients)
    empty_rows = math.fsum(float(path.values[words:].sum()) for path in paths)
    outside = math.fsum(float(path.outside[:words].sum()) for path in paths)
    parts = [make_path(p.name, pair.query_tokens, p.values.tolist(), names) for p in paths] + idf
    parts += _make_padding(empty_rows)
    constant = make_part("constant", out.score.item(), (part.value for part in parts))
    return Attribution(
        is_additive=False,
        parts=(*parts, constant),
        signals=tuple(
            _make_signal(number, name, paths, matrix)
            for number, (name, matrix) in enumerate(zip(names, matrices, strict=True))
        ),
        marks=make_marks(shares, matrices[0], _choose_signals(shares)),
        rest=(*idf, *_make_padding(empty_rows + outside), constant),
        matrices=tuple(map(to_matrix, names, matrices)),
        notes=(NGRAMS,),
    )


def _get_gradients(out: Output) -> dict[str, Tensor]:
    """The gradient at each value that the dense layers read, by the name of its part."""
    wanted = {
        name: part
        for name, part in out.parts.items()
        if name == "idf" or name.endswith(("_values", "_context"))
    }
    gradients = torch.autograd.grad(out.score.sum(), list(wanted.values()), allow_unused=True)
    return {
        name: torch.zeros_like(part) if gradient is None else gradient
        for (name, part), gradient in zip(wanted.items(), gradients, strict=True)
    }


def _make_path(
    path: str,
    kind: str,
    pair: ScoredPair,
    out: Output,
    gradients: dict[str, Tensor],
    windows: Mapping[str, tuple[int, int]],
) -> NGramPath:
    values, shares, outside = [], [], []
    for name, (before, after) in windows.items():
        part = f"{name}_{kind}"
        product = (gradients[part] * out.parts[part])[0].detach().cpu().double()  # (Q', k)
        chosen = _scatter_choices(product, gradients[part], out, name)[..., None]  # (Q', D', 1)
        inside, beyond = map(
            torch.from_numpy,
            spread_over_windows(chosen.numpy(), before, after, pair.num_doc_tokens),
        )
        values.append(product.sum(1))
        shares.append(inside[..., 0])
        outside.append(beyond[..., 0])
    return NGramPath(path, torch.stack(values, 1), torch.stack(shares, 2), torch.stack(outside, 1))


def _scatter_choices(product: Tensor, gradient: Tensor, out: Output, name: str) -> Tensor:
    """Moves chosen values to their places in the document: (Q', k) to (Q', D')."""
    matrix = out.parts[name][0].detach().cpu().double()  # (Q', D')
    if "attention" in out.parts:  # all words count, by their attention
        attention = out.parts["attention"][0].detach().cpu().double()
        shares: Tensor = gradient[0].cpu().double() * attention * matrix
        return shares
    places = out.parts[f"{name}_places"][0].cpu()  # (Q', k)
    chosen = product * (places >= 0)
    return torch.zeros_like(matrix).scatter_add(1, places.clamp(min=0), chosen)


def _ngram_windows(pair: ScoredPair, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many words each n-gram covers before and after its place."""
    ngrams: NGrams = pair.model.ngrams
    windows = {ngram_name(n): window_padding(n, ngrams.centred) for n in (1, *ngrams.sizes)}
    if "phrase" in names:
        windows["phrase"] = window_padding(pair.model.config.phrase_words, centred=True)
    return {name: windows[name] for name in names}


def _make_idf(pair: ScoredPair, out: Output, gradients: dict[str, Tensor]) -> list[ScorePart]:
    """What the idf of each query word adds, if the dense layers read it."""
    if not pair.model.config.idf:
        return []
    values = (gradients["idf"] * out.parts["idf"])[0].tolist()
    return [ScorePart.total("idf", "path", make_term_parts(pair.query_tokens, values))]


def _make_padding(value: float) -> list[ScorePart]:
    return [ScorePart("padding", "constant", value)] if value else []


def _make_signal(number: int, name: str, paths: list[NGramPath], matrix: Values) -> Signal:
    values = {path.name: float(path.values[: len(matrix), number].sum()) for path in paths}
    return make_signal(name, values, scale_columns(matrix))


def _choose_signals(shares: Tensor) -> list[int | None]:
    """For each word the n-gram size that adds most; None if nothing was chosen."""
    sizes = shares.abs().sum(0)  # (D, S)
    return [int(row.argmax()) if row.any() else None for row in sizes]


PYRAMID = "Approximate: each value is the gradient at a similarity times the similarity."
DUET = (
    "Approximate: each half is its sum times the gradient; the value of a word is what the score "
    "loses without it."
)


def explain_pyramid(pair: ScoredPair) -> Attribution:
    """By the gradient at each cell of the match matrix."""
    out = pair.interact_with_gradients()
    (gradient,) = torch.autograd.grad(out.score.sum(), out.parts["similarity"])
    similarity = pair.trim_padding(out.parts["similarity"])  # (Q, D)
    shares = pair.trim_padding(gradient) * similarity  # (Q, D)
    patterns = pair.trim_padding(out.parts["patterns"])  # (Q, D)
    terms = make_term_parts(pair.query_tokens, shares.sum(1).tolist())
    tree = ScorePart.total("patterns", "path", terms)
    constant = ScorePart("constant", "constant", out.score.item() - tree.value)
    signal = make_signal("patterns", {"patterns": tree.value}, scale_columns(patterns))
    marked = [0 if any(column) else None for column in shares.T.tolist()]
    return Attribution(
        is_additive=False,
        parts=(tree, constant),
        signals=(signal,),
        marks=make_marks(shares[..., None], similarity, marked),
        rest=(constant,),
        matrices=(to_matrix("similarity", similarity), to_matrix("patterns", patterns)),
        notes=(PYRAMID,),
    )


def explain_duet(pair: ScoredPair) -> Attribution:
    """By gradients at the two halves, and by ablation."""
    out = pair.interact_with_gradients()
    halves = [out.parts["local"], out.parts["distributed"]]
    gradients = torch.autograd.grad(out.score.sum(), halves)
    parts = [
        ScorePart(name, "path", (gradient * half).sum().item())
        for name, gradient, half in zip(("local", "distributed"), gradients, halves, strict=True)
    ]
    score = out.score.item()
    parts.append(make_part("constant", score, [part.value for part in parts]))
    words = ablate_doc(pair)
    similarity = pair.trim_padding(out.parts["similarity"])
    weighted = pair.trim_padding(out.parts["weighted"])
    return Attribution(
        is_additive=False,
        parts=tuple(parts),
        signals=(make_ablation_signal(words),),
        marks=make_ablation_marks(words, similarity),
        rest=(make_part(TOGETHER, score, words),),
        matrices=(to_matrix("similarity", similarity), to_matrix("weighted by idf", weighted)),
        terms=tuple(QueryTerm(q, value, {}) for q, value in enumerate(ablate_query(pair))),
        notes=(DUET,),
    )
