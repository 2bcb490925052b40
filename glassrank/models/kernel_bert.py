"""KernelBERT: TK's kernels over the pieces of a pretrained encoder.

What makes TK what it is stays: one point where query and document meet, documents encoded
beforehand, a score that is a sum over query pieces and kernels on two paths. The words come from a
pretrained encoder in the place of TK's own two layers. Its kernels count the document's pieces that
are *at least* so similar, and no weight is negative: a closer match never counts against a text.
"""

import torch
from torch import nn

from glassrank.models.contract import Output, Words, WordTable
from glassrank.models.late_interaction import LateInteraction
from glassrank.models.served_families import KernelBERTConfig, KernelBERTFamily
from glassrank.models.tk import two_paths
from glassrank.nn.match import FLOOR, KernelBank, Readout, kernel_pool, match_matrix, rising

__all__ = ["KernelBERT", "KernelBERTConfig"]


class KernelBERT(KernelBERTFamily, LateInteraction):
    """Kernels that count pieces of at least some similarity."""

    def __init__(self, config: KernelBERTConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.kernels = KernelBank(config.kernels)
        # Small and, where weights rise, just above zero: scores begin near those of a softmax.
        log, length = (-5.0, -3.0) if config.monotone else (0.01, 0.05)
        self.log_weights = nn.Parameter(torch.full((len(config.kernels),), log))  # (K,)
        self.length_weights = nn.Parameter(torch.full((len(config.kernels),), length))  # (K,)

    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        similarity = match_matrix(
            query.vectors.float(), doc.vectors.float(), query.mask.float(), doc.mask.float()
        )  # (B, Q, D)
        batch = len(similarity)
        query_mask = query.mask.float().expand(batch, -1)  # (B, Q)
        counts = kernel_pool(similarity, query_mask, doc.mask.float(), self.kernels)  # (B, Q, K)
        length = doc.mask.float().sum(-1)[:, None, None] + 1  # (B, 1, 1)
        weight = query.idf.float()[..., None]  # (B or 1, Q, 1)
        readout = self.readouts()[0]
        log_signal = counts.clamp(min=FLOOR).log() * weight  # (B, Q, K)
        length_signal = counts / length * weight  # (B, Q, K)
        return two_paths(similarity, (log_signal, length_signal), (readout.log, readout.length))

    def readouts(self) -> list[Readout]:
        if not self.config.monotone:
            return [Readout(self.log_weights, self.length_weights)]
        return [Readout(rising(self.log_weights), rising(self.length_weights))]
