"""Two documents side by side: the example of the TK paper, and what else can be compared."""

import pytest
import torch
from explain_cases import DEFINITION, QUERY, THERAPY, make_batch, reranker, small_ranker

from glassrank.explanations import ExplanationPair, compare, explain, html_page
from glassrank.explanations.terminal import draw, render_text
from glassrank.rerank import Reranker
from glassrank.text import split_words


@pytest.fixture(scope="module")
def trained() -> Reranker:
    """A TK that has learned from one pair that a definition is what this query asks for."""
    model = small_ranker("tk")
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    query, definition, therapy = map(make_batch, (QUERY, DEFINITION, THERAPY))
    for _ in range(100):
        margin = (model(query, definition) - model(query, therapy)).sum()
        if margin > 0.5:
            break
        slopes = torch.autograd.grad(margin, weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight += 0.01 * slope.sign()
    return reranker(model.eval())


@pytest.fixture(scope="module")
def compared(trained: Reranker) -> ExplanationPair:
    return compare(
        explain(trained, QUERY, DEFINITION, doc_id="definition"),
        explain(trained, QUERY, THERAPY, doc_id="therapy"),
    )


def test_the_texts_are_of_like_length() -> None:
    assert abs(len(split_words(DEFINITION)) - len(split_words(THERAPY))) <= 4


def test_the_definition_is_above_and_the_difference_says_so(
    trained: Reranker, compared: ExplanationPair
) -> None:
    own = trained.scores(QUERY, [DEFINITION, THERAPY]).values.tolist()
    assert own[0] > own[1]
    score = compared.differences[0]
    assert (score.group, score.left, score.right) == ("score", *own)
    assert score.difference == own[0] - own[1]


def test_the_differences_of_paths_kernels_and_terms_add_up(compared: ExplanationPair) -> None:
    whole = compared.differences[0].difference
    for group in ("part", "signal", "term"):
        rows = [row for row in compared.differences if row.group == group and not row.path]
        assert sum(row.difference for row in rows) == pytest.approx(whole, rel=1e-5)
    names = [row.name for row in compared.differences if row.group == "part"]
    assert names == ["log", "length"]


def test_each_kernel_is_compared_on_each_path(compared: ExplanationPair) -> None:
    for number, signal in enumerate(compared.left.signals):
        other = compared.right.signals[number]
        for place, path in enumerate(("log", "length")):
            (row,) = [r for r in compared.differences if (r.name, r.path) == (signal.name, path)]
            assert row.left == signal.paths[place].value
            assert row.right == other.paths[place].value
            assert row.difference == signal.paths[place].value - other.paths[place].value


def test_a_word_that_stands_twice_in_the_query_is_compared_twice(trained: Reranker) -> None:
    left, right = (explain(trained, "define define", text) for text in (DEFINITION, THERAPY))
    rows = [r for r in compare(left, right).differences if r.group == "term" and not r.path]
    assert [(row.name, row.left) for row in rows] == [
        ("define", left.terms[0].value),
        ("define", left.terms[1].value),
    ]


def test_two_models_on_one_document_can_be_compared(trained: Reranker) -> None:
    left = explain(trained, QUERY, DEFINITION)
    right = explain(reranker(small_ranker("pacrr")), QUERY, DEFINITION)
    rows = {row.name: row for row in compare(left, right).differences if row.group == "part"}
    assert rows["log"].right is None
    assert rows["matches"].left is None
    assert rows["matches"].difference == -right.parts.children[0].value


def test_both_texts_and_all_signs_are_in_every_view(compared: ExplanationPair) -> None:
    page, terminal = html_page(compared), render_text(draw(compared, full=True))
    for view in (page, terminal):
        assert "definition" in view
        assert "therapy" in view
        assert "▲" in view
        assert "▼" in view
    assert page.count("<article>") == 2


def test_a_sentence_says_why_one_stands_above_the_other(
    trained: Reranker, compared: ExplanationPair
) -> None:
    assert compared.parts is not None
    terms = [part for part in compared.parts.children if part.kind == "term"]
    assert compared.parts.value == pytest.approx(compared.differences[0].difference, rel=1e-5)
    most = max(terms, key=lambda term: term.value)
    assert compared.sentence.startswith("definition stands above therapy for ")
    assert f"“{most.name}” (+{most.value:.2f})" in compared.sentence
    turned = compare(compared.right, compared.left)
    assert turned.sentence == compared.sentence  # whichever side it stands on
    for view in (html_page(compared), str(compared)):
        assert " ".join(compared.sentence.split()) in " ".join(view.split())


def test_two_models_have_no_such_sentence(trained: Reranker) -> None:
    left = explain(trained, QUERY, DEFINITION)
    pair = compare(left, explain(reranker(small_ranker("pacrr")), QUERY, DEFINITION))
    assert pair.parts is None and pair.sentence == ""
