"""`relevance_score`, as the service and the adapters give it: between 0 and 1."""

from collections.abc import Sequence

from glassrank.types import Hit, Ranking


def relevance_scores(ranking: Ranking | Sequence[Hit]) -> list[float]:
    """Probabilities of relevance; texts that no model scored come below the lowest."""
    known = [hit.probability for hit in ranking if hit.ranked_by]
    probabilities = [chance for chance in known if chance is not None]
    if not known or len(probabilities) < len(known):
        return [squash(hit.score) for hit in ranking]
    least, late = min(probabilities), range(2, 2 + len(ranking) - len(known))
    return [*probabilities, *(least / place for place in late)]


def squash(score: float) -> float:
    """For a model that is not calibrated: between 0 and 1, increasing with the score, and the
    same in every list.

    Its slope falls slowly. Scores of dozens are usual, and the logistic function of those would be
    1, whatever they are.

    >>> squash(0.0), squash(3.0), squash(-1.0)
    (0.5, 0.875, 0.25)
    """
    return 0.5 + score / (2 + 2 * abs(score))
