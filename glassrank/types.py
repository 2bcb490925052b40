"""Shared types: queries, documents, judgments, runs and rankings.

Field names are those of ir-measures (`query_id`, `doc_id`, `score`, `relevance`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

_SNIPPET_CHARS = 240
_PRINTED_HITS, _PRINTED_TITLE_CHARS = 10, 72

Qrels = dict[str, dict[str, int]]
"""Judgments: query id -> document id -> relevance label."""


class Query(NamedTuple):
    """A query with its id."""

    query_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Doc:
    """One document. `source` says where it comes from: a URL, a file, a module."""

    doc_id: str
    text: str
    title: str = ""
    source: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    fields_cut: bool = field(default=False, repr=False, compare=False)
    """Whether title, source and metadata were too long to be read completely."""


class Qrel(NamedTuple):
    """The relevance label of a document for a query."""

    query_id: str
    doc_id: str
    relevance: int


class HitFields(NamedTuple):
    """The fields of a `Hit`: it is compared, printed and unpacked as this tuple."""

    rank: int
    doc_id: Any
    """A string for a document of an index; for a text of a list its position from 0, or its id."""
    score: float
    first_rank: int | None = None
    first_score: float | None = None
    ranked_by: str | None = None
    probability: float | None = None
    passage: tuple[int, int] | None = None
    truncated: bool = False
    stage: int = 0
    found_by: tuple[str, ...] = ()
    neighbour_of: Any = None
    regularization: float = 0.0


class Hit(HitFields):
    """One document of a ranking.

    `rank` counts from 1. `first_rank` and `first_score` are those of the first stage. `ranked_by`
    names the model that ranked the hit, and `stage` is its number in the pipeline, from 1 on; where
    no model got this far they are None and 0. `probability` is the calibrated probability of
    relevance, if the model has one. A model reads a long document in passages: `passage` is the
    (start, stop) in characters of the passage that gave the score. `truncated` says that a part of
    the document was not read, for lack of time or because it is too long. `found_by` names what
    found it: the method of the index, such as `bm25`, `dense`, or both; or `graph`, if it is a
    neighbour of the document `neighbour_of`, which ranks high. `first_score` is always that of the
    method. `regularization` is what similar documents add to the model's own score, or take away.

    The document is read from the index on first access, so that a search does not wait for it.
    """

    _read: Callable[..., Doc] | None = None
    _show: Callable[[str, tuple[int, int] | None], str] | None = None

    def with_reader(
        self,
        read: Callable[..., Doc] | None,
        show: Callable[[str, tuple[int, int] | None], str] | None = None,
    ) -> "Hit":
        """Sets how the document is read, and returns the hit. `read(n)` may read n characters only;
        `show(text, passage)` makes the snippet."""
        self._read, self._show = read, show
        return self

    def at_rank(self, rank: int) -> "Hit":
        """The same hit in another place."""
        return Hit(rank, *self[1:]).with_reader(self._read, self._show)

    def read_prefix(self, characters: int) -> Doc | None:
        """The document, with at least the first `characters` of its text."""
        return None if self._read is None else self._read(characters)

    @cached_property
    def doc(self) -> Doc | None:
        """The document; None if the ranking has only ids."""
        return None if self._read is None else self._read()

    @property
    def found(self) -> str:
        """How it became a candidate, in words: `by words`, `by meaning`, or `near to` another."""
        return describe_found(self.found_by, self.neighbour_of)

    @property
    def title(self) -> str:
        """Empty if there is none."""
        return self.doc.title if self.doc else ""

    @property
    def text(self) -> str:
        """The whole text of the document."""
        return self.doc.text if self.doc else ""

    @cached_property
    def snippet(self) -> str:
        """The part of the text that matches the query best; its start if there is no query."""
        if self._show is None:
            return self.text[:_SNIPPET_CHARS]
        return self._show(self.text, self.passage)

    @property
    def source(self) -> str:
        """A URL, a file or a module; may be empty."""
        return self.doc.source if self.doc else ""

    @property
    def metadata(self) -> Mapping[str, object]:
        """All fields except title, text and source."""
        return self.doc.metadata if self.doc else {}

    def to_dict(self) -> dict[str, Any]:
        """The fields of the hit and of its document."""
        document = {"title": self.title, "text": self.text, "source": self.source}
        more = {"snippet": self.snippet, "metadata": dict(self.metadata)}
        return {**self._asdict(), **document, **more}

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process has no index to read from, so it takes the document along.
        return {"doc": self.doc, "snippet": self.snippet}


@dataclass(frozen=True, slots=True, repr=False)
class Ranking:
    """The hits of one query, best first. It is a sequence, and prints as a short table.

    `depth` is the number of re-ranked candidates, out of `found` (0: first stage only); `depths`
    has it for each model. `cut_short` says that the budget was not enough for all of them.
    `num_encoded` counts documents that were encoded on the fly, because no store has them;
    `truncated` counts those that were not read to their end. `timing` has the milliseconds of each
    step. For an index in `shards`, `missing` names those that did not answer in time.
    """

    query: str
    hits: tuple[Hit, ...]
    depth: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)
    found: int = 0
    depths: tuple[int, ...] = ()
    cut_short: bool = False
    num_encoded: int = 0
    truncated: int = 0
    shards: int = 0
    missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Ranking({self.query!r}, {self._count_hits()}, {self.depth} re-ranked)"

    def __str__(self) -> str:
        """
        >>> print(Ranking("cat", (Hit(1, "a", 2).with_reader(lambda: Doc("", "", "Cats")),)))
        cat: 1 hit
          1    2.00  a  Cats
        """
        header = f"{self.query}: {self._count_hits()}"
        if self.depths:
            header += f", {self.depth} of {self.found} re-ranked"
        if "total" in self.timing:
            header += f" in {self.timing['total']:.1f} ms"
        shown = self.hits[:_PRINTED_HITS]
        width = max((len(str(hit.doc_id)) for hit in shown), default=0)
        rows = [
            f"{hit.rank:3} {hit.score:7.2f}  {hit.doc_id!s:{width}}  {_summarize(hit)}"
            for hit in shown
        ]
        rest = len(self.hits) - len(shown)
        return "\n".join([header, *rows, *([f"  … and {rest} more"] if rest else [])])

    def _count_hits(self) -> str:
        return "1 hit" if len(self.hits) == 1 else f"{len(self.hits)} hits"

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One for each hit, all with the same keys: `pandas.DataFrame(ranking.to_dicts())`."""
        return [hit.to_dict() for hit in self.hits]

    def to_json(self, extra: Callable[[Hit], Mapping[str, Any]] = lambda hit: {}) -> dict[str, Any]:
        """The JSON of every interface; `extra` gives further fields of a hit.

        `stages` are the steps in their order; a scoring step has its number of documents.
        """
        documents = {scoring_step_name(n): depth for n, depth in enumerate(self.depths)}
        shards = {
            "answered": self.shards - len(self.missing),
            "of": self.shards,
            "missing": list(self.missing),
        }
        return {
            "query": self.query,
            "depth": self.depth,
            "found": self.found,
            "cut_short": self.cut_short,
            "num_encoded": self.num_encoded,
            "truncated": self.truncated,
            **({"shards": shards} if self.shards else {}),
            "timing_ms": {name: round(ms, 3) for name, ms in self.timing.items()},
            "stages": [
                {
                    "name": name,
                    "ms": round(ms, 3),
                    **({"documents": documents[name]} if name in documents else {}),
                }
                for name, ms in self.timing.items()
                if name != "total"
            ],
            "hits": [
                {
                    "rank": hit.rank,
                    "doc_id": hit.doc_id,
                    "score": hit.score,
                    "probability": hit.probability,
                    "first_rank": hit.first_rank,
                    "first_score": hit.first_score,
                    "reranked": hit.stage > 0,
                    "ranked_by": hit.ranked_by,
                    "passage": hit.passage,
                    "truncated": hit.truncated,
                    "found_by": list(hit.found_by),
                    "neighbour_of": hit.neighbour_of,
                    "regularization": hit.regularization,
                    **extra(hit),
                }
                for hit in self.hits
            ],
        }


def describe_found(found_by: Sequence[str], neighbour_of: Any = None) -> str:
    """
    >>> describe_found(["bm25", "dense"]), describe_found(["graph"], "d7")
    ('by words and by meaning', 'near to d7')
    """
    known = {"dense": "by meaning", "graph": f"near to {neighbour_of}"}
    return " and ".join(known.get(name, "by words") for name in found_by)


def _summarize(hit: Hit) -> str:
    text = " ".join((hit.title or hit.snippet).split())
    width = _PRINTED_TITLE_CHARS
    return text if len(text) <= width else f"{text[: width - 2]} …"


def query_step_name(model: int) -> str:
    """The name of the step in which a pipeline's model, counted from 0, encodes the query."""
    return f"query_{model + 1}" if model else "query"


def scoring_step_name(model: int) -> str:
    """The name of the step in which it scores documents."""
    return f"scoring_{model + 1}" if model else "scoring"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rankings of many queries, in columns: a run has millions of rows.

    Rows `offsets[i]:offsets[i + 1]` belong to `query_ids[i]`, in the order in which they came, not
    sorted by score.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]  # (Q + 1,)
    doc_ids: list[str]  # (rows,)
    scores: NDArray[np.float64]  # (rows,)

    @classmethod
    def from_dict(cls, run: Mapping[str, Mapping[str, float]]) -> "Run":
        """
        >>> Run.from_dict({"q1": {"a": 2.0, "b": 1.0}, "q2": {}}).offsets.tolist()
        [0, 2, 2]
        """
        return cls.from_rows(
            (query_id, docs.keys(), np.fromiter(docs.values(), np.float64, len(docs)))
            for query_id, docs in run.items()
        )

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, Iterable[str], NDArray[np.floating]]]) -> "Run":
        """One (query id, document ids, scores) for each query."""
        query_ids: list[str] = []
        doc_ids: list[str] = []
        offsets, scores = [0], [np.empty(0, np.float64)]
        for query_id, docs, values in rows:
            query_ids.append(query_id)
            doc_ids.extend(docs)
            offsets.append(len(doc_ids))
            scores.append(np.asarray(values, np.float64))
        return cls(tuple(query_ids), np.array(offsets, np.int64), doc_ids, np.concatenate(scores))

    @classmethod
    def from_rankings(cls, rankings: Iterable[tuple[str, Ranking]]) -> "Run":
        """One (query id, ranking) for each query."""
        return cls.from_rows(
            (query_id, [hit.doc_id for hit in ranking], np.array([hit.score for hit in ranking]))
            for query_id, ranking in rankings
        )

    def items(self) -> Iterator[tuple[str, list[str], NDArray[np.float64]]]:
        """(query id, document ids, scores) of each query."""
        for query_id, (start, stop) in zip(
            self.query_ids, pairwise(self.offsets.tolist()), strict=True
        ):
            yield query_id, self.doc_ids[start:stop], self.scores[start:stop]

    def __len__(self) -> int:
        return len(self.query_ids)
