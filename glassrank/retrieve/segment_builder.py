"""Collects documents in memory until there are enough of them for a segment."""

from array import array
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from glassrank.compiled import compiled
from glassrank.errors import DuplicateIdError, InputError
from glassrank.folders import Folder
from glassrank.ragged import Ragged, pack
from glassrank.retrieve.segment import SegmentRecord, encode_fields
from glassrank.retrieve.segment_writer import DocBlock, TermNumbers, write_segment
from glassrank.text import EnglishAnalyzer
from glassrank.types import Doc

_NOT_A_TERM = -1


class _TermNumbers(dict[str, int]):
    """Word -> number of its term, in the order in which terms are met. Stop words have none."""

    def __init__(self, analyzer: EnglishAnalyzer) -> None:
        self._analyzer = analyzer
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = self._analyzer.term(word)
        number = self.terms.setdefault(term, len(self.terms)) if term else _NOT_A_TERM
        self[word] = number
        return number


class SegmentBuilder:
    """Documents that will become a segment."""

    def __init__(self, analyzer: EnglishAnalyzer) -> None:
        self._analyzer = analyzer
        self._numbers = _TermNumbers(analyzer)
        self._ids: list[bytes] = []
        self._texts: list[bytes] = []
        self._fields: list[bytes] = []
        self._tokens = array("i")
        self._ends = array("q", [0])
        self.bytes = 0
        """Roughly how much memory the documents take."""

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, doc: Doc) -> None:
        """One more document."""
        if not doc.doc_id:
            raise InputError("a document has an empty id; give every document one of its own")
        content = f"{doc.title} {doc.text}" if doc.title else doc.text
        self._tokens.extend(map(self._numbers.__getitem__, self._analyzer.words(content)))
        self._ends.append(len(self._tokens))
        self._ids.append(doc.doc_id.encode("utf-8", "replace"))
        self._texts.append(doc.text.encode("utf-8", "replace"))
        self._fields.append(encode_fields(doc))
        self.bytes += 200 + len(self._texts[-1]) + len(self._fields[-1])
        self.bytes += 4 * (self._ends[-1] - self._ends[-2])

    def write(self, folder: Folder, name: str) -> SegmentRecord:
        """Sorts documents and terms, and writes the segment."""
        order = sorted(range(len(self)), key=self._ids.__getitem__)
        ids = [self._ids[i] for i in order]
        if len(set(ids)) < len(ids):
            twice = next(doc_id for doc_id, n in Counter(ids).items() if n > 1)
            raise DuplicateIdError(twice.decode())
        terms = sorted(self._numbers.terms)
        rank = np.empty(len(terms) + 1, np.int32)
        rank[_NOT_A_TERM] = _NOT_A_TERM
        rank[[self._numbers.terms[term] for term in terms]] = np.arange(len(terms))
        vector_offsets, vector_terms, vector_counts = _count(
            rank[np.frombuffer(self._tokens, np.int32)],
            np.frombuffer(self._ends, np.int64),
            np.array(order, np.int64),
        )
        block = DocBlock(
            ids=pack(ids),
            texts=pack([self._texts[i] for i in order]),
            fields=pack([self._fields[i] for i in order]),
            terms=Ragged(vector_offsets, vector_terms),
            counts=vector_counts,
        )
        known = TermNumbers(
            [term.encode("utf-8", "replace") for term in terms],
            np.bincount(vector_terms, minlength=len(terms)),
            np.bincount(vector_terms, vector_counts, len(terms)).astype(np.int64),
        )
        return write_segment(folder, name, known, [block])


@compiled
def _count(
    tokens: NDArray[np.int32], ends: NDArray[np.int64], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Document vectors: each document's terms in order, with how often they occur."""
    offsets = np.zeros(len(order) + 1, np.int64)
    terms = np.empty(len(tokens), np.uint32)
    counts = np.empty(len(tokens), np.uint32)
    at = 0
    for i in range(len(order)):
        words = np.sort(tokens[ends[order[i]] : ends[order[i] + 1]])
        previous = _NOT_A_TERM
        for word in words:
            if word == _NOT_A_TERM:
                continue
            if word == previous:
                counts[at - 1] += 1
            else:
                terms[at] = word
                counts[at] = 1
                at += 1
                previous = word
        offsets[i + 1] = at
    return offsets, terms[:at].copy(), counts[:at].copy()
