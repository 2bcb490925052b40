"""Models with layers behind their signals: parts add up, and say that they are approximate."""

import pytest
import torch
from explain_cases import (
    ADDITIVE,
    APPROXIMATE,
    DEFINITION,
    QUERY,
    THERAPY,
    make_batch,
    own_output,
    reranker,
    size_of,
    small_ensemble,
    small_ranker,
)

from glassrank.explanations import EXPLAINERS, Explanation, explain
from glassrank.explanations.leave_one_out import explain_leave_one_out
from glassrank.text import split_words

PACRR_AUTHORS = {"use_masking": False, "centred": False, "relu": False, "idf": False, "k": 5}
VARIANTS = [
    ("pacrr", PACRR_AUTHORS),
    ("co_pacrr", PACRR_AUTHORS | {"words_before": 0}),
    ("rpacrr", {"one_by_one": True}),
    ("rpacrr", {"row_attention": True}),
    ("rpacrr", {"row_attention": True, "use_masking": False}),
    ("rpacrr", {"phrases": True}),
    ("rpacrr", {"channels": True, "idf": True}),
    ("matchpyramid", {"masked": False}),
    ("duet", {"local": "cosine", "mask_hidden": False}),
    ("conv_knrm", {"ngrams": 2}),
]


def word_sum(found: Explanation) -> float:
    return sum(mark.share for mark in found.marks) + sum(part.value for part in found.rest)


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
def test_every_variant_adds_up(name: str, changes: dict[str, object]) -> None:
    own = reranker(small_ranker(name, **changes))
    for text in (DEFINITION, "androgen", ""):
        found = explain(own, QUERY, text)
        rounding = 1e-6 * size_of(found)
        assert found.parts.value == pytest.approx(found.score, abs=rounding)
        assert word_sum(found) == pytest.approx(found.score, abs=2 * rounding)


def test_only_exact_models_say_they_are() -> None:
    for name in (*ADDITIVE, *APPROXIMATE):
        found = explain(reranker(small_ranker(name)), QUERY, DEFINITION)
        assert found.is_additive == (name in ADDITIVE)
        assert any(note.startswith("Approximate") for note in found.notes) != found.is_additive


@pytest.mark.parametrize("name", ["pacrr", "co_pacrr", "rpacrr"])
def test_words_are_shaded_by_the_best_of_their_column(name: str) -> None:
    """As in the RPACRR paper: the strongest signal among all query words, for each n-gram size, in
    comparison with the strongest of the matrix."""
    model = small_ranker(name)
    found = explain(reranker(model), QUERY, DEFINITION)
    own = own_output(model, QUERY, DEFINITION).parts
    assert [signal.name for signal in found.signals] == ["unigram", "bigram", "trigram"]
    for signal, matrix in zip(found.signals, found.matrices, strict=True):
        values = own[signal.name][0]
        torch.testing.assert_close(torch.tensor(matrix.values), values)
        best = values.amax(0).clamp(min=0)
        torch.testing.assert_close(torch.tensor(signal.strength), best / best.max())


@pytest.mark.parametrize("name", ["pacrr", "rpacrr"])
def test_words_share_only_in_ngrams_that_were_chosen(name: str) -> None:
    model = small_ranker(name)
    found = explain(reranker(model), QUERY, DEFINITION)
    own = own_output(model, QUERY, DEFINITION).parts
    words = range(len(found.doc.words))
    # Unigrams cover a word, bigrams also the next one, trigrams one on each side.
    covered = {"unigram": (0,), "bigram": (0, 1), "trigram": (-1, 0, 1)}
    for number, signal in enumerate(found.signals):
        places = own[f"{signal.name}_places"][0].flatten().tolist()
        chosen = {place + near for place in places for near in covered[signal.name]}
        shared = {d for d in words if found.marks[d].by_signal[number] != 0}
        assert shared
        assert shared <= chosen
    for mark in found.marks:
        assert (mark.signal is None) == (not any(mark.by_signal))


def test_a_chosen_values_worth_is_its_slope_times_the_value() -> None:
    """The slope is taken by moving the value, not by the library's gradients."""
    model = small_ranker("rpacrr").double()
    own = own_output(model, QUERY, DEFINITION)
    names = ("unigram", "bigram", "trigram")
    rows = torch.cat([own.parts[f"{name}_values"] for name in names], -1)  # (1, Q, 9)
    found = explain(reranker(model), QUERY, DEFINITION)
    step = 1e-6
    for q, term in enumerate(found.parts.children[0].children):
        for number, leaf in enumerate(term.children):
            moved = rows.clone()
            moved[0, q, 3 * number : 3 * number + 3] *= 1 + step
            with torch.no_grad():
                slope = (model.combine(moved) - model.combine(rows)).item() / step
            assert leaf.value == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_the_pyramids_shares_say_how_the_score_answers_to_similarities() -> None:
    """All similarities grow by a little when the document's vectors do."""
    model = small_ranker("matchpyramid").double()
    found = explain(reranker(model), QUERY, DEFINITION)
    with torch.no_grad():
        query, doc = model.encode_query(make_batch(QUERY)), model.encode_doc(make_batch(DEFINITION))
    step = 1e-7
    with torch.no_grad():
        grown = model.interact(query, doc._replace(vectors=doc.vectors * (1 + step))).score
        same = model.interact(query, doc).score
    slope = (grown - same).item() / step
    assert sum(mark.share for mark in found.marks) == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("name", ["knrm", "duet"])
def test_leaving_out_is_scoring_without_the_word(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUET's way, and that of any model that has no explainer."""
    monkeypatch.setitem(EXPLAINERS, "knrm", explain_leave_one_out)
    own = reranker(small_ranker(name))
    found = explain(own, QUERY, THERAPY)
    assert not found.is_additive
    words = split_words(THERAPY)
    for place in (0, 5, len(words) - 1):
        shorter = " ".join(words[:place] + words[place + 1 :])
        lost = found.score - own.scores(QUERY, [shorter]).values[0]
        assert found.marks[place].share == pytest.approx(lost, abs=1e-6)
    terms = QUERY.split()
    for place, term in enumerate(found.terms):
        shorter = " ".join(terms[:place] + terms[place + 1 :])
        lost = found.score - own.scores(shorter, [THERAPY]).values[0]
        assert term.value == pytest.approx(lost, abs=1e-6)


def test_a_word_alone_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPLAINERS, "tk", explain_leave_one_out)
    own = reranker(small_ranker("tk"))
    found = explain(own, "androgen", "receptor")
    assert found.marks[0].share == pytest.approx(
        found.score - own.scores("androgen", [""]).values[0], abs=1e-6
    )


def test_an_ensemble_is_its_members_with_their_shares() -> None:
    ensemble = small_ensemble()
    ensemble.mix_first_stage(0.5)
    found = explain(reranker(ensemble), QUERY, DEFINITION, first_stage=3.0)
    assert [part.name for part in found.parts.children] == [
        *["1 tk", "2 knrm", "3 pacrr", "first stage"],
    ]
    lengths = [(6, 14), (2, 20), (4, 9)]
    for number, (model, length) in enumerate(zip(ensemble.rankers(), lengths, strict=True)):
        alone = explain(reranker(model, *length, most_passages=1), QUERY, DEFINITION)
        assert found.parts.children[number].value == pytest.approx(alone.score / 3, rel=1e-5)
        names = [part.name for part in found.parts.children[number].children]
        assert names == [part.name for part in alone.parts.children]
    assert found.parts.value == pytest.approx(found.score, rel=1e-6)
    assert word_sum(found) == pytest.approx(found.score, rel=1e-6)
    assert not found.is_additive
    assert len(found.marks) == len(found.doc.words) == len(split_words(DEFINITION))
    for matrix in found.matrices:
        assert len(matrix.values) == 3
        assert {len(row) for row in matrix.values} == {len(found.doc.words)}
    for signal in found.signals:
        assert len(signal.strength) == len(found.doc.words)
    for mark in found.marks:
        assert len(mark.by_signal) == len(found.signals)
