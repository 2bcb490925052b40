"""What holds for every model: padding, batches and order do not matter, exact parts add up."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import (
    SMALL,
    SMALL_PIECES,
    piece_batch,
    random_words,
    score,
    small_model,
    widened,
    widened_ids,
)
from model_folders import PIECES

from glassrank.models import MODELS, EmbeddingTable, TokenBatch
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage, fingerprint
from glassrank.models.io.torch_files import save_model
from glassrank.settings import from_plain

lengths = st.integers(1, 9)
tokens = st.integers(2, 9)
every_model = pytest.mark.parametrize("name", sorted(SMALL))
every_form = pytest.mark.parametrize(
    ("name", "changes"),
    [*((name, {}) for name in sorted(SMALL)), ("duet", {"local": "exact"})],
)
every_subword_form = pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in sorted(SMALL_PIECES)),
        ("bert", {"text": {"doc_words": 200}, "pooler": False}),
        ("mores", {"reuse": "s2", "two_logits": True}),
    ],
)
exact_models = pytest.mark.parametrize(
    "name", [n for n in sorted(SMALL) if MODELS[n].info.is_additive]
)


@every_form
@settings(max_examples=10, deadline=None)
@given(
    q=lengths, d=lengths, extra=st.integers(1, 7), seed=st.integers(0, 99), garbage=st.booleans()
)
def test_padding_does_not_matter(
    name: str, changes: dict[str, object], q: int, d: int, extra: int, seed: int, garbage: bool
) -> None:
    model = small_model(name, **changes)
    query, doc = random_words([q], q, seed=seed), random_words([d], d, seed=seed + 1)
    alone = score(model, query, doc)
    padded = score(model, widened(query, extra, garbage), widened(doc, 2 * extra, garbage))
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-5)


@every_form
@settings(max_examples=10, deadline=None)
@given(pairs=st.lists(st.tuples(lengths, lengths), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_neighbours_and_order_do_not_matter(
    name: str, changes: dict[str, object], pairs: list[tuple[int, int]], seed: int
) -> None:
    model = small_model(name, **changes)
    query = random_words([q for q, _ in pairs], 9, seed=seed)
    doc = random_words([d for _, d in pairs], 9, seed=seed + 1)
    together = score(model, query, doc)
    alone = torch.cat(
        [
            score(model, query.rows(slice(i, i + 1)), doc.rows(slice(i, i + 1)))
            for i in range(len(pairs))
        ]
    )
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    turned = torch.arange(len(pairs)).flip(0)
    torch.testing.assert_close(
        score(model, query.rows(turned), doc.rows(turned)), together[turned], rtol=1e-4, atol=1e-5
    )


@every_subword_form
@settings(max_examples=10, deadline=None)
@given(q=tokens, d=tokens, extra=st.integers(1, 5), seed=st.integers(0, 99))
def test_padding_of_subwords_does_not_matter(
    name: str, changes: dict[str, object], q: int, d: int, extra: int, seed: int
) -> None:
    model = small_model(name, **changes)
    query, doc = piece_batch([q], seed=seed), piece_batch([d], seed=seed + 1)
    with torch.no_grad():
        padded = model(widened_ids(query, extra), widened_ids(doc, 2 * extra))
        torch.testing.assert_close(padded, model(query, doc), rtol=1e-5, atol=1e-5)


@every_subword_form
@settings(max_examples=10, deadline=None)
@given(pairs=st.lists(st.tuples(tokens, tokens), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_neighbours_and_order_of_subwords_do_not_matter(
    name: str, changes: dict[str, object], pairs: list[tuple[int, int]], seed: int
) -> None:
    model = small_model(name, **changes)
    query = piece_batch([q for q, _ in pairs], seed=seed)
    doc = piece_batch([d for _, d in pairs], seed=seed + 1)

    def scores(numbers: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return model(*(TokenBatch(b.ids[numbers], b.mask[numbers]) for b in (query, doc)))

    together = scores(list(range(len(pairs))))
    alone = torch.cat([scores([number]) for number in range(len(pairs))])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    turned = scores(list(reversed(range(len(pairs)))))
    torch.testing.assert_close(turned.flip(0), together, rtol=1e-5, atol=1e-5)


@every_subword_form
def test_one_query_is_as_good_as_many_of_it(name: str, changes: dict[str, object]) -> None:
    model = small_model(name, **changes)
    with torch.no_grad():
        query, doc = model.encode_query(piece_batch([5])), model.encode_doc(piece_batch([9, 4, 7]))
        one = model.interact(model.expand(query, 3), doc).score
        many = model.interact(query.rows(torch.zeros(3).long()), doc).score
    torch.testing.assert_close(one, many, rtol=1e-5, atol=1e-5)


@every_subword_form
def test_training_reaches_every_parameter_over_subwords(
    name: str, changes: dict[str, object]
) -> None:
    model = small_model(name, **changes).train()
    out = model(piece_batch([5, 4]), piece_batch([9, 7], seed=1))
    torch.autograd.backward((out * torch.tensor([1.0, -2.0])).sum())
    untouched = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # Late interaction's texts are of one segment.
    one_segment = ("kernel_bert", "maxsim", "single_vector")
    assert [n for n in untouched if name not in one_segment or "types" not in n] == []


@exact_models
@settings(max_examples=10, deadline=None)
@given(q=lengths, d=lengths, seed=st.integers(0, 99))
def test_exact_parts_add_up(name: str, q: int, d: int, seed: int) -> None:
    model = small_model(name)
    query, doc = random_words([q, 2], 9, seed=seed), random_words([d, 3], 9, seed=seed + 1)
    with torch.no_grad():
        out = model.interact(model.query_words(query), model.doc_words(doc))
    total = sum(out.parts[part].flatten(1).sum(1) for part in model.info.summands)
    torch.testing.assert_close(total, out.score, rtol=1e-5, atol=1e-6)


@exact_models
def test_the_first_stage_is_one_more_part(name: str) -> None:
    model = small_model(name)
    model.mix_first_stage(0.5)
    query, doc = random_words([3], 3), random_words([4], 4, seed=1)
    encoded = model.query_words(query), model.doc_words(doc)
    mixed = model.rank(*encoded, first_stage=torch.tensor([8.0]))
    torch.testing.assert_close(mixed.score, model.interact(*encoded).score + 4)
    torch.testing.assert_close(mixed.parts["first_stage"], torch.tensor([4.0]))


@every_model
def test_training_reaches_every_parameter(name: str) -> None:
    model = small_model(name).train()
    query, doc = random_words([9, 5], 9), random_words([9, 8], 9, seed=1)
    out = model.interact(model.query_words(query), model.doc_words(doc))
    torch.autograd.backward((out.score * torch.tensor([1.0, -2.0])).sum())
    untouched = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # A document of nine words fills no window of rank two and below.
    assert [n for n in untouched if "rank_weights" not in n] == []


@every_model
def test_save_then_load_is_the_identity(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    family = MODELS[name]
    table = EmbeddingTable(torch.randn(20, 12), torch.rand(20))
    model = family(from_plain(family.info.config_type, SMALL[name]), table)
    words = ["<pad>", "<unk>", *(f"w{i}" for i in range(18))]
    save_model(tmp_path / "model", model, Usage(depth=7), words, "# a card\n")
    again = load_model(tmp_path / "model")
    assert again.usage == Usage(depth=7)
    assert again.vocabulary == words
    assert again.model.config == model.config
    assert fingerprint(again.model) == fingerprint(model)
    query = TokenBatch(torch.tensor([[2, 3, 0]]), torch.tensor([[1.0, 1.0, 0.0]]))
    doc = TokenBatch(torch.tensor([[3, 4, 5]]), torch.ones(1, 3))
    assert torch.equal(again.model(query, doc), model.eval()(query, doc))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@every_subword_form
def test_save_then_load_of_subword_models_is_the_identity(
    name: str, changes: dict[str, object], tmp_path: Path
) -> None:
    model = small_model(name, **changes)
    save_model(tmp_path / "model", model, Usage(16, 128), PIECES, "# a card\n")
    again = load_model(tmp_path / "model")
    assert again.model.config == model.config
    assert again.vocabulary == PIECES
    assert fingerprint(again.model) == fingerprint(model)
    query, doc = piece_batch([4]), piece_batch([7])
    assert torch.equal(again.model(query, doc), model(query, doc))
