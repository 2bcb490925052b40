"""TK, TK windowed, TKL, KNRM and CONV-KNRM: the score as an exact sum, down to words."""

import math

import pytest
import torch
from explain_cases import (
    ADDITIVE,
    DEFINITION,
    QUERY,
    SMALL,
    make_batch,
    own_output,
    reranker,
    size_of,
    small_ranker,
    some_words,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.explanations import Explanation, explain
from glassrank.explanations.structure import Mark
from glassrank.models import Ranker
from glassrank.text import split_words

exact_models = pytest.mark.parametrize("name", ADDITIVE)
every_model = pytest.mark.parametrize("name", SMALL)


@every_model
@settings(max_examples=5, deadline=None)
@given(query=some_words, text=some_words, first=st.floats(-50, 50), seed=st.integers(0, 2))
def test_leaves_and_word_shares_add_up_to_the_models_score(
    name: str, query: str, text: str, first: float, seed: int
) -> None:
    model = small_ranker(name, seed)
    model.mix_first_stage(0.3)
    own = reranker(model)
    found = explain(own, query, text, first_stage=first)
    assert found.score == own.scores(query, [text], [first]).values[0]
    rounding = 1e-6 * (size_of(found) + 1e-9)
    assert math.fsum(leaf.value for leaf in found.parts.leaves()) == pytest.approx(
        found.score, abs=rounding
    )
    shares = [mark.share for mark in found.marks] + [part.value for part in found.rest]
    whole = sum(abs(share) for share in shares)
    assert math.fsum(shares) == pytest.approx(found.score, abs=rounding + 1e-9 * whole)


@every_model
def test_relative_to_the_score_the_sum_is_exact_to_six_digits(name: str) -> None:
    found = explain(reranker(small_ranker(name)), QUERY, DEFINITION)
    total = math.fsum(leaf.value for leaf in found.parts.leaves())
    assert total == pytest.approx(found.score, rel=1e-6)


@every_model
def test_a_word_is_the_sum_of_its_shares_by_term_and_by_signal(name: str) -> None:
    found = explain(reranker(small_ranker(name)), QUERY, DEFINITION)
    assert len(found.marks) == len(found.doc.words)
    for mark in found.marks:
        assert math.fsum(mark.by_signal) == pytest.approx(mark.share, rel=1e-9, abs=1e-12)
        if mark.by_term:
            assert math.fsum(mark.by_term) == pytest.approx(mark.share, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["tk", "knrm"])
def test_leaves_are_the_models_own_numbers(name: str) -> None:
    model = small_ranker(name)
    found = explain(reranker(model), QUERY, DEFINITION)
    own = own_output(model, QUERY, DEFINITION).parts
    assert [path.name for path in found.parts.children] == list(model.info.summands)
    for path in found.parts.children:
        for q, term in enumerate(path.children):
            assert (term.name, term.number) == (QUERY.split()[q], q)
            assert [leaf.value for leaf in term.children] == own[path.name][0, q].tolist()


def test_conv_knrm_has_a_path_for_each_pair_of_ngram_sizes() -> None:
    model = small_ranker("conv_knrm")
    found = explain(reranker(model), QUERY, DEFINITION)
    own = own_output(model, QUERY, DEFINITION).parts["log"][0]  # (Q, 9, K)
    names = [f"{q} to {d}" for q in NGRAMS for d in NGRAMS]
    assert [path.name for path in found.parts.children] == names
    assert [matrix.name for matrix in found.matrices] == names
    for number, path in enumerate(found.parts.children):
        for q, term in enumerate(path.children):
            assert [leaf.value for leaf in term.children] == own[q, number].tolist()


NGRAMS = ("unigram", "bigram", "trigram")


@exact_models
def test_the_kernel_table_and_the_terms_are_the_same_sum(name: str) -> None:
    found = explain(reranker(small_ranker(name)), QUERY, DEFINITION)
    bases = math.fsum(leaf.value for leaf in found.parts.leaves() if leaf.kind == "constant")
    for values in ([s.value for s in found.signals], [t.value for t in found.terms]):
        assert math.fsum(values) + bases == pytest.approx(found.parts.value, rel=1e-9)
    for term in found.terms:
        assert math.fsum(term.paths.values()) == pytest.approx(term.value, rel=1e-9)


@pytest.mark.parametrize("name", ["tk", "knrm", "conv_knrm"])
def test_a_kernels_value_is_its_weight_times_its_signal(name: str) -> None:
    found = explain(reranker(small_ranker(name)), QUERY, DEFINITION)
    for signal in found.signals:
        for share in signal.paths:
            assert share.weight is not None
            assert share.signal is not None
            assert share.value == pytest.approx(share.weight * share.signal, rel=1e-4, abs=1e-9)


def scores_without_each_word(model: Ranker, text: str) -> list[float]:
    """The model's own, with one word of the encoded document masked and all others as they are."""
    with torch.no_grad():
        query, doc = model.encode_query(make_batch(QUERY)), model.encode_doc(make_batch(text))
        words = doc.mask.shape[1]
        many = doc.rows(torch.zeros(words, dtype=torch.long))
        mask = 1 - torch.eye(words, dtype=doc.mask.dtype)
        return model.interact(model.expand(query, words), many._replace(mask=mask)).score.tolist()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tk", {}),
        ("knrm", {}),
        ("conv_knrm", {"ngrams": 1}),
        ("tk_windowed", {}),
        ("tk_windowed", {"authors_padding": True, "longest_doc": 12}),
        ("tk_windowed", {"windows": [1, 13]}),
        ("tkl", {"window": 40, "stride": 40}),  # one window: no region moves
    ],
)
def test_a_words_share_is_what_the_score_loses_when_it_is_not_counted(
    name: str, changes: dict[str, object]
) -> None:
    model = small_ranker(name, **changes).double()
    found = explain(reranker(model), QUERY, DEFINITION)
    for mark, left in zip(found.marks, scores_without_each_word(model, DEFINITION), strict=True):
        assert mark.share == pytest.approx(found.score - left, rel=1e-6, abs=1e-9)
    assert [part.name for part in found.rest] == ["together"]


def test_an_ngrams_share_is_divided_among_its_words() -> None:
    model = small_ranker("conv_knrm").double()
    found = explain(reranker(model), QUERY, DEFINITION)
    lost = [found.score - left for left in scores_without_each_word(model, DEFINITION)]
    shares = [mark.share for mark in found.marks]
    assert sum(shares) == pytest.approx(sum(lost), rel=1e-6)
    assert shares != pytest.approx(lost, rel=1e-3)  # an n-gram is not its first word alone


def test_words_that_are_all_alike_are_not_all_coloured() -> None:
    """A trained TK may find every word 0.9 like some query word."""
    model = small_ranker("knrm")
    with torch.no_grad():
        model.words.embedding.weight[1:] += 2.0
    found = explain(reranker(model), QUERY, DEFINITION)
    assert min(mark.similarity or 0 for mark in found.marks) > 0.6
    coloured = [
        found.doc.words[d].text for d, mark in enumerate(found.marks) if is_first(found, mark)
    ]
    assert {"androgen", "receptor"} <= set(coloured)
    assert len(coloured) <= len(found.marks) / 2


def is_first(found: Explanation, mark: Mark) -> bool:
    return mark.signal is not None and found.signals[mark.signal].is_highlighted


def test_a_word_is_marked_by_its_closest_query_word_and_kernel() -> None:
    model = small_ranker("tk")
    found = explain(reranker(model), QUERY, DEFINITION)
    similarity = own_output(model, QUERY, DEFINITION).parts["similarity"][0].tolist()
    centers = model.config.kernels.centers
    for d, mark in enumerate(found.marks):
        column = [row[d] for row in similarity]
        assert mark.term == column.index(max(column))
        assert mark.similarity == pytest.approx(max(column))
        nearest = min(centers, key=lambda center: abs(center - max(column)))
        assert mark.signal is not None
        assert found.signals[mark.signal].center == nearest
    torch.testing.assert_close(torch.tensor(found.matrices[0].values), torch.tensor(similarity))


@pytest.mark.parametrize("authors_padding", [False, True])
def test_windows_have_their_strength_times_the_weight_of_their_rank(authors_padding: bool) -> None:
    model = small_ranker("tk_windowed", authors_padding=authors_padding)
    found = explain(reranker(model), QUERY, DEFINITION)
    own = own_output(model, QUERY, DEFINITION).parts
    words = len(split_words(DEFINITION))
    for number, (path, size) in enumerate(zip(found.parts.children, (4, 6), strict=True)):
        assert path.name == f"windows of {size}"
        assert path.value == pytest.approx(own["sizes"][0, number].item(), rel=1e-6)
        strengths = own[f"windows_{size}"][0]
        ranks = torch.argsort(torch.argsort(strengths, descending=True)).tolist()
        weights = model.rank_weights[number]
        for window, part in enumerate(path.children):
            assert part.name == f"words {window * size + 1} to {min(words, (window + 1) * size)}"
            # A window that comes after all weights are given away counts nothing.
            counted = window < len(strengths) and ranks[window] < len(weights)
            weight = weights[ranks[window]].item() if counted else 0.0
            expected = model.size_weights[number].item() * weight
            expected *= float(strengths[window]) if counted else 0.0
            assert part.value == pytest.approx(expected, rel=1e-4)


def test_the_first_stage_is_a_part_of_its_own() -> None:
    model = small_ranker("knrm")
    model.mix_first_stage(0.5)
    found = explain(reranker(model), QUERY, DEFINITION, first_stage=8.0)
    assert [(part.name, part.value) for part in found.parts.children][-1] == ("first stage", 4.0)
    assert found.rest[-1].name == "first stage"
    without = explain(reranker(model), QUERY, DEFINITION)
    assert found.score == pytest.approx(without.score + 4)
    assert any("was not given" in note for note in without.notes)


def test_what_was_cut_and_what_is_unknown_is_said() -> None:
    cut = reranker(small_ranker("tk"), query_length=2, doc_length=9, most_passages=1)
    found = explain(cut, QUERY, DEFINITION)
    assert len(found.query.words) == 2
    assert found.query.cut == 1
    assert len(found.doc.words) == len(found.marks) == 9
    assert found.doc.cut == len(split_words(DEFINITION)) - 9
    whole = explain(reranker(small_ranker("tk")), QUERY, DEFINITION)
    assert [word.text for word in whole.doc.words if not word.known] == ["nr3c4"]
    assert any("first 9 words of the document" in note for note in found.notes)
    assert any("document's words 1 are not in the vocabulary" in note for note in whole.notes)
