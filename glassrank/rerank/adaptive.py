"""Adaptive re-ranking: the best candidates so far bring in their neighbours.

Candidates are scored in rounds. Before each further round, documents that are near to the best ones
so far, in the store's neighbour graph, become candidates; they are scored next, together with as
many more of the first stage's. Without a budget, how large rounds are depends on nothing but these
constants: the ranking is the same everywhere.

S. MacAvaney, N. Tonellotto, C. Macdonald, "Adaptive Re-Ranking with a Corpus Graph" (GAR), CIKM
2022. H. Kulkarni, S. MacAvaney, N. Goharian, O. Frieder, "Lexically-Accelerated Dense Retrieval"
(LADR), SIGIR 2023.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.embeddings import Store
from glassrank.index.snapshot import Snapshot

FIRST_ROUND = 100
"""Candidates of the first stage in the first two rounds, and neighbours in the second, at most;
each further round has twice as many."""
BEST = 16
"""Candidates whose neighbours are brought in."""
NEAREST = 16
"""Neighbours of each."""


class Near(NamedTuple):
    """Neighbours of the best candidates: those of the best one come first."""

    docs: NDArray[np.int64]
    parents: NDArray[np.int64]
    """The candidate whose neighbour each is."""


@dataclass
class Neighbourhood:
    """The neighbour graph, as one query sees it."""

    store: Store
    snapshot: Snapshot
    """That the store is located in."""
    filtered: Snapshot
    """Of which documents may be found."""

    def find(self, best: NDArray[np.int64]) -> Near:
        """The neighbours of the first of these, which are the best candidates."""
        best = best[:BEST]
        near = self.store.neighbours(self.snapshot, best)[:, :NEAREST]  # (n, 16)
        docs, first = np.unique(near, return_index=True)
        order = np.argsort(first)
        docs, parents = docs[order], best[first[order] // near.shape[1]]
        exists = docs >= 0
        exists[exists] = self.filtered.are_live(docs[exists])
        return Near(docs[exists], parents[exists])
