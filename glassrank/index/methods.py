"""First-stage methods by name (`bm25`, `ql`, `bm25+rm3`, `ql(mu=500)+rm3(terms=20)`), and RM3.

`bm25(rounded=1)` and `ql(rounded=1)` rank exactly as Lucene does. RM3, from Jaleel et al., "UMass
at TREC 2004", is pseudo-relevance feedback as in Anserini: the most frequent terms of the first
documents, weighted by the documents' scores, expand the query.
"""

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import isinf
from typing import Any

import numpy as np
import regex

from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError
from glassrank.index.scoring import BM25, QL
from glassrank.index.search import TopK, WeightedQuery, drop_high_df_terms, search
from glassrank.index.snapshot import Snapshot
from glassrank.text import EnglishAnalyzer

_EXPANSION_TERM = re.compile("[a-z0-9]{2,20}")  # as Anserini's
_FOREIGN_EXPANSION_TERM = regex.compile(r"[\p{L}\p{M}\p{N}]{2,20}")
_TERMS_PER_CHECK = 64
_MAX_DF = 0.1
"""Terms in a larger fraction of the documents do not expand a query."""


@dataclass(frozen=True)
class RM3:
    """Pseudo-relevance feedback over a first pass with `base`."""

    base: BM25 | QL
    terms: int = 10
    docs: int = 10
    weight: float = 0.5
    """Of the original query; the expansion has the rest."""


def expand(
    snapshot: Snapshot,
    query: WeightedQuery,
    first_pass: TopK,
    method: RM3,
    deadline: Deadline = NEVER,
) -> dict[str, float]:
    """The expanded query. Feedback takes at most half of the remaining time."""
    relevance = _relevance_model(snapshot, first_pass, method.terms, deadline.share(0.5))
    original = _normalize(query)
    if not relevance:
        return original
    return {
        term: method.weight * original.get(term, 0.0)
        + (1 - method.weight) * relevance.get(term, 0.0)
        for term in [*original, *(term for term in relevance if term not in original)]
    }


def _relevance_model(
    snapshot: Snapshot, first_pass: TopK, terms: int, deadline: Deadline
) -> dict[str, float]:
    model: defaultdict[str, float] = defaultdict(float)
    for number, score in zip(first_pass.docs.tolist(), first_pass.scores.tolist(), strict=True):
        frequent = _frequent_terms(snapshot, number, terms, deadline)
        if deadline.has_passed():  # the terms of this document may be incomplete
            break
        for term, share in _normalize(frequent).items():
            model[term] += share * score
    best = sorted(model.items(), key=lambda item: (-item[1], item[0]))[:terms]
    return _normalize(dict(best))


def _frequent_terms(
    snapshot: Snapshot, number: int, n: int, deadline: Deadline
) -> dict[str, float]:
    """The n most frequent expansion terms of a document, with their tf; ties go by bytes."""
    segment, local = snapshot.locate(number)
    terms, tfs = segment.term_vector(local)
    max_docs = _MAX_DF * snapshot.collection.docs
    is_english = snapshot.manifest.analyzer == EnglishAnalyzer.name
    is_expansion_term = (_EXPANSION_TERM if is_english else _FOREIGN_EXPANSION_TERM).fullmatch
    frequent: dict[str, float] = {}
    order = np.lexsort((terms, -tfs.astype(np.int64)))
    for tried, i in enumerate(order.tolist()):
        text = segment.terms[int(terms[i])]
        if is_expansion_term(text) and snapshot.term(text).statistics.docs <= max_docs:
            frequent[text] = float(tfs[i])
        if len(frequent) == n or (tried % _TERMS_PER_CHECK == 0 and deadline.has_passed()):
            break
    return frequent


def _normalize(weights: WeightedQuery) -> dict[str, float]:
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()} if total > 0 else {}


Method = BM25 | QL | RM3
Search = Callable[[Snapshot, Sequence[WeightedQuery], int, BM25 | QL, int | None], list[TopK]]
_BASES: dict[str, type[BM25] | type[QL]] = {"bm25": BM25, "ql": QL}
_NAMES = ("bm25", "ql", "bm25+rm3", "ql+rm3")
_MAX_CHARS = 200
_RANGES = {
    "k1": (0, 1000),
    "b": (0, 1),
    "mu": (1e-6, 1e9),
    "weight": (0, 1),
    "terms": (1, 1000),
    "docs": (1, 1000),
    "rounded": (0, 1),
}


def run_method(
    snapshot: Snapshot,
    queries: Sequence[Sequence[str]],
    k: int,
    method: Method,
    threads: int | None = None,
    deadline: Deadline = NEVER,
    search: Search = search,
) -> list[TopK]:
    """The top k documents of each query, given as its terms. With a deadline, frequent terms are
    dropped and late queries are not expanded. An index on several machines has its own `search`."""

    def limit(queries: Sequence[WeightedQuery]) -> Sequence[WeightedQuery]:
        if isinf(deadline.at):
            return queries
        return [drop_high_df_terms(snapshot, query) for query in queries]

    weighted = limit([Counter(query) for query in queries])
    if not isinstance(method, RM3):
        return search(snapshot, weighted, k, method, threads)
    first_pass = search(snapshot, weighted, method.docs, method.base, threads)
    expanded = [
        expand(snapshot, query, best, method, deadline)
        for query, best in zip(weighted, first_pass, strict=True)
    ]
    return search(snapshot, limit(expanded), k, method.base, threads)


def parse_method(text: str) -> Method:
    """
    >>> parse_method("bm25(k1=1.2)+rm3(terms=20)")
    RM3(base=BM25(k1=1.2, b=0.4, rounded=False), terms=20, docs=10, weight=0.5)
    """
    if len(text) > _MAX_CHARS:
        raise InputError(
            f"a method has at most {_MAX_CHARS} characters, not {len(text):,}; "
            f"it begins with {text[:20]!r}"
        )
    base_text, *feedback_texts = _split(text.lower())
    name, options = _parse_part(text, base_text)
    if name not in _BASES:
        raise _unknown_method(text)
    base = _BASES[name](**_parse_options(text, _BASES[name], options))
    if not feedback_texts:
        return base
    name, options = _parse_part(text, feedback_texts[0])
    if name != "rm3":
        raise _unknown_method(text)
    return RM3(base, **_parse_options(text, RM3, options))


def method_name(method: Method) -> str:
    """The name of a method with every parameter, as `--method` takes it.

    >>> method_name(RM3(QL()))
    'ql(mu=1000)+rm3(terms=10,docs=10,weight=0.5)'
    """
    kind = type(method).__name__.lower()
    values = ",".join(
        f"{field.name}={_format(getattr(method, field.name))}"
        for field in fields(method)
        if field.name != "base" and getattr(method, field.name) is not False
    )
    name = f"{kind}({values})"
    return f"{method_name(method.base)}+{name}" if isinstance(method, RM3) else name


def _format(value: float) -> str:
    """The shortest form without loss."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _split(text: str) -> list[str]:
    """Splits at the first plus outside of brackets: one inside belongs to a number as 1e+06."""
    bracket, plus = text.find("("), text.find("+")
    if 0 <= bracket < plus:
        plus = text.find("+", max(text.find(")"), bracket))
    return [text] if plus < 0 else [text[:plus], text[plus + 1 :]]


def _parse_part(text: str, part: str) -> tuple[str, str]:
    """(name, options) of `name(options)` or `name`."""
    name, bracket, rest = part.partition("(")
    options, closed, after = rest.partition(")")
    name = name.strip()
    if not (name.isascii() and name.isalnum()) or bool(bracket) != bool(closed):
        raise _unknown_method(text)
    if after.strip() or "(" in options:
        raise _unknown_method(text)
    return name, options


def _unknown_method(text: str) -> InputError:
    near = difflib.get_close_matches(text.lower(), _NAMES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_NAMES)}"
    return InputError(f"unknown method {text!r}; {hint}")


def _parse_options(text: str, kind: type[Method], options: str) -> dict[str, Any]:
    types: dict[str, Any] = {
        field.name: field.type for field in fields(kind) if field.name != "base"
    }
    settings: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        name, _, value = (side.strip() for side in option.partition("="))
        if name not in types:
            raise InputError(
                f"method {text!r}: {kind.__name__} has no parameter {name!r}, "
                f"only {', '.join(types)}"
            )
        number = {bool: lambda text: bool(int(text))}.get(types[name], types[name])
        try:
            settings[name] = number(value)
        except ValueError:
            raise InputError(f"method {text!r}: {name} takes a number, not {value!r}") from None
        low, high = _RANGES[name]
        if not low <= settings[name] <= high:
            raise InputError(
                f"method {text!r}: {name} must be between {low:g} and {high:g}, not {value}"
            )
    return settings
