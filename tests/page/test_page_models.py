"""Every model's explanation can be drawn: the page never asks which model it shows."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import page_needs  # noqa: F401
import pytest
from playwright.sync_api import Page, expect

from glassrank.explanations import Explanation, compare, explain
from glassrank.explanations.structure import Matrix, format_number

_SPEC = importlib.util.spec_from_file_location(
    "explain_cases_for_the_page", Path(__file__).parents[1] / "explanations" / "explain_cases.py"
)
assert _SPEC is not None and _SPEC.loader is not None
cases: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)

DRAW = """async ([explanation, other]) => {
  const {ExplanationPanel} = await import('./explanation.js');
  const {Sides} = await import('./sides.js');
  const go = () => {};
  const panel = new ExplanationPanel(explanation, {}, go);
  const sides = new Sides(other, {heads: [[], []], names: ['left', 'right'], go});
  document.getElementById('main').replaceChildren(panel.root, sides.root);
  for (const state of [{}, {by: 'term'}, {flip: 's0.t1'}]) {
    panel.show(state);
    sides.show(state);
  }
  for (const one of document.querySelectorAll('details')) one.open = true;
}"""


def explanation(name: str) -> Explanation:
    ranker = cases.small_ensemble() if name == "ensemble" else cases.small_ranker(name)
    return explain(cases.reranker(ranker), cases.QUERY, cases.DEFINITION, doc_id=name)


def with_attention(found: Explanation) -> Explanation:
    """As models with attention have it: matrices of all four kinds."""
    words = {"query": len(found.query.words), "document": len(found.doc.words)}
    matrices = tuple(
        Matrix(
            f"{rows} to {columns}",
            rows,  # type: ignore[arg-type]
            columns,  # type: ignore[arg-type]
            tuple(
                tuple(1 / (1 + row + column) for column in range(words[columns]))
                for row in range(words[rows])
            ),
        )
        for rows in words
        for columns in words
    )
    return replace(found, matrices=matrices)


@pytest.mark.long
def test_any_models_explanation_is_drawn(page: Page) -> None:
    page.goto("")
    expect(page.locator(".welcome")).to_be_visible()
    tk = explanation("tk")
    for name in (*cases.SMALL, "ensemble"):
        draws(page, with_attention(explanation(name)), tk)


def draws(page: Page, found: Explanation, other: Explanation) -> None:
    beside = compare(found, other)
    page.evaluate(DRAW, [found.to_json(), beside.to_json()])
    panel = page.locator(".explanation")
    expect(panel.locator(".score")).to_have_text(format_number(found.score))
    shown = [word for word in found.doc.words if word.start is not None]
    expect(panel.locator(".document-text .w")).to_have_count(len(shown))
    expect(panel.locator("table.signals tbody tr")).to_have_count(len(found.signals))
    rows = len(found.marks) + len(found.rest)
    expect(panel.locator("table.words tbody tr")).to_have_count(rows)
    expect(panel.locator("canvas")).to_have_count(4)
    kind = "additive parts" if found.is_additive else "approximate parts"
    expect(panel.locator(".score-line")).to_contain_text(kind)
    expect(page.locator("table.differences tr[data-group]")).to_have_count(len(beside.differences))
    heights = panel.locator("canvas").evaluate_all("all => all.map(one => one.clientHeight)")
    assert min(heights) > 20
