"""RPACRR and its changes: the paper's counts of weights, and scores whatever the batch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pacrr import (
    SMALL,
    TABLE,
    assert_all_learn,
    assert_layout_does_not_matter,
    pairs,
    run,
    words,
)

from glassrank.research.papers.rpacrr import RPACRR, RPACRRConfig

FLAGS = ("one_by_one", "row_attention", "phrases", "channels", "idf")
COUNTS = {
    5552: RPACRRConfig(),
    5616: RPACRRConfig(one_by_one=True),
    16688: RPACRRConfig(phrases=True),
    19456: RPACRRConfig(channels=True),
    21680: RPACRRConfig(row_attention=True),
}


def small(*flags: str, **changes: object) -> RPACRR:
    torch.manual_seed(5)
    flagged = replace(RPACRRConfig(**SMALL), **dict.fromkeys(flags, True), **changes)
    return RPACRR(flagged).eval()


@pytest.mark.parametrize("count", COUNTS)
def test_weights_are_as_many_as_in_the_paper(count: int) -> None:
    """It counts no biases, nor the vector of the attention."""
    parameters = RPACRR(COUNTS[count]).parameters()
    assert sum(p.numel() for p in parameters if p.dim() > 1) == count


def test_with_biases_the_plain_model_has_5665() -> None:
    assert sum(p.numel() for p in RPACRR(RPACRRConfig()).parameters()) == 5665


@settings(max_examples=12, deadline=None)
@given(st.sets(st.sampled_from(FLAGS)), pairs)
def test_padding_and_neighbours_leave_scores_unchanged(
    flags: set[str], batch: list[tuple[list[int], list[int]]]
) -> None:
    assert_layout_does_not_matter(small(*flags), batch)


@pytest.mark.parametrize("flags", [(), *((flag,) for flag in FLAGS), FLAGS])
def test_every_parameter_learns(flags: tuple[str, ...]) -> None:
    assert_all_learn(small(*flags))
    torch.manual_seed(0)
    training = small(*flags, hidden=(32, 16), filters=32).train()  # with dropout
    assert_all_learn(training)


@pytest.mark.parametrize("flags", [(), *((flag,) for flag in FLAGS), FLAGS])
def test_one_word_meets_one_word_and_nothing_is_finite(flags: tuple[str, ...]) -> None:
    for masked in (True, False):
        model = small(*flags, use_masking=masked)
        assert run(model, words([[1]]), words([[2]])).score.shape == (1,)
        assert run(model, words([[]], 2), words([[]], 3)).score.isfinite().all()


@pytest.mark.parametrize("flags", [(), *((flag,) for flag in FLAGS), FLAGS])
def test_padding_takes_part_without_masks_however_much_stands_in_the_batch(
    flags: tuple[str, ...],
) -> None:
    model = small(*flags, use_masking=False)
    query, doc = [1, 2], [3, 1, 5]
    padded = run(model, words([query], 2), words([doc], 6))
    torch.testing.assert_close(padded.score, run(model, words([query]), words([doc])).score)
    assert padded.parts["trigram"].shape == (1, 4, 12)


def test_padding_wins_over_a_negative_similarity_only_without_masks() -> None:
    query, doc = words([[1]]), words([[1]])
    doc = doc._replace(vectors=-doc.vectors)
    masked = run(small(), query, doc).parts["unigram_values"][0, 0]
    assert masked.tolist() == pytest.approx([-1, 0, 0])
    filled = run(small(use_masking=False), query, doc).parts["unigram_values"][0, 0]
    assert filled.tolist() == [0, 0, 0]


def test_attention_averages_each_row_over_the_documents_words() -> None:
    model = small("row_attention")
    query, doc = [2, 4], [1, 5, 2]
    parts = run(model, words([query]), words([doc], 4)).parts
    for i, word in enumerate(query):
        scores = torch.stack(
            [
                model.attend
                @ torch.tanh(model.attend_query(TABLE[word]) + model.attend_doc(TABLE[d]))
                for d in doc
            ]
        )
        shares = scores.softmax(0)
        torch.testing.assert_close(parts["attention"][0, i, :3], shares)
        for name in ("unigram", "bigram", "trigram"):
            expected = shares @ parts[name][0, i, :3]
            torch.testing.assert_close(parts[f"{name}_values"][0, i, 0], expected)
    assert not parts["attention"][0, :, 3:].any()


def test_channels_are_sums_of_both_sides_and_unigrams_their_maximum() -> None:
    model = small("channels")
    parts = run(model, words([[2, 4]]), words([[1, 5, 2]])).parts
    expected = model.projection(TABLE[4]) + model.projection(TABLE[5])
    torch.testing.assert_close(parts["unigram"][0, 1, 1], expected.max())


def test_a_phrase_is_a_word_and_the_next() -> None:
    model = small("phrases")

    def phrase(first: int, second: int) -> torch.Tensor:
        weight = model.phrase.weight
        mixed = weight[..., 0] @ TABLE[first] + weight[..., 1] @ TABLE[second]
        return torch.relu(mixed + model.phrase.bias)

    parts = run(model, words([[2, 4]]), words([[1, 5, 2]])).parts
    expected = torch.cosine_similarity(phrase(2, 4), phrase(5, 2), dim=0)
    torch.testing.assert_close(parts["phrase"][0, 0, 1], expected)


def test_one_by_one_weighs_the_filters() -> None:
    model = small("one_by_one")
    parts = run(model, words([[1]]), words([[1]])).parts
    convolution, pool = model.ngrams.convolutions[0], model.ngrams.pools[0]
    filters = torch.relu(convolution.weight[:, 0, 0, 0] + convolution.bias)  # at similarity 1
    expected = torch.relu(pool.weight.flatten() @ filters + pool.bias)
    torch.testing.assert_close(parts["bigram"].flatten(), expected)


def test_dropout_is_for_training() -> None:
    model = small(*FLAGS)
    batch = words([[1, 2, 3]]), words([[3, 2, 1, 4]])
    assert len({run(model, *batch).score.item() for _ in range(3)}) == 1
    model.train()
    assert len({run(model, *batch).score.item() for _ in range(5)}) > 1
    unigrams = {tuple(run(small().train(), *batch).parts["unigram"].flatten().tolist())}
    unigrams.add(tuple(run(small(), *batch).parts["unigram"].flatten().tolist()))
    assert len(unigrams) == 1  # cosines have no dropout
