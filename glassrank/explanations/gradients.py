"""PACRR, CO-PACRR, RPACRR, MatchPyramid and DUET: how the score leans on the match matrix, near
this one document.

Layers with ReLUs stand between the matrix and the score. Near any one input these are linear: the
score is a constant and, for each value, its slope times the value. So the parts add up, but each is
true of small changes only: they are marked approximate.

Of the PACRR family, these are the words and phrases that were chosen; the text is marked as in the
RPACRR paper, by the strongest value of each column of the matrix that is pooled. MatchPyramid reads
the matrix as a picture: the slope at each cell, times the similarity there, says what the cell is
worth. DUET adds up two halves before its last layers; its match matrix may be of zeros and ones,
which have no slope, so that words are left out one by one instead.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glassrank.backends.match import ngram_name
from glassrank.explanations.attribution import (
    Attribution,
    ScoredPair,
    Values,
    make_marks,
    scale_columns,
    spread_over_windows,
    to_matrix,
)
from glassrank.explanations.leave_one_out import (
    ablate_doc,
    ablate_query,
    make_ablation_marks,
    make_ablation_signal,
)
from glassrank.explanations.structure import PathShare, QueryTerm, ScorePart, Signal
from glassrank.models import Output, Ranker
from glassrank.research.papers.ngrams import NGrams, window_padding
from glassrank.research.papers.pacrr import CoPACRR

NGRAMS = (
    "Approximate: dense layers lie between the chosen matches and the score; each value is its "
    "slope at this document times the value."
)


@dataclass(frozen=True)
class NGramPath:
    """Slopes times values of what was chosen, for each of S n-gram sizes. There may be more rows
    than query words, and choices outside the document: some models do not mask padding."""

    name: str
    values: Tensor  # (Q', S)
    shares: Tensor  # (Q', D, S)
    outside: Tensor  # (Q', S)


def explain_ngrams(case: ScoredPair) -> Attribution:
    """By slopes at the chosen values."""
    out = case.interact_with_gradients()
    slopes = _slopes(out)
    names = [name.removesuffix("_values") for name in slopes if name.endswith("_values")]
    paths = [_path("matches", "values", case, out, slopes, names, _ngram_window)]
    if f"{names[0]}_context" in slopes:
        paths.append(_path("context", "context", case, out, slopes, names, _surroundings))
    words = len(case.query_tokens)
    matrices = [case.trim_padding(out.parts[name]) for name in names]
    shares = torch.stack([path.shares[:words] for path in paths]).sum(0)  # (Q, D, S)
    idf = _idf(case, out, slopes)
    empty_rows = math.fsum(float(path.values[words:].sum()) for path in paths)
    outside = math.fsum(float(path.outside[:words].sum()) for path in paths)
    parts = [_tree(path, names, case.query_tokens) for path in paths] + idf
    parts += _padding(empty_rows)
    constant = ScorePart(
        "constant", "constant", out.score.item() - math.fsum(p.value for p in parts)
    )
    return Attribution(
        is_additive=False,
        parts=(*parts, constant),
        signals=tuple(
            _signal(number, name, paths, matrix)
            for number, (name, matrix) in enumerate(zip(names, matrices, strict=True))
        ),
        marks=make_marks(shares, matrices[0], _leading(shares)),
        rest=(*idf, *_padding(empty_rows + outside), constant),
        matrices=tuple(map(to_matrix, names, matrices)),
        notes=(NGRAMS,),
    )


def _slopes(out: Output) -> dict[str, Tensor]:
    """The score's slope at each value that the dense layers see, by the name of its part."""
    wanted = {
        name: part
        for name, part in out.parts.items()
        if name == "idf" or name.endswith(("_values", "_context"))
    }
    slopes = torch.autograd.grad(out.score.sum(), list(wanted.values()), allow_unused=True)
    return {
        name: torch.zeros_like(part) if slope is None else slope
        for (name, part), slope in zip(wanted.items(), slopes, strict=True)
    }


def _path(
    path: str,
    kind: str,
    case: ScoredPair,
    out: Output,
    slopes: dict[str, Tensor],
    names: list[str],
    window: Callable[[Ranker, str], tuple[int, int]],
) -> NGramPath:
    values, shares, outside = [], [], []
    for name in names:
        part = f"{name}_{kind}"
        leaning = (slopes[part] * out.parts[part])[0].detach().cpu().double()  # (Q', k)
        placed = _placed(leaning, slopes[part], out, name)[..., None]  # (Q', D', 1)
        within = window(case.model, name)
        inside, beyond = map(
            torch.from_numpy, spread_over_windows(placed.numpy(), *within, case.num_doc_tokens)
        )
        values.append(leaning.sum(1))
        shares.append(inside[..., 0])
        outside.append(beyond[..., 0])
    return NGramPath(path, torch.stack(values, 1), torch.stack(shares, 2), torch.stack(outside, 1))


def _placed(leaning: Tensor, slope: Tensor, out: Output, name: str) -> Tensor:
    """What was chosen, where it stands in the document: (Q', k) to (Q', D')."""
    matrix = out.parts[name][0].detach().cpu().double()  # (Q', D')
    if "attention" in out.parts:  # nothing is chosen: every word counts by its attention
        attention = out.parts["attention"][0].detach().cpu().double()
        shares: Tensor = slope[0].cpu().double() * attention * matrix
        return shares
    places = out.parts[f"{name}_places"][0].cpu()  # (Q', k)
    chosen = leaning * (places >= 0)
    return torch.zeros_like(matrix).scatter_add(1, places.clamp(min=0), chosen)


def _ngram_window(model: Ranker, name: str) -> tuple[int, int]:
    """How many words before and after its place an n-gram covers."""
    if name == "phrase":
        return window_padding(model.config.phrase_words, centred=True)
    ngrams = model.ngrams
    assert isinstance(ngrams, NGrams)
    size = next(n for n in (1, *ngrams.sizes) if ngram_name(n) == name)
    return window_padding(size, ngrams.centred)


def _surroundings(model: Ranker, name: str) -> tuple[int, int]:
    assert isinstance(model, CoPACRR)
    return model.config.words_before, model.config.words_after


def _idf(case: ScoredPair, out: Output, slopes: dict[str, Tensor]) -> list[ScorePart]:
    """Where the dense layers see each query word's share of the idf."""
    if not case.model.config.idf:
        return []
    values = (slopes["idf"] * out.parts["idf"])[0].tolist()
    described = enumerate(zip(case.query_tokens, values, strict=False))
    return [ScorePart.total("idf", "path", (ScorePart(t, "term", v, q) for q, (t, v) in described))]


def _padding(value: float) -> list[ScorePart]:
    return [ScorePart("padding", "constant", value)] if value else []


def _tree(path: NGramPath, names: list[str], terms: tuple[str, ...]) -> ScorePart:
    rows = path.values.tolist()
    return ScorePart.total(
        path.name,
        "path",
        (
            ScorePart.total(
                term,
                "term",
                (
                    ScorePart(name, "signal", rows[q][number], number)
                    for number, name in enumerate(names)
                ),
                q,
            )
            for q, term in enumerate(terms)
        ),
    )


def _signal(number: int, name: str, paths: list[NGramPath], matrix: Values) -> Signal:
    words = len(matrix)
    columns = [float(path.values[:words, number].sum()) for path in paths]
    shares = [PathShare(p.name, None, None, v) for p, v in zip(paths, columns, strict=True)]
    return Signal(name, None, None, tuple(shares), math.fsum(columns), scale_columns(matrix))


def _leading(shares: Tensor) -> list[int | None]:
    """Of each word, the n-gram size on which most leans; None where nothing was chosen."""
    sizes = shares.abs().sum(0)  # (D, S)
    return [
        number if any(row) else None
        for number, row in zip(sizes.argmax(1).tolist(), sizes.tolist(), strict=True)
    ]


PYRAMID = "Approximate: each value is the score's slope at a similarity times the similarity."
DUET = (
    "Approximate: the halves are the score's slopes at their sums times these; the value of a word "
    "is what the score loses without it."
)


def explain_pyramid(case: ScoredPair) -> Attribution:
    """By the score's slope at each cell of the match matrix."""
    out = case.interact_with_gradients()
    (slope,) = torch.autograd.grad(out.score.sum(), out.parts["similarity"])
    similarity = case.trim_padding(out.parts["similarity"])  # (Q, D)
    shares = case.trim_padding(slope) * similarity  # (Q, D)
    patterns = case.trim_padding(out.parts["patterns"])  # (Q, D)
    values = shares.sum(1).tolist()
    tree = ScorePart.total(
        "patterns",
        "path",
        (ScorePart(term, "term", values[q], q) for q, term in enumerate(case.query_tokens)),
    )
    constant = ScorePart("constant", "constant", out.score.item() - tree.value)
    signal = Signal(
        "patterns",
        None,
        None,
        (PathShare("patterns", None, None, tree.value),),
        tree.value,
        scale_columns(patterns),
    )
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


def explain_duet(case: ScoredPair) -> Attribution:
    """By slopes at the two halves, and by leaving words out."""
    out = case.interact_with_gradients()
    halves = [out.parts["local"], out.parts["distributed"]]
    slopes = torch.autograd.grad(out.score.sum(), halves)
    parts = [
        ScorePart(name, "path", (slope * half).sum().item())
        for name, slope, half in zip(("local", "distributed"), slopes, halves, strict=True)
    ]
    score = out.score.item()
    parts.append(ScorePart("constant", "constant", score - math.fsum(part.value for part in parts)))
    words = ablate_doc(case)
    similarity = case.trim_padding(out.parts["similarity"])
    weighted = case.trim_padding(out.parts["weighted"])
    return Attribution(
        is_additive=False,
        parts=tuple(parts),
        signals=(make_ablation_signal(words),),
        marks=make_ablation_marks(words, similarity),
        rest=(ScorePart("together", "constant", score - math.fsum(words)),),
        matrices=(to_matrix("similarity", similarity), to_matrix("weighted by idf", weighted)),
        terms=tuple(QueryTerm(q, value, {}) for q, value in enumerate(ablate_query(case))),
        notes=(DUET,),
    )
