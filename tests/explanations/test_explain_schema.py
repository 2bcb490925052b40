"""The JSON form: what the documentation says, no more and no less, and back again."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from explain_cases import DEFINITION, QUERY, SMALL, reranker, small_ensemble, small_ranker

from glassrank.explanations import (
    Change,
    Explanation,
    ExplanationPair,
    changes,
    compare,
    explain,
    explanation,
    structure,
    what_if,
)

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "explanations.md"
DOCUMENTED = [
    *(
        explanation.Explanation,
        structure.Text,
        structure.Word,
        structure.ScorePart,
        structure.QueryTerm,
    ),
    *(structure.Signal, structure.PathShare, structure.Mark, structure.Matrix, structure.Against),
    *(explanation.ExplanationPair, structure.Difference, changes.WhatIf, changes.Moved),
]


@pytest.mark.parametrize("kind", DOCUMENTED, ids=lambda kind: kind.__name__)
def test_the_documentation_names_every_field(kind: type) -> None:
    section = DOCS.read_text("utf-8").split(f"\n### {kind.__name__}\n")[1].split("\n##")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    fields = [field.name for field in dataclasses.fields(kind)]
    assert sorted(named) == sorted(fields)


def test_the_documentation_names_the_schemas() -> None:
    text = DOCS.read_text("utf-8")
    for schema in (explanation.SCHEMA, explanation.COMPARISON_SCHEMA, changes.SCHEMA):
        assert f"`{schema}`" in text


def strict_json(value: object) -> str:
    return json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("name", [*SMALL, "ensemble"])
def test_json_and_back_is_the_identity(name: str) -> None:
    model = small_ensemble() if name == "ensemble" else small_ranker(name)
    found = explain(reranker(model), QUERY, DEFINITION, doc_id="d1")
    plain = json.loads(strict_json(found.to_json()))
    assert plain["schema"] == "glassrank.explanation/1"
    assert Explanation.from_json(plain) == found


def test_comparisons_and_answers_are_plain_data() -> None:
    own = reranker(small_ranker("tk"))
    both = compare(explain(own, QUERY, DEFINITION), explain(own, QUERY, ""))
    assert isinstance(both, ExplanationPair)
    plain = json.loads(strict_json(both.to_json()))
    assert plain["schema"] == "glassrank.comparison/1"
    assert Explanation.from_json(plain["left"]) == both.left
    answer = what_if(own, QUERY, [DEFINITION], Change("query", 0))
    assert json.loads(strict_json(answer.to_json()))["moved"][0]["rank_after"] == 1


@pytest.mark.parametrize("name", [*SMALL, "ensemble"])
@pytest.mark.parametrize(
    ("query", "text"), [("", DEFINITION), (QUERY, ""), ("", ""), ("\0", "\ud800")]
)
def test_texts_without_words_are_explained_too(name: str, query: str, text: str) -> None:
    model = small_ensemble() if name == "ensemble" else small_ranker(name)
    found = explain(reranker(model), query, text)
    assert strict_json(found.to_json()).encode()
    assert str(found)
