"""Documents in passages while training: one is drawn at random, with its document's grade, and on
dev and test queries the best one is the document's score.

Z. Dai, J. Callan, "Deeper Text Understanding for IR with Contextual Neural Language Modeling"
(SIGIR 2019), BERT-MaxP; MORES is adapted so, too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassrank.models.saved import best_passages


@dataclass(frozen=True)
class DividedDocs:
    """Which of the texts are a document's: from `offsets[doc]` on, to before the next one's.

    >>> passages = DividedDocs(np.array([0, 2, 3]))
    >>> passages.all_of(np.array([1, 0, 1]))
    (array([2, 0, 1, 2]), array([0, 1, 1, 2]))
    """

    offsets: NDArray[np.int64]  # (docs + 1,)
    best: int = 1
    """A document's score is the sum of so many, the best ones, as the trained model has it."""

    def __len__(self) -> int:
        """Documents."""
        return len(self.offsets) - 1

    def drawn_from(
        self, docs: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:  # as docs
        """One text of each document, all of its own as likely."""
        first = self.offsets[docs]
        count = self.offsets[docs + 1] - first
        return first + (rng.random(docs.shape) * count).astype(np.int64)

    def all_of(
        self, docs: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # (n,), (n,)
        """Texts of these documents, one after another, and the place among `docs` of each."""
        first = self.offsets[docs]
        count = self.offsets[docs + 1] - first
        places = np.repeat(np.arange(len(docs)), count)
        within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
        return first[places] + within, places

    def scores(
        self,
        values: NDArray[np.float32],
        places: NDArray[np.int64],
        shares: NDArray[np.float32],
    ) -> NDArray[np.float32]:  # (docs,)
        """Of documents, by the scores of their texts at these places, as a ranking has them.
        `shares` are what the first stage adds to each."""
        return best_passages(values, places, shares, self.best).values
