"""MORES on a GPU, beside the plain code: run by `test_triton`, in a process of its own."""

import os
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.attention import SelfAttention, attend_unprojected, make_key_bias
from glassrank.backends.configs import EncoderConfig
from glassrank.backends.gpu.folded_layers import Folded, Rows, attended, linear
from glassrank.models import TokenBatch
from glassrank.research.papers.gpu_attention import cross_attend, look_at_rows
from glassrank.research.papers.gpu_contextual import add_norm
from glassrank.research.papers.gpu_mores import StoredMORES
from glassrank.research.papers.mores import MORES, CrossAttention, MORESConfig

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SMALL = EncoderConfig(vocabulary=40, size=24, layers=3, heads=3, feed_forward=40, positions=80)
FEWER_HEADS = replace(SMALL, heads=2, head_size=8)  # 16 values together, where rows have 24


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Runs:
    """Documents of these lengths out of order, among rows and columns that belong to none."""

    def __init__(self, lengths: list[int], width: int, spare: int = 8) -> None:
        self.lengths = lengths
        total = sum(lengths) + 5 * len(lengths)
        self.rows = torch.full((total, width + spare), 7.0)
        self.docs = [torch.randn(length, width) for length in lengths]
        self.starts = []
        end = total
        for doc in self.docs:
            end -= len(doc) + 4
            self.starts.append(end)
            self.rows[end : end + len(doc), :width] = doc

    def given(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.rows.to(DEVICE),
            torch.tensor(self.starts, device=DEVICE),
            torch.tensor(self.lengths, dtype=torch.int32, device=DEVICE),
        )


@pytest.mark.parametrize("words", [1, 5, 40])
@pytest.mark.parametrize("one_for_all", [True, False])
@pytest.mark.parametrize("block", [0, 1])
def test_attention_to_stored_documents(words: int, one_for_all: bool, block: int) -> None:
    cross = CrossAttention(24, 24, 3, 0.0, 1e-12).eval()
    runs = Runs([3, 70, 1, 64], 4 * 24)
    query = torch.randn(1 if one_for_all else 4, words, 24)
    rows, starts, lengths = runs.given()
    found = cross_attend(query.to(DEVICE), rows, None, starts, lengths, 3, block).cpu()
    for number, doc in enumerate(runs.docs):
        own = query[0 if one_for_all else number]
        key, value = torch.unflatten(doc, 1, (4, 24))[:, 2 * block : 2 * block + 2].unbind(1)
        split = (
            torch.unflatten(x, 1, (cross.heads, -1)).transpose(0, 1) for x in (own, key, value)
        )
        exact = functional.scaled_dot_product_attention(*split).transpose(0, 1).flatten(1)
        torch.testing.assert_close(found[number], exact, rtol=1e-4, atol=1e-5)


def test_documents_in_bytes() -> None:
    runs = Runs([9, 30], 2 * 24, spare=0)
    each = torch.unflatten(runs.rows, 1, (2, 24))
    scales = each.abs().amax(2) / 127  # (T, V)
    steps = (each / scales[..., None]).round()
    query = torch.randn(1, 4, 24).to(DEVICE)
    rows, starts, lengths = runs.given()
    given = steps.flatten(1).to(torch.int8).to(DEVICE), scales.to(DEVICE)
    found = cross_attend(query, *given, starts, lengths, 3, 0)
    rounded = (steps * scales[..., None]).flatten(1).to(DEVICE)
    exact = cross_attend(query, rounded, None, starts, lengths, 3, 0)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)
    assert not torch.equal(exact, cross_attend(query, rows, None, starts, lengths, 3, 0))


def test_a_document_without_rows_gives_zeros() -> None:
    rows = torch.randn(3, 48, device=DEVICE)
    starts = torch.tensor([0, 1], device=DEVICE)
    lengths = torch.tensor([0, 2], dtype=torch.int32, device=DEVICE)
    found = cross_attend(torch.randn(1, 2, 24, device=DEVICE), rows, None, starts, lengths, 3, 0)
    assert (found[0] == 0).all() and (found[1] != 0).all()


def made(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("words", [1, 7, 45])
@pytest.mark.parametrize("size", [24, 300, 1000])
@torch.no_grad()
def test_linear_with_norm_and_sum(words: int, size: int) -> None:
    wide, narrow = made(nn.Linear(24, size)), made(nn.Linear(size, 24))
    norm = made(nn.LayerNorm(24, eps=1e-6))
    x = torch.randn(words, 24) + 3
    inside = functional.gelu(wide(norm(x)))
    exact = narrow(inside) + norm(x)
    for module in (wide, narrow, norm):
        module.to(DEVICE)
    rows = x.to(DEVICE)
    found, spread = linear(rows, Folded(wide, norm), gelu=True)
    torch.testing.assert_close(found.cpu(), inside, rtol=1e-4, atol=1e-4)
    outer = Folded(narrow)
    for _ in range(2):  # what counts the parts of a sum is ready for the next time
        added, _ = linear(found, outer, residual=Rows(rows, spread, norm))
        torch.testing.assert_close(added.cpu(), exact, rtol=1e-4, atol=1e-3)
    assert not outer.arrived.any()


@pytest.mark.parametrize("words", [1, 7, 45])
@torch.no_grad()
def test_attention_of_few_rows(words: int) -> None:
    own = made(SelfAttention(24, 3, 0.0, 1e-6)).eval()
    norm = made(nn.LayerNorm(24, eps=1e-6))
    x, short = torch.randn(1, words, 24), max(1, words - 2)
    mask = (torch.arange(words) < short).float()[None]
    exact = own(norm(x), make_key_bias(mask, x))
    own.to(DEVICE), norm.to(DEVICE)
    rows = x[0].to(DEVICE)
    three, spread = linear(rows, Folded(own.query_key_value, norm))
    length = torch.tensor([short], dtype=torch.int32, device=DEVICE)
    found = attended(three, length, Folded(own.output), 3, Rows(rows, spread, norm))
    torch.testing.assert_close(
        own.norm(found).cpu()[:short], exact[0, :short], rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("words", [1, 6, 20])
def test_what_the_first_row_sees(words: int) -> None:
    heads, docs, size = 3, 4, 24
    rows, weight = torch.randn(docs, words, size), torch.randn(2 * size, size)
    query = torch.randn(docs, heads, 1, size // heads)
    exact = attend_unprojected(query, rows, weight, torch.zeros(size), None)[:, :, 0]
    key, value = weight.view(2, heads, -1, size)
    asked = torch.bmm(query[:, :, 0].transpose(0, 1), key)  # (heads, B, H)
    found = look_at_rows(asked.to(DEVICE), rows.to(DEVICE), size // heads).cpu()
    values = torch.bmm(found, value.transpose(1, 2)).transpose(0, 1)
    torch.testing.assert_close(values, exact, rtol=1e-4, atol=1e-4)


def test_a_residual_of_fewer_rows_is_used_again() -> None:
    norm = nn.LayerNorm(24, eps=1e-3)
    x, residual = torch.randn(3, 5, 24), torch.randn(1, 5, 24)
    given = [one.detach().to(DEVICE) for one in (x, residual, norm.weight, norm.bias)]
    found = add_norm(*given, epsilon=1e-3, in_root=True).cpu()
    torch.testing.assert_close(found, norm(x + residual).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"tie_encoders": True}, {"two_logits": True}])
@pytest.mark.parametrize("encoder", [SMALL, FEWER_HEADS], ids=["all heads", "fewer heads"])
def test_the_whole_ranker(encoder: EncoderConfig, blocks: int, settings: dict[str, bool]) -> None:
    config = MORESConfig.like(encoder, blocks, **settings)
    model = MORES(replace(config, reuse="s2")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.interaction.head.weight.mul_(4)  # documents differ by far more than is allowed below
    lengths = [5, 70, 33]
    ids = torch.randint(1, 40, (3, 70))
    mask = (torch.arange(70) < torch.tensor(lengths)[:, None]).float()
    query = TokenBatch(torch.randint(1, 40, (1, 6)), torch.ones(1, 6))
    with torch.no_grad():
        docs = model.encode_doc(TokenBatch(ids, mask))  # (B, D, blocks, 2, H)
        encoded = model.encode_query(query)
        exact = model.interact(encoded, docs).score
    runs = Runs(lengths, docs.vectors[0, 0].numel())
    for start, length, own in zip(runs.starts, lengths, docs.vectors, strict=True):
        runs.rows[start : start + length, : own[0].numel()] = own[:length].flatten(1)
    fast = StoredMORES(model.to(DEVICE))
    padded = [functional.pad(one, (0, 3)).to(DEVICE) for one in query]
    found = fast.encode_query(TokenBatch(*padded)).vectors[:, :6]
    torch.testing.assert_close(found.cpu(), encoded.vectors, rtol=1e-4, atol=1e-4)
    rows, starts, counts = runs.given()
    scores = fast.scores(found, rows, None, starts, counts).cpu()
    torch.testing.assert_close(scores, exact, rtol=1e-4, atol=1e-4)
    assert exact.std() > 0.05
