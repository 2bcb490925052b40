"""MaxSim: each query piece counts as much as the document piece most like it, as in ColBERT.

O. Khattab, M. Zaharia, SIGIR 2020 (see `late_interaction.py`), with a learned weight for each query
piece. The score is a sum over query pieces, so its parts are exact.
"""

import torch
from torch import nn

from glassrank.models.contract import Output, Words, WordTable
from glassrank.models.late_interaction import LateInteraction, LateInteractionConfig
from glassrank.nn.match import match_matrix, pair_mask


class MaxSim(LateInteraction):
    name = "maxsim"
    config_type = LateInteractionConfig
    exact = True
    summands = ("best match",)

    def __init__(self, config: LateInteractionConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.scale = nn.Parameter(torch.tensor(1.0))  # its exponential: cosines are small numbers

    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        masks = query.mask.float().expand(len(doc.mask), -1), doc.mask.float()
        similarity = match_matrix(query.vectors.float(), doc.vectors.float(), *masks)  # (B, Q, D)
        # A document without pieces, or padding, is as far away as can be.
        best = similarity.masked_fill(pair_mask(*masks) == 0, -1.0).amax(2)  # (B, Q)
        part = self.scale.exp() * query.idf.float() * best * masks[0]  # (B, Q)
        return Output(part.sum(1), {"best match": part, "similarity": similarity})
