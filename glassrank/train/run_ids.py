"""Whose numbers prepared arrays have: ids of queries and documents, for runs that are kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from glassrank.ragged import Ragged, Strings, pack
from glassrank.types import Run


@dataclass(frozen=True)
class RunIds:
    """By their numbers: of training queries, which folds test, and of all documents.

    >>> ids = RunIds.of(["q7"], ["a", "b"])
    >>> list(ids.named(Run.from_rows([("0", ["1", "0"], [2.0, 1.0])])).items())[0][:2]
    ('q7', ['b', 'a'])
    """

    queries: Ragged  # UTF-8
    docs: Ragged  # UTF-8

    @classmethod
    def of(cls, queries: Sequence[str], docs: Sequence[str]) -> "RunIds":
        """Of lists of ids."""
        return cls(*(pack([name.encode() for name in names]) for names in (queries, docs)))

    def named(self, run: Run) -> Run:
        """A run of numbers, as `both_runs` makes it, with ids in their places."""
        queries, docs = (Strings(ids.offsets, ids.values) for ids in (self.queries, self.docs))
        return Run.from_rows(
            (queries[int(query)], [docs[int(doc)] for doc in listed], scores)
            for query, listed, scores in run.items()
        )
