"""First-stage methods by name, `bm25`, `ql`, `bm25+rm3`, `ql(mu=500)+rm3(terms=20)`; and RM3, which
enriches a query with the words of the documents that it finds first.

`bm25(rounded=1)` and `ql(rounded=1)` rank exactly as Lucene does. RM3 is that of Jaleel et al.,
"UMass at TREC 2004", in the form of Anserini: each of the first documents gives its most frequent
terms, weighted by its score; the best of them join the query.
"""

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
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
_TRIED_AT_ONCE = 64
_COMMON = 0.1
"""Terms in a larger part of the collection than this say nothing."""


@dataclass(frozen=True)
class RM3:
    """Feedback over a first pass with `base`."""

    base: BM25 | QL
    terms: int = 10
    docs: int = 10
    weight: float = 0.5
    """Of the original query; the rest goes to the expansion."""


def expand(
    snapshot: Snapshot,
    query: WeightedQuery,
    first_pass: TopK,
    method: RM3,
    deadline: Deadline = NEVER,
) -> dict[str, float]:
    """The new query: each part's weights add up to its share. At most half of the time that is left
    goes to feedback, from as many documents as that allows."""
    relevance = _relevance_model(snapshot, first_pass, method.terms, deadline.share(0.5))
    original = _normalised(query)
    if not relevance:
        return original
    return {
        term: method.weight * original.get(term, 0.0)
        + (1 - method.weight) * relevance.get(term, 0.0)
        for term in [*original, *(term for term in relevance if term not in original)]
    }


def _relevance_model(
    snapshot: Snapshot, first_pass: TopK, terms: int, until: Deadline
) -> dict[str, float]:
    model: defaultdict[str, float] = defaultdict(float)
    for number, score in zip(first_pass.docs.tolist(), first_pass.scores.tolist(), strict=True):
        frequent = _frequent_terms(snapshot, number, terms, until)
        if until.has_passed():  # of this document, there may be only a part
            break
        for term, share in _normalised(frequent).items():
            model[term] += share * score
    best = sorted(model.items(), key=lambda item: (-item[1], item[0]))[:terms]
    return _normalised(dict(best))


def _frequent_terms(snapshot: Snapshot, number: int, n: int, until: Deadline) -> dict[str, float]:
    """A document's n most frequent terms that may join a query, and how often it has them; of those
    that it has as often, the first by their bytes."""
    segment, local = snapshot.locate(number)
    terms, counts = segment.vector(local)
    most_docs = _COMMON * snapshot.collection.docs
    english = snapshot.manifest.analyzer == EnglishAnalyzer.name
    may_join = (_EXPANSION_TERM if english else _FOREIGN_EXPANSION_TERM).fullmatch
    frequent: dict[str, float] = {}
    order = np.lexsort((terms, -counts.astype(np.int64)))
    for tried, (term, count) in enumerate(
        zip(terms[order].tolist(), counts[order].tolist(), strict=True)
    ):
        text = segment.terms[term]
        if may_join(text) and snapshot.term(text).statistics.docs <= most_docs:
            frequent[text] = float(count)
        if len(frequent) == n or (tried % _TRIED_AT_ONCE == 0 and until.has_passed()):
            break
    return frequent


def _normalised(weights: WeightedQuery) -> dict[str, float]:
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()} if total > 0 else {}


Method = BM25 | QL | RM3
Search = Callable[[Snapshot, Sequence[WeightedQuery], int, BM25 | QL, int | None], list[TopK]]
_BASES: dict[str, type[BM25] | type[QL]] = {"bm25": BM25, "ql": QL}
_NAMES = ("bm25", "ql", "bm25+rm3", "ql+rm3")
_LONGEST = 200
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
    """The best k documents of each query, given as its terms. With a deadline, queries are cut to
    what is affordable, and late ones are not enriched. `search` is another than that of one
    machine where documents are on several."""

    def bounded(queries: Sequence[WeightedQuery]) -> Sequence[WeightedQuery]:
        return (
            queries
            if deadline.at == float("inf")
            else [drop_high_df_terms(snapshot, query) for query in queries]
        )

    weighted = bounded([Counter(query) for query in queries])
    if not isinstance(method, RM3):
        return search(snapshot, weighted, k, method, threads)
    first_pass = search(snapshot, weighted, method.docs, method.base, threads)
    expanded = [
        expand(snapshot, query, best, method, deadline)
        for query, best in zip(weighted, first_pass, strict=True)
    ]
    return search(snapshot, bounded(expanded), k, method.base, threads)


def parse_method(text: str) -> Method:
    """
    >>> parse_method("bm25(k1=1.2)+rm3(terms=20)")
    RM3(base=BM25(k1=1.2, b=0.4, rounded=False), terms=20, docs=10, weight=0.5)
    """
    if len(text) > _LONGEST:
        raise InputError(
            f"a method has at most {_LONGEST} characters, not {len(text):,}; "
            f"it begins with {text[:20]!r}"
        )
    base_text, *feedback_texts = _apart(text.lower())
    name, options = _part(text, base_text)
    if name not in _BASES:
        raise _unknown(text)
    base = _BASES[name](**_options(text, _BASES[name], options))
    if not feedback_texts:
        return base
    name, options = _part(text, feedback_texts[0])
    if name != "rm3":
        raise _unknown(text)
    return RM3(base, **_options(text, RM3, options))


def method_name(method: Method) -> str:
    """The other way round: every parameter, as `--method` takes it.

    >>> method_name(RM3(QL()))
    'ql(mu=1000)+rm3(terms=10,docs=10,weight=0.5)'
    """
    kind = type(method).__name__.lower()
    values = ",".join(
        f"{field.name}={_number(getattr(method, field.name))}"
        for field in fields(method)
        if field.name != "base" and getattr(method, field.name) is not False
    )
    described = f"{kind}({values})"
    return f"{method_name(method.base)}+{described}" if isinstance(method, RM3) else described


def _number(value: float) -> str:
    """As short as it goes without loss."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _apart(text: str) -> list[str]:
    """At the first plus outside of brackets: one inside is that of a number such as 1e+06."""
    bracket, plus = text.find("("), text.find("+")
    if 0 <= bracket < plus:
        plus = text.find("+", max(text.find(")"), bracket))
    return [text] if plus < 0 else [text[:plus], text[plus + 1 :]]


def _part(text: str, part: str) -> tuple[str, str]:
    """`name(options)`, or the name alone."""
    name, bracket, rest = part.partition("(")
    options, closed, after = rest.partition(")")
    name = name.strip()
    if not (name.isascii() and name.isalnum()) or bool(bracket) != bool(closed):
        raise _unknown(text)
    if after.strip() or "(" in options:
        raise _unknown(text)
    return name, options


def _unknown(text: str) -> InputError:
    near = difflib.get_close_matches(text.lower(), _NAMES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_NAMES)}"
    return InputError(f"unknown method {text!r}; {hint}")


def _options(text: str, kind: type[Method], options: str) -> dict[str, Any]:
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
