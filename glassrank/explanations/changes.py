"""`what_if`: how scores and ranks change when a word is removed or replaced."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline, LateError, late_error
from glassrank.errors import InputError
from glassrank.explanations.explainers import get_passage, score_texts
from glassrank.explanations.reading import (
    ReadPassage,
    Span,
    TokenizedText,
    read,
    read_doc,
    word_spans,
)
from glassrank.explanations.structure import Side
from glassrank.explanations.subword_merging import merge_text_subwords
from glassrank.models.doc_reader import join_title
from glassrank.rerank import Reranker
from glassrank.rerank.reranker import as_doc
from glassrank.settings import to_plain
from glassrank.text import split_words
from glassrank.types import Doc

SCHEMA = "glassrank.what-if/1"

_DOCS_AT_ONCE = 16
_OTHERS_AT_ONCE = 4  # between two looks at the clock
_MAX_CHARACTERS = 1_000_000

Spans = Sequence[Span | None]


@dataclass(frozen=True)
class Change:
    """Replaces a word of the query or of the document with `by`, or removes it. A number is that of
    the word in an explanation; a string means the word wherever it occurs."""

    side: Side
    word: int | str
    by: str = ""


@dataclass(frozen=True)
class Moved:
    """A document's score and rank before and after. Ranks count from 1; ties keep their order."""

    score_before: float
    score_after: float
    rank_before: int
    rank_after: int


@dataclass(frozen=True)
class WhatIf:
    """The effect of a change: each document's score and rank, before and after."""

    query: str
    """After the change, as is the text."""
    text: str
    doc: int
    """The number of the document that was changed, or is of interest."""
    moved: tuple[Moved, ...]  # one for each document

    def to_json(self) -> dict[str, Any]:
        """`docs/reference/explanations.md` describes the fields."""
        plain: dict[str, Any] = to_plain(self)
        return {"schema": SCHEMA, **plain}


def what_if(
    reranker: Reranker,
    query: str,
    docs: Sequence[str | Doc],
    change: Change,
    *,
    doc: int = 0,
    first_stage: Sequence[float] | None = None,
    deadline: Deadline = NEVER,
) -> WhatIf:
    """Scores `docs` before and after the change to the query or to document `doc`. The scores of
    the first stage stay the same. Raises a LateError at the deadline."""
    if not 0 <= doc < len(docs):
        raise InputError(
            f"doc: expected a number below {len(docs)}, the number of documents, not {doc}"
        )
    given = [as_doc(text) for text in docs]
    before, passages = _scores(reranker, query, given, first_stage, deadline)
    if change.side == "query":
        query = apply_change(query, change, _find_spans(read(reranker, query, "query")))
        after, _ = _scores(reranker, query, given, first_stage, deadline)
    else:
        reading = read_doc(reranker, given[doc], passages[doc])
        given[doc] = _changed(given[doc], change, _find_spans(reading))
        own_first = None if first_stage is None else [first_stage[doc]]
        after = before.copy()
        after[doc : doc + 1], _ = _scores(reranker, query, [given[doc]], own_first, deadline)
    return WhatIf(query, join_title(given[doc]), doc, _compare(before, after))


def _changed(doc: Doc, change: Change, numbered: Spans | None) -> Doc:
    """The changed document, with title and text still apart."""
    changed = apply_change(join_title(doc), change, numbered)
    if not doc.title:
        return replace(doc, text=changed)
    if changed.startswith(f"{doc.title} "):
        return replace(doc, text=changed[len(doc.title) + 1 :])
    if changed.endswith(doc.text):
        title = changed.removesuffix(doc.text).rstrip()
        return replace(doc, title=title)
    return replace(doc, text=apply_change(doc.text, change), title=apply_change(doc.title, change))


def _scores(
    reranker: Reranker,
    query: str,
    docs: Sequence[Doc],
    first_stage: Sequence[float] | None,
    deadline: Deadline,
) -> tuple[NDArray[np.float32], list[ReadPassage | None]]:
    """Scores and their passages; a few documents at a time, to keep the deadline."""
    first = None if first_stage is None else np.asarray(first_stage, np.float32)
    encoded = reranker.encode_query(query)
    scores = [np.empty(0, np.float32)]
    passages: list[ReadPassage | None] = []
    for start in range(0, len(docs), _DOCS_AT_ONCE):
        some = slice(start, start + _DOCS_AT_ONCE)
        own = None if first is None else first[some]
        try:
            scored = score_texts(reranker, encoded, docs[some], own, abort_at=deadline)
        except LateError:
            raise late_error("this change") from None
        scores.append(scored.scores)
        passages += (get_passage(scored, place) for place in range(len(scored.places)))
    return np.concatenate(scores), passages


def what_if_among(
    reranker: Reranker,
    query: str,
    docs: Sequence[Doc],
    change: Change,
    *,
    doc: int,
    first_stage: Sequence[float] | None = None,
    deadline: Deadline = NEVER,
) -> tuple[WhatIf, list[int]]:
    """Scores document `doc`, then others while there is time; also returns their numbers."""
    first = None if first_stage is None else np.asarray(first_stage, np.float32)
    own_first = None if first_stage is None else [first_stage[doc]]
    alone = what_if(reranker, query, [docs[doc]], change, first_stage=own_first)
    queries = [query] if alone.query == query else [query, alone.query]
    encoded = [reranker.encode_query(text) for text in queries]
    before, after = {doc: alone.moved[0].score_before}, {doc: alone.moved[0].score_after}
    others = [number for number in range(len(docs)) if number != doc]
    took = 0.0
    for start in range(0, len(others), _OTHERS_AT_ONCE):
        left = deadline.remaining()
        if left <= took:
            break
        some = others[start : start + _OTHERS_AT_ONCE]
        given, own = [docs[number] for number in some], None if first is None else first[some]
        try:
            scores = [
                score_texts(reranker, words, given, own, abort_at=deadline).scores
                for words in encoded
            ]
        except LateError:
            break
        before.update(zip(some, scores[0].tolist(), strict=True))
        after.update(zip(some, scores[-1].tolist(), strict=True))
        took = left - deadline.remaining()
    kept = sorted(before)
    columns = [np.array([scores[n] for n in kept], np.float32) for scores in (before, after)]
    return replace(alone, doc=kept.index(doc), moved=_compare(*columns)), kept


def apply_change(text: str, change: Change, numbered: Spans | None = None) -> str:
    """Removes or replaces the word. `numbered` has the spans of numbered words, if they are not the
    text's own words.

    >>> apply_change("A csv-file, a CSV!", Change("document", "csv", "json"))
    'A json-file, a json!'
    >>> apply_change("it can't swim", Change("document", 1, "could"))
    "it could n't swim"
    """
    words = split_words(text)
    spans = word_spans(text, words)
    if isinstance(change.word, int):
        by_number = spans if numbered is None else numbered
        places = [by_number[change.word]] if 0 <= change.word < len(by_number) else []
    else:
        wanted = change.word.lower()
        places = [spans[number] for number, word in enumerate(words) if word == wanted]
    if not places:
        raise InputError(
            f"the {change.side} has no word {change.word!r}; its words are "
            f"{' '.join(words[:20])}{' …' if len(words) > 20 else ''}"
        )
    if len(text) + len(places) * len(change.by) > _MAX_CHARACTERS:
        raise InputError(
            f"{change.word!r} occurs {len(places):,} times in the {change.side}, so the changed "
            f"text would have more than {_MAX_CHARACTERS:,} characters; use a shorter replacement"
        )
    chunks, at = [], 0
    for span in places:
        if span is None:
            raise InputError(
                f"the word {change.word!r} is not in the text, so it cannot be changed"
            )
        chunks += [text[at : span[0]], change.by]
        at = span[1]
    return _join([*chunks, text[at:]])


def _find_spans(reading: TokenizedText) -> Spans | None:
    """The spans of an explanation's words, if they are not the text's own words: subwords, words of
    a passage, or words without stop words."""
    if reading.unit == "words" and reading.text.passage is None and not reading.left_out:
        return None  # the text's own words, also those that the model does not read
    shown = reading.text if reading.unit == "words" else merge_text_subwords(reading.text)
    return [
        None if word.start is None or word.stop is None else (word.start, word.stop)
        for word in shown.words
    ]


def _join(chunks: Sequence[str]) -> str:
    joined: list[str] = []
    for chunk in filter(None, chunks):
        if joined and joined[-1][-1].isalnum() and chunk[0].isalnum():
            joined.append(" ")
        joined.append(chunk)
    return "".join(joined)


def _compare(before: NDArray[np.float32], after: NDArray[np.float32]) -> tuple[Moved, ...]:
    ranks = [np.argsort(np.argsort(-scores, kind="stable")) + 1 for scores in (before, after)]
    columns = before.tolist(), after.tolist(), ranks[0].tolist(), ranks[1].tolist()
    return tuple(Moved(*row) for row in zip(*columns, strict=True))
