"""MaxSim: the score is a sum over query pieces, each worth its best match in the document.

A document word's share is what the score would lose if the word were not there for the query to
match, while the others keep their vectors: the distance to the next best match.
"""

import math

import torch

from glassrank.explain.cases import Case, Findings, as_matrix, marks_of, shades
from glassrank.explain.structure import Part, PathShare, Signal

NAME = "best match"


def explain_best_matches(case: Case) -> Findings:
    similarity = case.words_alone(case.output.parts["similarity"])  # (Q, D)
    value = case.output.parts["best"][0, : len(case.query_words)].cpu().double()  # (Q,)
    best = similarity.amax(1)  # (Q,)
    weight = torch.where(best != 0, value / best, 0.0)  # (Q,)
    shares = torch.zeros(*similarity.shape, 1, dtype=torch.double)  # (Q, D, 1)
    if similarity.shape[1] > 1:
        two = similarity.topk(2, dim=1)
        lost = weight * (two.values[:, 0] - two.values[:, 1])  # (Q,)
        shares[torch.arange(len(value)), two.indices[:, 0], 0] = lost
    matched = set(similarity.argmax(1).tolist())
    path = Part.total(
        NAME, "path", (Part(w, "term", value[q].item(), q) for q, w in enumerate(case.query_words))
    )
    share = PathShare(NAME, None, None, path.value)
    return Findings(
        exact=True,
        parts=(path,),
        signals=(Signal(NAME, None, None, (share,), path.value, shades(similarity)),),
        marks=marks_of(
            shares, similarity, [0 if d in matched else None for d in range(case.doc_count)]
        ),
        rest=(Part("together", "constant", path.value - math.fsum(shares.flatten().tolist())),),
        matrices=(as_matrix("similarity", similarity),),
    )
