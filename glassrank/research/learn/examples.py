"""Training examples: queries made from documents, or those of a log.

A document's title, or its first sentence, asks for the rest of it, and so does a span from its
middle (inverse cloze: K. Lee, M.-W. Chang, K. Toutanova, ACL 2019). What the query was taken from
is hidden in its source. A query stays if the model finds the source again among the first
candidates: round-trip consistency (Z. Dai and others, "Promptagator", ICLR 2023; L. Bonifacio and
others, "InPars", SIGIR 2022).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.doc_reader import find_sentence_ends
from glassrank.models.model import to_array
from glassrank.rerank import Reranker
from glassrank.research.learn.clicks import estimate_examination, weigh_clicks
from glassrank.research.learn.logs import Log

DEPTH = 100
_LONGEST_TITLE, _SPAN = 24, 12
"""Words of a query."""
_MOST_SEARCHES = 2_500
"""By which position bias is estimated."""
_LEAST_ROWS = 10
"""PassageRows that must be left of a source."""


@dataclass(frozen=True)
class Example:
    """A query with candidates, and how good each is."""

    text: str
    vectors: NDArray[np.float32]  # (Q, E) unit vectors
    weights: NDArray[np.float32]  # (Q,) of the query's tokens
    docs: NDArray[np.int64]  # (n,) numbers in the index
    first_scores: NDArray[np.float32]  # (n,) of the first stage
    gains: NDArray[np.float64]  # (n,) 0: not known to be good
    shown: int = 0
    """So many of the first were shown to a user."""
    source: int = -1
    """The place of the document that the query was taken from."""
    hidden: tuple[int, int] = (0, 0)
    """Rows of the source's first passage that the query was taken from."""

    def choose(self, places: NDArray[np.integer]) -> "Example":
        """With some of its candidates."""
        source = np.flatnonzero(places == self.source)
        return replace(
            self,
            docs=self.docs[places],
            first_scores=self.first_scores[places],
            gains=self.gains[places],
            shown=int((places < self.shown).sum()),
            source=int(source[0]) if len(source) else -1,
        )


class ExampleMaker:
    """Finds candidates with the first stage, and encodes queries."""

    def __init__(self, index: Index, reranker: Reranker) -> None:
        self.index, self.reranker = index, reranker

    def make(self, text: str) -> Example | None:
        """A query with its candidates; None where there are too few to learn from."""
        found = self.index.top_k([text], DEPTH, self.reranker.usage.first_stage)[0]
        if len(found.docs) < 2:
            return None
        encoded = self.reranker.encode_query(text)
        real = to_array(encoded.mask)[0] > 0
        vectors, weights = (to_array(each)[0][real] for each in (encoded.vectors, encoded.idf))
        gains = np.zeros(len(found.docs))
        return Example(text, vectors, weights, found.docs, found.scores, gains)

    def from_docs(self, seed: int = 0) -> Iterator[Example]:
        """Queries made from documents, in random order, for as long as somebody takes them."""
        rng = np.random.default_rng(seed)
        for number in rng.permutation(len(self.index)).tolist():
            doc = self.index.snapshot.doc(number)
            ids = self.reranker.read([doc])[0].passages[0].ids
            for text in _take_queries(doc.title, doc.text, rng):
                example = self.make(text)
                if example is None or number not in example.docs:
                    continue
                asked = self.reranker.read_query(text).ids[1:-1]  # without [CLS] and [SEP]
                start = _find(ids, asked)
                if start < 0 or len(ids) - len(asked) < _LEAST_ROWS:
                    continue
                gains = (example.docs == number).astype(np.float64)
                yield replace(
                    example,
                    gains=gains,
                    source=int(gains.argmax()),
                    hidden=(start, start + len(asked)),
                    # The first stage has read what is hidden, so its scores say nothing here.
                    first_scores=np.zeros_like(example.first_scores),
                )

    def from_log(
        self, log: Log, score: Callable[[Example], NDArray[np.floating]] | None = None
    ) -> list[Example]:
        """Queries with clicks. With the model's own `score`, position bias is estimated, and each
        click has the weight of its rank. Documents that are not in the index are counted and left
        out."""
        shown: list[tuple[Example, NDArray[np.int64]]] = []
        examples: list[tuple[Example, NDArray[np.int64]]] = []
        for logged in log.queries:
            numbers = np.array([self.index.snapshot.find(i) for i in logged.shown], np.int64)
            is_clicked = np.array([i in logged.clicked for i in logged.shown], np.bool_)
            ranks = np.flatnonzero(numbers >= 0)
            log.skipped["documents that are not in the index"] += len(numbers) - len(ranks)
            is_wanted = score is not None and len(shown) < _MOST_SEARCHES
            if not (is_clicked[ranks] | is_wanted).any():
                continue
            example = self.make(logged.text)
            if example is None:
                continue
            example = _put_first(example, numbers[ranks], is_clicked[ranks])
            if is_wanted:
                shown.append((example.choose(np.arange(len(ranks))), ranks))
            if example.gains.any():
                examples.append((example, ranks))
        if not examples:
            raise InputError(
                "the log has no click on a document of the index; "
                "expected clicks, as glassrank serve --log writes them"
            )
        if score is not None:
            weights = weigh_clicks(_estimate(shown, score))
            for example, ranks in examples:
                example.gains[: len(ranks)] *= weights[np.minimum(ranks, len(weights) - 1)]
        return [example for example, _ in examples]


def _put_first(example: Example, shown: NDArray[np.int64], clicked: NDArray[np.bool_]) -> Example:
    """What was shown, then the other candidates. A document that the first stage did not find has
    its score of 0."""
    rest = ~np.isin(example.docs, shown)
    scores = dict(zip(example.docs.tolist(), example.first_scores.tolist(), strict=True))
    first_scores = np.array([scores.get(number, 0.0) for number in shown.tolist()], np.float32)
    return replace(
        example,
        docs=np.concatenate([shown, example.docs[rest]]),
        first_scores=np.concatenate([first_scores, example.first_scores[rest]]),
        gains=np.concatenate([clicked, np.zeros(rest.sum())]),
        shown=len(shown),
    )


def _estimate(
    shown: list[tuple[Example, NDArray[np.int64]]],
    score: Callable[[Example], NDArray[np.floating]],
) -> NDArray[np.float64]:
    """From searches that show as many documents as most do. What stands out of its list is liked,
    not what has a high score: scores of two queries do not compare."""
    width = int(np.median([len(ranks) for _, ranks in shown]))
    whole = [example for example, ranks in shown if ranks[:width].tolist() == list(range(width))]
    if not whole:
        return np.ones(1)
    clicks = np.array([example.gains[:width] > 0 for example in whole])
    scores = np.array([score(example)[:width] for example in whole])
    return estimate_examination(clicks, scores - scores.mean(1, keepdims=True))


def _take_queries(title: str, text: str, rng: np.random.Generator) -> Iterator[str]:
    """A title, or the first sentence, and a span of another one.

    >>> list(_take_queries("", "Cats chase all mice. They sleep in the warm sun.", \
np.random.default_rng(0)))
    ['Cats chase all mice.', 'They sleep in the warm sun.']
    """
    ends = [0, *find_sentence_ends(text)]
    sentences = [text[start:stop].split() for start, stop in pairwise(ends)]
    sentences = [words for words in sentences if len(words) >= 4]
    titled = title.split() if len(title.split()) >= 2 else None
    heads, rest = (sentences[:1], sentences[1:]) if titled is None else ([titled], sentences)
    if titled is None and len(sentences) == 1:  # a text without full stops
        rest = [words for words in [sentences[0][_LONGEST_TITLE:]] if words]
    yield from (" ".join(words[:_LONGEST_TITLE]) for words in heads)
    if rest:
        words = rest[int(rng.integers(len(rest)))]
        begin = int(rng.integers(max(1, len(words) - _SPAN + 1)))
        yield " ".join(words[begin : begin + _SPAN])


def _find(ids: NDArray[np.integer], part: NDArray[np.integer]) -> int:
    """Where a run of ids begins, or -1.

    >>> _find(np.array([5, 6, 7, 8]), np.array([7, 8])), _find(np.array([5, 6]), np.array([9]))
    (2, -1)
    """
    if not 0 < len(part) <= len(ids):
        return -1
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(part))
    return next(iter(np.flatnonzero((windows == part).all(1)).tolist()), -1)
