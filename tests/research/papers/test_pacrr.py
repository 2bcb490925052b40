"""PACRR and CO-PACRR: against slow code, against their authors' code, and whatever the batch."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassrank.models.model import Output, TokenEmbeddings
from glassrank.models.torch_models import Ranker
from glassrank.research.papers.ngrams import k_max
from glassrank.research.papers.pacrr import PACRR, CoPACRR, CoPACRRConfig, PACRRConfig, shuffle_rows
from tests.parity.authors import tk_authors

PARITY = Path(__file__).resolve().parents[3].parent / "shared" / "parity"
SIZE = 8
SMALL = {"size": SIZE, "query_length": 4, "doc_length": 12, "filters": 3}
# Few words, so that they occur again and values tie; 0 is never drawn.
TABLE = torch.randn(6, SIZE, generator=torch.Generator().manual_seed(1))

lists = st.lists(st.integers(1, 5), min_size=1, max_size=6)
pairs = st.lists(st.tuples(lists, lists), min_size=1, max_size=4)


def words(texts: list[list[int]], extra: int = 0, padding: float = 0.0) -> TokenEmbeddings:
    """Texts as word vectors, with `extra` more padding than needed and `padding` in it."""
    length = max(map(len, texts)) + extra
    vectors = torch.full((len(texts), length, SIZE), padding)
    mask, idf = torch.zeros(len(texts), length), torch.full((len(texts), length), padding)
    for i, text in enumerate(texts):
        vectors[i, : len(text)] = TABLE[text]
        mask[i, : len(text)] = 1
        idf[i, : len(text)] = torch.tensor(text) / 2
    return TokenEmbeddings(vectors, mask, idf)


def run(model: Ranker, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
    return model.interact(model.query_words(query), model.doc_words(doc))


def assert_layout_does_not_matter(model: Ranker, batch: list[tuple[list[int], list[int]]]) -> None:
    """Each pair by itself, and all in one batch, backwards, with rubbish in more padding."""
    alone = [run(model, words([q]), words([d])).score for q, d in batch]
    queries, docs = zip(*reversed(batch), strict=True)
    together = run(model, words(list(queries), 2, 0.7), words(list(docs), 5, -0.3)).score
    torch.testing.assert_close(together.flip(0), torch.cat(alone), atol=1e-5, rtol=1e-5)


def assert_all_learn(model: Ranker) -> None:
    """Every parameter has a gradient that is a number and not zero everywhere."""
    batch = words([[1, 2, 3], [4, 5], [2, 2, 5, 1]]), words([[1, 3, 2, 5], [2, 2, 4], [5, 1, 4]])
    run(model, *batch).score.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def pacrr() -> PACRR:
    torch.manual_seed(3)
    return PACRR(PACRRConfig(**SMALL)).eval()


def co_pacrr() -> CoPACRR:
    torch.manual_seed(3)
    return CoPACRR(CoPACRRConfig(**SMALL)).eval()


def test_pacrr_is_what_slow_code_computes() -> None:
    model, query, doc = pacrr(), [2, 5, 1], [3, 2, 5, 4, 1]

    def similarity(i: int, j: int) -> float:
        if not (0 <= i < len(query) and 0 <= j < len(doc)):
            return 0.0
        return torch.cosine_similarity(TABLE[query[i]], TABLE[doc[j]], dim=0).item()

    def best_filter(n: int, i: int, j: int) -> float:
        """Bigrams begin at (i, j), trigrams have it in their middle."""
        convolution = model.ngrams.convolutions[n - 2]
        first = -1 if n == 3 else 0
        found = [
            sum(
                weight[0, y, x].item() * similarity(i + first + y, j + first + x)
                for y in range(n)
                for x in range(n)
            )
            + bias.item()
            for weight, bias in zip(convolution.weight, convolution.bias, strict=True)
        ]
        return max(0.0, *found)

    exponents = [math.exp(word / 2) for word in query]
    features = torch.zeros(4, 10)
    for i in range(len(query)):
        columns = range(len(doc))
        signals = [
            [similarity(i, j) for j in columns],
            [best_filter(2, i, j) for j in columns],
            [best_filter(3, i, j) for j in columns],
        ]
        best = [value for row in signals for value in sorted(row, reverse=True)[:3]]
        features[i] = torch.tensor([exponents[i] / sum(exponents), *best])
    x = features.flatten()
    for layer in model.combine.hidden:
        x = torch.relu(layer(x))
    score = run(model, words([query]), words([doc])).score
    torch.testing.assert_close(score, model.combine.last(x), atol=1e-5, rtol=1e-4)


@settings(max_examples=15, deadline=None)
@given(pairs)
def test_padding_and_neighbours_leave_scores_unchanged(
    batch: list[tuple[list[int], list[int]]],
) -> None:
    assert_layout_does_not_matter(pacrr(), batch)
    assert_layout_does_not_matter(co_pacrr(), batch)


def test_what_is_too_long_is_cut() -> None:
    for model in (pacrr(), co_pacrr()):
        long = run(model, words([[1, 2, 3, 4, 5, 5]]), words([[1, 2, 3] * 6])).score
        cut = run(model, words([[1, 2, 3, 4]]), words([[1, 2, 3] * 4])).score
        torch.testing.assert_close(long, cut)


def test_one_word_meets_one_word_and_nothing_is_finite() -> None:
    for model in (pacrr(), co_pacrr()):
        one = run(model, words([[1]]), words([[2]]))
        assert one.score.shape == (1,)
        assert one.parts["unigram_places"].flatten().tolist()[:3] == [0, -1, -1]
        assert run(model, words([[]], 2), words([[]], 3)).score.isfinite().all()


def test_a_negative_similarity_beats_padding_only_with_masks() -> None:
    query, doc = words([[1]]), words([[1]])
    doc = doc._replace(vectors=-doc.vectors)
    masked = run(pacrr(), query, doc).parts["unigram_values"]
    filled = PACRR(replace(PACRRConfig(**SMALL), use_masking=False))
    assert masked[0, 0].tolist() == pytest.approx([-1, 0, 0])
    assert run(filled, query, doc).parts["unigram_values"][0, 0].tolist() == [0, 0, 0]


def test_every_parameter_learns() -> None:
    assert_all_learn(pacrr().train())
    assert_all_learn(co_pacrr().train())


def test_the_cascade_takes_the_best_of_each_part_of_the_longest_document() -> None:
    parts = run(co_pacrr(), words([[1, 2]]), words([[5, 2, 1, 4, 3, 2, 1, 5]])).parts
    for i, row in enumerate(parts["unigram"][0].tolist()):
        expected = [v for end in (3, 6, 9, 12) for v in sorted(row[:end], reverse=True)[:3]]
        assert parts["unigram_values"][0, i].tolist() == pytest.approx(expected)


def test_context_is_the_similarity_of_query_and_surroundings() -> None:
    query, doc = [1, 2], [5, 2, 1, 4, 3, 2, 1, 5]
    parts = run(co_pacrr(), words([query]), words([doc])).parts
    whole = TABLE[query].mean(0)
    context = [
        torch.cosine_similarity(TABLE[doc[max(0, j - 4) : j + 5]].mean(0), whole, dim=0)
        for j in range(len(doc))
    ]
    torch.testing.assert_close(parts["context"][0], torch.stack(context))
    places = parts["bigram_places"][0]
    torch.testing.assert_close(parts["bigram_context"][0], torch.stack(context)[places])


def test_query_words_change_places_in_training_only() -> None:
    model = co_pacrr()
    batch = words([[1, 2, 3, 4]]), words([[4, 3, 1, 2]])

    def scores() -> set[float]:
        return {round(run(model, *batch).score.item(), 6) for _ in range(20)}

    assert len(scores()) == 1
    model.train()
    assert len(scores()) > 5
    model.config = replace(model.config, shuffle=False)
    assert len(scores()) == 1


def test_the_order_does_not_matter_to_weights_that_treat_places_alike() -> None:
    model = co_pacrr()
    first = model.combine.hidden[0]
    alike = first.weight.unflatten(1, (4, -1))[:, :1].expand(-1, 4, -1).flatten(1)
    first.weight = torch.nn.Parameter(alike.clone())
    batch = words([[1, 2, 3], [4, 5]]), words([[1, 3, 2], [2, 4, 2]])
    settled = run(model, *batch).score
    model.train()
    for _ in range(5):
        torch.testing.assert_close(run(model, *batch).score, settled)


def test_only_real_words_are_shuffled() -> None:
    rows = torch.arange(1, 6).float()[None, :, None].expand(50, 5, 2)
    mask = torch.tensor([1.0, 1, 1, 0, 0]).expand(50, 5)
    mixed = shuffle_rows(rows, mask)
    assert (mixed[:, 3:] == rows[:, 3:]).all()
    assert (mixed[:, :3].sort(1).values == rows[:, :3]).all()
    assert len({tuple(row) for row in mixed[:, :3, 0].tolist()}) == 6


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 4),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_k_max_is_a_sort_in_which_the_earlier_wins(
    columns: list[tuple[int, bool]], k: int, ends: list[int]
) -> None:
    row, mask = torch.tensor(columns).T
    values, places = k_max(row.float() / 7, k, mask, ends, earliest=True)
    expected: list[tuple[float, int]] = []
    for end in ends:
        real = [(value / 7, j) for j, (value, there) in enumerate(columns[:end]) if there]
        best = sorted(real, key=lambda pair: (-pair[0], pair[1]))[:k]
        expected += best + [(0.0, -1)] * (k - len(best))
    assert places.tolist() == [place for _, place in expected]
    assert values.tolist() == pytest.approx([value for value, _ in expected])


@pytest.mark.data
@pytest.mark.parametrize("name", ["pacrr", "co_pacrr"])
def test_the_authors_of_tk_get_the_same_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PARITY / f"{name}_small.safetensors"
    if not path.is_file():
        pytest.skip(f"shared/parity/{path.name} is not there")
    from tests.parity import __main__ as parity
    from tests.parity.pacrr import BUILDERS

    monkeypatch.setitem(parity.BUILDERS, name, BUILDERS[name])
    found = dict(parity.differences(path))
    assert len(found) >= 2
    assert max(found.values()) < 1e-5


def test_stored_padding_may_be_left_out_of_the_authors_form() -> None:
    for kind in (PACRR, CoPACRR):
        model = kind(tk_authors(kind, size=SIZE, query_length=6, doc_length=12)).eval()
        padded: Tensor = run(model, words([[1, 2]], 2), words([[3, 1, 5, 2]], 6)).score
        torch.testing.assert_close(padded, run(model, words([[1, 2]]), words([[3, 1, 5, 2]])).score)
