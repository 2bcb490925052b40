"""Merges subwords to words: a subword that begins with ## continues the word before it. Ablation
divides a word's value evenly among its subwords; explanations sum the values of subwords.
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
"""Of subwords that belong together."""


def group_subwords(tokens: Sequence[str]) -> list[Places]:
    """The places of each word's subwords, without [CLS] and [SEP].

    >>> group_subwords(["[CLS]", "read", "##ing", "csv", "[SEP]"])
    [[1, 2], [3]]
    """
    words: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token in (FIRST, LAST):
            continue
        if token.startswith("##") and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    return [*words]


def merge_runs(words: Sequence[Places], most: int) -> list[Places]:
    """At most `most` runs of neighbouring words, as short as possible.

    >>> merge_runs([[1, 2], [3], [4]], most=2)
    [[1, 2, 3], [4]]
    """
    size = max(1, math.ceil(len(words) / most))
    starts = range(0, len(words), size)
    return [[place for word in words[s : s + size] for place in word] for s in starts]


def share_evenly(values: Sequence[float], units: Sequence[Places], count: int) -> list[float]:
    """Divides the value of each unit among its places; other places get 0.

    >>> share_evenly([4.0, 1.0], [[1, 2], [3]], count=5)
    [0.0, 2.0, 2.0, 1.0, 0.0]
    """
    shares = [0.0] * count
    for value, places in zip(values, units, strict=True):
        for place in places:
            shares[place] = value / len(places)
    return shares


def group_query_words(query: Text) -> list[Places]:
    """The places of each query word, or of its subwords: what ablation leaves out together."""
    return group_subwords([word.text for word in query.words])


def number_words(query: Text) -> dict[int, int]:
    """For each place in a query, the number of its word after merging."""
    return {place: word for word, unit in enumerate(_units(query)) for place in unit}


def merge_subwords(explanation: Explained) -> Explained:
    """The explanation by whole words: values are sums of their subwords' values."""
    if [word.text for word in explanation.query.words[:1]] != [FIRST]:
        return explanation  # its words are no subwords: no text contains a [CLS]
    query, doc = _units(explanation.query), _units(explanation.doc)
    query_text = merge_text_subwords(explanation.query)
    number = number_words(explanation.query)
    return replace(
        explanation,
        query=query_text,
        doc=merge_text_subwords(explanation.doc),
        parts=_merge_part(explanation.parts, number, query_text.words),
        terms=_merge_terms(explanation.terms, number),
        signals=tuple(
            replace(signal, strength=tuple(max(signal.strength[p] for p in unit) for unit in doc))
            for signal in explanation.signals
        ),
        marks=tuple(
            _merge_marks([explanation.marks[p] for p in unit], query, number) for unit in doc
        ),
        matrices=tuple(
            _merge_matrix(matrix, {"query": query, "document": doc})
            for matrix in explanation.matrices
        ),
    )


def merge_text_subwords(text: Text) -> Text:
    """A text with words instead of subwords."""
    return replace(text, words=tuple(_merge_word(text, unit) for unit in _units(text)))


def _units(text: Text) -> list[Places]:
    """The subwords of each word in the text's order; [CLS] and [SEP] are units of their own."""
    subwords = [word.text for word in text.words]
    words = {unit[0]: unit for unit in group_subwords(subwords)}
    inside = {place for unit in words.values() for place in unit}
    starts = [p for p in range(len(subwords)) if p in words or p not in inside]
    return [words.get(place, [place]) for place in starts]


def _merge_word(text: Text, unit: Places) -> Word:
    subwords = [text.words[place] for place in unit]
    spelled = subwords[0].text + "".join(
        subword.text.removeprefix("##") for subword in subwords[1:]
    )
    starts = [subword.start for subword in subwords if subword.start is not None]
    stops = [subword.stop for subword in subwords if subword.stop is not None]
    return Word(
        spelled,
        starts[0] if starts else None,
        stops[-1] if stops else None,
        all(subword.known for subword in subwords),
    )


def _merge_part(part: ScorePart, number: Mapping[int, int], names: Sequence[Word]) -> ScorePart:
    groups: dict[tuple[bool, int], list[ScorePart]] = {}  # by word, or each part by itself
    for place, child in enumerate(part.children):
        is_word = child.kind == "term" and child.number is not None
        key = is_word, place if child.number is None or not is_word else number[child.number]
        groups.setdefault(key, []).append(_merge_part(child, number, names))
    children = (
        _sum_of(replace(own[0], name=names[at].text, number=at), own) if is_word else own[0]
        for (is_word, at), own in groups.items()
    )
    return replace(part, children=tuple(children))


def _sum_of(word: ScorePart, subwords: Sequence[ScorePart]) -> ScorePart:
    """Sums subwords, which have the same children: one for each kernel, or none."""
    columns = zip(*(subword.children for subword in subwords), strict=True)
    return replace(
        word,
        value=math.fsum(subword.value for subword in subwords),
        children=tuple(_sum_of(column[0], column) for column in columns),
    )


def _merge_terms(terms: Sequence[QueryTerm], number: Mapping[int, int]) -> tuple[QueryTerm, ...]:
    groups: dict[int, list[QueryTerm]] = {}
    for term in terms:
        groups.setdefault(number[term.word], []).append(term)
    return tuple(
        QueryTerm(
            word,
            math.fsum(term.value for term in subwords),
            {path: math.fsum(term.paths[path] for term in subwords) for path in subwords[0].paths},
        )
        for word, subwords in groups.items()
    )


def _merge_marks(
    subwords: Sequence[Mark], query: Sequence[Places], number: Mapping[int, int]
) -> Mark:
    """A word has the query word and signal of its closest, or else largest, subword."""
    leader = max(
        subwords,
        key=lambda m: (
            (m.signal is not None, m.share) if m.similarity is None else (True, m.similarity)
        ),
    )
    by_piece = [math.fsum(column) for column in zip(*(m.by_term for m in subwords), strict=True)]
    return Mark(
        None if leader.term is None else number[leader.term],
        leader.signal,
        leader.similarity,
        math.fsum(mark.share for mark in subwords),
        tuple(math.fsum(by_piece[p] for p in unit) for unit in query) if by_piece else (),
        tuple(math.fsum(column) for column in zip(*(m.by_signal for m in subwords), strict=True)),
    )


def _merge_matrix(matrix: Matrix, units: Mapping[Side, Sequence[Places]]) -> Matrix:
    """The similarity of words is that of their closest subwords. Attention is a share: a word
    receives the sum over its subwords, and gives their mean."""
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
