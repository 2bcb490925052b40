"""The words everything else speaks: queries, documents, judgments, runs and rankings.

Field names are those of ir-measures (`query_id`, `doc_id`, `score`, `relevance`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

_SNIPPET = 240
_SHOWN, _WIDTH = 10, 72
"""Of a ranking that is printed: hits, and characters of a title."""

Qrels = dict[str, dict[str, int]]
"""Judgments: query id -> document id -> relevance grade."""


class Query(NamedTuple):
    """What is asked."""

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
    """Whether title, source and metadata were too long to be read whole."""


class Qrel(NamedTuple):
    """How well a document answers a query, as somebody judged it."""

    query_id: str
    doc_id: str
    relevance: int


class HitFields(NamedTuple):
    """What a hit consists of; it is compared, printed and unpacked as these."""

    rank: int
    doc_id: Any
    """Of an index its text id; of a list of texts the place, from 0, or the id that was given."""
    score: float
    first_rank: int | None = None
    first_score: float | None = None
    placed_by: str | None = None
    probability: float | None = None
    passage: tuple[int, int] | None = None
    truncated: bool = False
    stage: int = 0


class Hit(HitFields):
    """One line of a ranking. `rank` counts from 1. `first_rank` and `first_score` say what the
    first stage of a pipeline thought; `placed_by` names the model that placed the hit, or is None
    where none has come as far as this, and `stage` is its number in the pipeline, from 1 on, or 0.
    `probability` is that of being relevant, where that model knows it. A document that is longer
    than that model reads is read in passages: `passage` are the characters of its text, from and
    to, that earned it its score. `truncated` says that some of it was not read all the same, for
    lack of time or because it is too long.

    Its document is read when it is first asked for: a search takes no longer for it.
    """

    _read: Callable[..., Doc] | None = None
    _show: Callable[[str, tuple[int, int] | None], str] | None = None

    def reading(
        self,
        read: Callable[..., Doc],
        show: Callable[[str, tuple[int, int] | None], str] | None = None,
    ) -> "Hit":
        """This hit, whose document is read in this way; `read(n)` may read n characters alone.
        `show(text, passage)` makes its snippet."""
        self._read, self._show = read, show
        return self

    def beginning(self, characters: int) -> Doc | None:
        """The document, with at least so many characters of its text, if there are."""
        return None if self._read is None else self._read(characters)

    @cached_property
    def doc(self) -> Doc | None:
        """The document; None where a ranking has ids alone."""
        return None if self._read is None else self._read()

    @property
    def title(self) -> str:
        """Empty where there is none."""
        return self.doc.title if self.doc else ""

    @property
    def text(self) -> str:
        """All of it."""
        return self.doc.text if self.doc else ""

    @cached_property
    def snippet(self) -> str:
        """The part of its text that shows best why it was found; its beginning where no query is
        known."""
        if self._show is None:
            return self.text[:_SNIPPET]
        return self._show(self.text, self.passage)

    @property
    def source(self) -> str:
        """Where it comes from, if it says so."""
        return self.doc.source if self.doc else ""

    @property
    def metadata(self) -> Mapping[str, object]:
        """Fields that are neither title, text nor source."""
        return self.doc.metadata if self.doc else {}

    def to_dict(self) -> dict[str, Any]:
        """The hit and its document, by name."""
        document = {"title": self.title, "text": self.text, "source": self.source}
        more = {"snippet": self.snippet, "metadata": dict(self.metadata)}
        return {**self._asdict(), **document, **more}

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process has no index to read from: it takes the document along.
        return {"doc": self.doc, "snippet": self.snippet}


@dataclass(frozen=True, slots=True, repr=False)
class Ranking:
    """The answer to one query, best first; a sequence of hits. Printed, it is a short table.

    `depth` is how many candidates were re-ranked (0: first stage only), of `found`, and `depths`
    the same for each model; `cut_short` says that the time was not enough for all that was asked
    for. `live` is how many documents were encoded in the query's own time, because no store has
    them, and `truncated` how many were not read to their end. `timing` has the milliseconds of each
    hop. Of an index that is searched in `shards`, `missing` names those that did not answer in
    time, or not at all.
    """

    query: str
    hits: tuple[Hit, ...]
    depth: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)
    found: int = 0
    depths: tuple[int, ...] = ()
    cut_short: bool = False
    live: int = 0
    truncated: int = 0
    shards: int = 0
    missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Ranking({self.query!r}, {len(self.hits)} hits, {self.depth} re-ranked)"

    def __str__(self) -> str:
        """
        >>> print(Ranking("cat", (Hit(1, "a", 2.5).reading(lambda: Doc("a", "A cat.", "Cats")),)))
        cat: 1 hits
          1    2.50  a  Cats
        """
        told = f"{self.query}: {len(self.hits)} hits"
        if self.depths:
            told += f", {self.depth} of {self.found} re-ranked"
        if "total" in self.timing:
            told += f" in {self.timing['total']:.1f} ms"
        shown = self.hits[:_SHOWN]
        width = max((len(str(hit.doc_id)) for hit in shown), default=0)
        rows = [
            f"{hit.rank:3} {hit.score:7.2f}  {hit.doc_id!s:{width}}  {_one_line(hit)}"
            for hit in shown
        ]
        rest = len(self.hits) - len(shown)
        return "\n".join([told, *rows, *([f"  … and {rest} more"] if rest else [])])

    @property
    def answered(self) -> str:
        """How many shards did, in words.

        >>> Ranking("cat", (), shards=8, missing=("segment-000001-3",)).answered
        'shards: 7 of 8'
        """
        return f"shards: {self.shards - len(self.missing)} of {self.shards}"

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...

    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One for each hit, all with the same names: `pandas.DataFrame(ranking.to_dicts())`."""
        return [hit.to_dict() for hit in self.hits]

    def to_json(self, shown: Callable[[Hit], Mapping[str, Any]] = lambda hit: {}) -> dict[str, Any]:
        """As every interface writes it; `shown` says what else there is to tell of a hit.

        `stages` are the hops in the order in which they were gone through; scoring says how many
        documents it took.
        """
        documents = dict(zip(map(scoring_name, range(len(self.depths))), self.depths, strict=True))
        return {
            "query": self.query,
            "depth": self.depth,
            "found": self.found,
            "cut_short": self.cut_short,
            "live": self.live,
            "truncated": self.truncated,
            **self._of_shards(),
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
                    "placed_by": hit.placed_by,
                    "passage": hit.passage,
                    "truncated": hit.truncated,
                    **shown(hit),
                }
                for hit in self.hits
            ],
        }

    def _of_shards(self) -> dict[str, Any]:
        if not self.shards:
            return {}
        answered = self.shards - len(self.missing)
        told = {"answered": answered, "of": self.shards, "missing": list(self.missing)}
        return {"shards": told}


def _one_line(hit: Hit) -> str:
    text = " ".join((hit.title or hit.snippet).split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 2]} …"


def query_name(number: int) -> str:
    """The hop in which a pipeline's model of this number, from 0 on, encodes the query."""
    return f"query_{number + 1}" if number else "query"


def scoring_name(number: int) -> str:
    """The hop in which it scores documents."""
    return f"scoring_{number + 1}" if number else "scoring"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rankings of many queries, in columns: a run has millions of rows.

    Rows `offsets[i]:offsets[i + 1]` belong to `query_ids[i]`. Rows keep the order they came in;
    whoever needs ranks sorts by score.
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
