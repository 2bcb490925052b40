"""Scores candidates from their texts: reads and encodes them on the fly, a chunk at a time."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.index.snapshot import Snapshot
from glassrank.models.doc_reader import Passage, ReadDoc
from glassrank.models.model import Floats, Ints, TokenEmbeddings
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank.candidates import PassageList
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.scheduler import CostModel
from glassrank.text.words import MAX_TEXT_CHARS
from glassrank.types import Doc

MAX_CHUNK = 16_384.0
"""Tokens that are encoded as one chunk without a budget."""
_TOKENS_PER_TERM = 2.0
"""The index counts a document's terms; a model reads stop words, too."""
_CHARACTERS_PER_TOKEN = 6.0
_MAX_CHARACTERS_PER_TOKEN = 100


def text_sizes(docs: Sequence[Doc]) -> NDArray[np.float64]:
    """About how many tokens each text has."""
    return np.array([len(doc.text) for doc in docs], np.float64) / _CHARACTERS_PER_TOKEN


def index_sizes(snapshot: Snapshot, numbers: Sequence[int]) -> NDArray[np.float64]:
    """About how many tokens each of these documents of an index has."""
    places = map(snapshot.locate, numbers)
    lengths = [segment.lengths[doc] for segment, doc in places]
    return _TOKENS_PER_TERM * np.array(lengths, np.float64)


def first_passage_sizes(reranker: Reranker, sizes: NDArray[np.floating]) -> NDArray[np.floating]:
    """About how many tokens the first passages of documents of these sizes have."""
    return np.asarray(np.minimum(sizes, reranker.usage.doc_length) + 1)


class TextScorer:
    """One query on texts, which are encoded when they are scored."""

    encodes = True

    def __init__(
        self,
        reranker: Reranker,
        query: TokenEmbeddings,
        read_doc: Callable[[int, int], Doc],
        sizes: NDArray[np.floating],
        first_stage: Floats | None = None,
        left_out: TokenFilter | None = None,
        *,
        cost: CostModel | None = None,
        max_chunk: float = MAX_CHUNK,
    ) -> None:
        """`read_doc(place, characters)` reads so much of a candidate; `sizes` are in tokens."""
        self.cost = reranker.cost if cost is None else cost
        self.max_chunk = max_chunk
        self.is_interruptible = reranker.is_interruptible
        self.first_stage = reranker.weigh_first_stage(len(sizes), first_stage)
        self._first_stage_scores = first_stage
        self._left_out = left_out
        self._sizes = sizes
        self._reranker, self._query, self._read_doc = reranker, query, read_doc
        # A model reads no more characters for its first passage; one more tells if there is a rest.
        self._first_characters = _MAX_CHARACTERS_PER_TOKEN * reranker.usage.doc_length + 1
        self._long: dict[int, ReadDoc] = {}  # documents of several passages, as far as read
        self._cut = np.zeros(len(sizes), np.bool_)
        self._round = 0

    @classmethod
    def of_texts(
        cls,
        reranker: Reranker,
        query: TokenEmbeddings,
        docs: Sequence[Doc],
        first_stage: Floats | None = None,
        max_chunk: float = MAX_CHUNK,
    ) -> "TextScorer":
        """On given texts."""
        return cls(
            reranker, query, lambda place, _: docs[place], text_sizes(docs), first_stage,
            max_chunk=max_chunk,
        )  # fmt: skip

    def first_passages(self) -> PassageList:
        """The first passages of all documents."""
        docs = np.arange(len(self._sizes))
        sizes = first_passage_sizes(self._reranker, self._sizes)
        return PassageList(docs, np.zeros_like(docs), sizes)

    def further_passages(self, docs: int) -> PassageList | None:
        """One more passage of each document that is not read to its end."""
        self._round += 1
        places = [
            place
            for place, doc in sorted(self._long.items())
            if place < docs and len(doc.passages) == self._round and doc.cut
        ]
        if not places:
            return None
        sizes = np.full(len(places), self._reranker.usage.doc_length + 1.0)
        return PassageList(np.array(places), np.full(len(places), self._round), sizes)

    def score(self, passages: PassageList, deadline: Deadline) -> Floats:
        """A score for each passage; -inf where it turns out not to exist."""
        places = passages.docs.tolist()
        read = list(map(self._next_passage, places)) if self._round else self._read_first(places)
        exists = np.array([passage is not None for passage in read], np.bool_)
        ids = [passage.ids for passage in read if passage is not None]
        first_stage = self._first_stage_scores
        scores = np.full(len(places), -np.inf, np.float32)
        scores[exists] = self._reranker.score_passages(
            self._query,
            ids,
            None if first_stage is None else first_stage[passages.docs[exists]],
            self._left_out,
            deadline,
        )
        return scores

    def _read_first(self, places: Sequence[int]) -> list[Passage | None]:
        docs = self._reranker.read(
            [self._read_doc(place, self._first_characters) for place in places]
        )
        for place, doc in zip(places, docs, strict=True):
            self._cut[place] = doc.cut
            if not doc.is_whole:
                self._long[place] = doc
        return [doc.passages[0] for doc in docs]

    def _next_passage(self, place: int) -> Passage | None:
        doc = self._long[place]
        if self._round == 1 and len(doc.doc.text) == self._first_characters:
            (doc,) = self._reranker.read([self._read_doc(place, MAX_TEXT_CHARS + 1)])
            self._long[place] = doc
        passage = doc.next()
        self._cut[place] = doc.cut
        return passage

    def spans(self, docs: Ints, numbers: Ints) -> Ints:
        """(n, 2) characters of one passage of each document; -1 where it is the whole text."""
        spans = np.full((len(docs), 2), -1)
        pairs = zip(docs.tolist(), numbers.tolist(), strict=True)
        for row, (place, number) in enumerate(pairs):
            if place in self._long:
                passage = self._long[place].passages[number]
                spans[row] = passage.start, passage.stop
        return spans

    def is_cut(self, docs: int) -> NDArray[np.bool_]:
        """(docs,) whose text goes on after the passages that were read."""
        return self._cut[:docs].copy()
