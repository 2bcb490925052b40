"""Which pieces make up a word: a piece that begins with ## goes on with the word before it.

A person would leave out a word, not half of one, and would read words, not halves. What is found
for a whole word is divided evenly among its pieces; what is found for pieces is added up for the
word, and that is what explanations show.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from glassrank.explanations.reading import FIRST, LAST
from glassrank.explanations.structure import (
    ExplanationData,
    Mark,
    Matrix,
    QueryTerm,
    ScorePart,
    Side,
    Text,
    Word,
)

Explained = TypeVar("Explained", bound=ExplanationData)
Places = Sequence[int]
"""Of pieces that belong together."""


def group_subwords(pieces: Sequence[str]) -> list[Places]:
    """The places of each word's pieces; [CLS] and [SEP] belong to none.

    >>> group_subwords(["[CLS]", "read", "##ing", "csv", "[SEP]"])
    [[1, 2], [3]]
    """
    words: list[list[int]] = []
    for place, piece in enumerate(pieces):
        if piece in (FIRST, LAST):
            continue
        if piece.startswith("##") and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    return [*words]


def merge_runs(words: Sequence[Places], most: int) -> list[Places]:
    """At most so many runs of neighbouring words, as short as can be.

    >>> merge_runs([[1, 2], [3], [4]], most=2)
    [[1, 2, 3], [4]]
    """
    size = max(1, math.ceil(len(words) / most))
    starts = range(0, len(words), size)
    return [[place for word in words[s : s + size] for place in word] for s in starts]


def share_evenly(values: Sequence[float], units: Sequence[Places], count: int) -> list[float]:
    """The value of each unit, divided among its places; 0 for places of none.

    >>> share_evenly([4.0, 1.0], [[1, 2], [3]], count=5)
    [0.0, 2.0, 2.0, 1.0, 0.0]
    """
    shares = [0.0] * count
    for value, places in zip(values, units, strict=True):
        for place in places:
            shares[place] = value / len(places)
    return shares


def uses_subwords(explanation: ExplanationData) -> bool:
    """Whether its words are pieces of words: each query then begins with [CLS], which no text can
    say by itself."""
    return _is_in_pieces(explanation.query)


def _is_in_pieces(query: Text) -> bool:
    return [word.text for word in query.words[:1]] == [FIRST]


def group_query_words(query: Text) -> list[Places]:
    """What is left out of a query at once: each word, or all pieces of it."""
    words = [word.text for word in query.words]
    return (
        group_subwords(words) if _is_in_pieces(query) else [[place] for place in range(len(words))]
    )


def number_words(query: Text) -> dict[int, int]:
    """Of each place in a query, the number of its word when pieces are joined."""
    if not _is_in_pieces(query):
        return {place: place for place in range(len(query.words))}
    return {place: word for word, unit in enumerate(_units(query)) for place in unit}


def merge_subwords(explanation: Explained) -> Explained:
    """The same explanation by whole words, where a model reads pieces. Every value is the sum of
    its pieces' values, so that all sums are what they were."""
    if not uses_subwords(explanation):
        return explanation
    query, doc = _units(explanation.query), _units(explanation.doc)
    asked, given = merge_text_subwords(explanation.query), merge_text_subwords(explanation.doc)
    number = number_words(explanation.query)
    return replace(
        explanation,
        query=asked,
        doc=given,
        parts=_joined_part(explanation.parts, number, asked.words),
        terms=_terms(explanation.terms, number),
        signals=tuple(
            replace(signal, strength=tuple(max(signal.strength[p] for p in unit) for unit in doc))
            for signal in explanation.signals
        ),
        marks=tuple(_mark([explanation.marks[p] for p in unit], query, number) for unit in doc),
        matrices=tuple(
            _joined_matrix(matrix, {"query": query, "document": doc})
            for matrix in explanation.matrices
        ),
    )


def merge_text_subwords(text: Text) -> Text:
    """A text of pieces with whole words in their place."""
    return replace(text, words=tuple(_word(text, unit) for unit in _units(text)))


def _units(text: Text) -> list[Places]:
    """The pieces of each word in the text's order; [CLS] and [SEP] are units of their own."""
    pieces = [word.text for word in text.words]
    words = {unit[0]: unit for unit in group_subwords(pieces)}
    inside = {place for unit in words.values() for place in unit}
    starts = [p for p in range(len(pieces)) if p in words or p not in inside]
    return [words.get(place, [place]) for place in starts]


def _word(text: Text, unit: Places) -> Word:
    pieces = [text.words[place] for place in unit]
    spelled = pieces[0].text + "".join(piece.text.removeprefix("##") for piece in pieces[1:])
    starts = [piece.start for piece in pieces if piece.start is not None]
    stops = [piece.stop for piece in pieces if piece.stop is not None]
    return Word(
        spelled,
        starts[0] if starts else None,
        stops[-1] if stops else None,
        all(piece.known for piece in pieces),
    )


def _joined_part(part: ScorePart, number: Mapping[int, int], names: Sequence[Word]) -> ScorePart:
    """Its query pieces that are of one word as one part, here and below."""
    children: list[ScorePart] = []
    groups: dict[int, list[ScorePart]] = {}
    for child in part.children:
        child = _joined_part(child, number, names)
        if child.kind != "term" or child.number is None:
            children.append(child)
            continue
        word = number[child.number]
        if word not in groups:  # keeps its place
            groups[word] = []
            children.append(replace(child, name=names[word].text, number=word))
        groups[word].append(child)
    return replace(
        part,
        children=tuple(
            child
            if child.kind != "term" or child.number is None
            else _sum_of(child, groups[child.number])
            for child in children
        ),
    )


def _sum_of(word: ScorePart, pieces: Sequence[ScorePart]) -> ScorePart:
    """Subwords have the same children, one for each kernel, or none."""
    columns = zip(*(piece.children for piece in pieces), strict=True)
    return replace(
        word,
        value=math.fsum(piece.value for piece in pieces),
        children=tuple(_sum_of(column[0], column) for column in columns),
    )


def _terms(terms: Sequence[QueryTerm], number: Mapping[int, int]) -> tuple[QueryTerm, ...]:
    groups: dict[int, list[QueryTerm]] = {}
    for term in terms:
        groups.setdefault(number[term.word], []).append(term)
    return tuple(
        QueryTerm(
            word,
            math.fsum(term.value for term in pieces),
            {path: math.fsum(term.paths[path] for term in pieces) for path in pieces[0].paths},
        )
        for word, pieces in groups.items()
    )


def _mark(pieces: Sequence[Mark], query: Sequence[Places], number: Mapping[int, int]) -> Mark:
    """What the closest piece is to the query, the whole word is; where a model has no
    similarities, the piece that adds most."""
    leader = max(
        pieces,
        key=lambda m: (
            (m.signal is not None, m.share) if m.similarity is None else (True, m.similarity)
        ),
    )
    by_piece = [math.fsum(column) for column in zip(*(m.by_term for m in pieces), strict=True)]
    return Mark(
        None if leader.term is None else number[leader.term],
        leader.signal,
        leader.similarity,
        math.fsum(mark.share for mark in pieces),
        tuple(math.fsum(by_piece[p] for p in unit) for unit in query) if by_piece else (),
        tuple(math.fsum(column) for column in zip(*(m.by_signal for m in pieces), strict=True)),
    )


def _joined_matrix(matrix: Matrix, units: Mapping[Side, Sequence[Places]]) -> Matrix:
    """Similarities of words are those of their closest pieces. Attention is a share: what a word
    gets is the sum over its pieces, what it gives their mean."""
    across = [
        [
            (math.fsum if matrix.attention else max)(row[place] for place in unit)
            for unit in units[matrix.columns]
        ]
        for row in matrix.values
    ]
    down = [
        tuple(
            math.fsum(column) / len(unit) if matrix.attention else max(column)
            for column in zip(*(across[place] for place in unit), strict=True)
        )
        for unit in units[matrix.rows]
    ]
    return replace(matrix, values=tuple(down))
