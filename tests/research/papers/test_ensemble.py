"""An ensemble is the mean of its members, through the same three calls."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.model_cases import SMALL

from glassrank.errors import InputError
from glassrank.models import MODELS, EmbeddingTable, Ranker, TokenBatch
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage, fingerprint
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.ensemble import Ensemble, save_ensemble
from glassrank.settings import from_plain

WORDS = ["<pad>", "<unk>", *(f"w{i}" for i in range(28))]
CASES = {
    **SMALL,
    # These cut texts themselves, to other lengths than the ensemble is given.
    "co_pacrr": {"size": 12, "query_length": 4, "doc_length": 8},
    "duet": {"size": 12, "query_length": 5, "doc_length": 12, "hidden": 8, "doc_pool": 4},
}
EXACT = ("tk", "knrm", "conv_knrm", "tk_windowed")
lengths = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 16)), min_size=1, max_size=3)


def member(name: str, seed: int = 0) -> Ranker:
    torch.manual_seed(seed)
    family = MODELS[name]
    vectors = torch.randn(len(WORDS), 12)
    vectors[0] = 0
    table = EmbeddingTable(vectors, torch.rand(len(WORDS)))
    model = family(from_plain(family.info.config_type, CASES[name]), table)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if not parameter_name.startswith("words."):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def ensemble(*names: str) -> Ensemble:
    return Ensemble([member(n, seed) for seed, n in enumerate(names)], [(6, 14)] * len(names))


def texts(sizes: list[int], seed: int) -> TokenBatch:
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]).float()
    ids = torch.randint(1, len(WORDS), mask.shape, generator=generator)
    return TokenBatch(ids * mask.long(), mask)


def cut(batch: TokenBatch, length: int) -> TokenBatch:
    return TokenBatch(batch.ids[:, :length], batch.mask[:, :length])


@pytest.mark.parametrize("names", [EXACT, ("co_pacrr", "tk", "duet"), ("knrm",)])
@settings(max_examples=10, deadline=None)
@given(sizes=lengths, seed=st.integers(0, 99))
def test_the_score_is_the_mean(
    names: tuple[str, ...], sizes: list[tuple[int, int]], seed: int
) -> None:
    model = ensemble(*names)
    query, doc = texts([q for q, _ in sizes], seed), texts([d for _, d in sizes], seed + 1)
    with torch.no_grad():
        alone = [member(n, s)(cut(query, 6), cut(doc, 14)) for s, n in enumerate(names)]
        torch.testing.assert_close(model(query, doc), torch.stack(alone).mean(0))


@settings(max_examples=10, deadline=None)
@given(sizes=lengths, seed=st.integers(0, 99))
def test_exact_parts_add_up(sizes: list[tuple[int, int]], seed: int) -> None:
    model = ensemble(*EXACT)
    query, doc = texts([q for q, _ in sizes], seed), texts([d for _, d in sizes], seed + 1)
    with torch.no_grad():
        out = model.interact(model.encode_query(query), model.encode_doc(doc))
    assert model.info.is_additive
    total = sum(out.parts[name].flatten(1).sum(1) for name in model.info.summands)
    torch.testing.assert_close(total, out.score, rtol=1e-5, atol=1e-6)


def test_parts_are_the_members_under_their_numbers() -> None:
    model = ensemble("knrm", "co_pacrr")
    query, doc = texts([3], 1), texts([9], 2)
    out = model.interact(model.encode_query(query), model.encode_doc(doc))
    assert not model.info.is_additive
    assert model.info.summands == ("0.log",)
    knrm = member("knrm")
    own = knrm.interact(knrm.encode_query(query), knrm.encode_doc(doc)).parts
    torch.testing.assert_close(out.parts["0.log"], own["log"] / 2)
    torch.testing.assert_close(out.parts["0.similarity"], own["similarity"])
    assert any(name.startswith("1.") for name in out.parts)


def test_encodings_are_cut_into_rows_as_any_other() -> None:
    model = ensemble("tk", "conv_knrm")
    query, doc = texts([3, 5], 1), texts([9, 4], 2)
    with torch.no_grad():
        encoded = model.encode_query(query), model.encode_doc(doc)
        turned = torch.tensor([1, 0, 0])
        rows = model.interact(*(words.rows(turned) for words in encoded)).score
        torch.testing.assert_close(rows, model.interact(*encoded).score[turned])


def test_members_may_mix_in_the_first_stage() -> None:
    models = [member("tk"), member("knrm", 1)]
    models[1].mix_first_stage(0.5)
    both = Ensemble(models, [(6, 14), (6, 14)])
    query, doc, first_stage = texts([3], 1), texts([9], 2), torch.tensor([8.0])
    with torch.no_grad():
        own = [m.rank(m.encode_query(query), m.encode_doc(doc), first_stage).score for m in models]
        out = both.rank(both.encode_query(query), both.encode_doc(doc), first_stage)
    torch.testing.assert_close(out.score, (own[0] + own[1]) / 2)
    torch.testing.assert_close(out.parts["first_stage"], torch.tensor([8.0 * 0.5 / 2]))


def saved(folder: Path, name: str, words: list[str] = WORDS, doc_length: int = 14) -> Path:
    save_model(folder, member(name), Usage(6, doc_length), words, "# a card\n")
    return folder


def test_a_saved_ensemble_opens_as_any_model(tmp_path: Path) -> None:
    folders = [saved(tmp_path / "a", "tk"), saved(tmp_path / "b", "duet", doc_length=5)]
    save_ensemble(tmp_path / "both", folders, Usage(6, 14, depth=7), "# both\n")
    again = load_model(tmp_path / "both")
    assert again.usage == Usage(6, 14, depth=7)
    assert again.vocabulary == WORDS
    fresh = Ensemble([member("tk"), member("duet")], [(6, 14), (6, 5)])
    assert fingerprint(again.model) == fingerprint(fresh)
    other = Ensemble([member("tk"), member("duet")], [(6, 14), (6, 6)])
    assert fingerprint(again.model) != fingerprint(other)
    query, doc = texts([3], 1), texts([9], 2)
    assert torch.equal(again.model(query, doc), fresh(query, doc))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "both"]


def test_members_of_two_vocabularies_are_refused(tmp_path: Path) -> None:
    other = saved(tmp_path / "b", "tk", [*WORDS[:-1], "other"])
    with pytest.raises(InputError, match="one vocabulary"):
        save_ensemble(tmp_path / "both", [saved(tmp_path / "a", "tk"), other], Usage(), "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_an_ensemble_of_ensembles_is_refused() -> None:
    with pytest.raises(InputError, match="none that is an ensemble"):
        Ensemble([ensemble("knrm")], [(6, 14)])
