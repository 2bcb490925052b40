"""configs/default/strong.py trains with maths of its own, without padding: it is the package's."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from glassrank.backends.configs import EncoderConfig
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.late_interaction import KernelBERTConfig
from glassrank.models.model import TokenBatch, TokenEmbeddings

SCRIPT = Path(__file__).parents[3] / "configs" / "default" / "strong.py"
SMALL = EncoderConfig(
    vocabulary=60, size=64, layers=3, heads=2, feed_forward=32, positions=40, types=2, dropout=0.0
)


@pytest.fixture(scope="module")
def strong() -> ModuleType:
    spec = importlib.util.spec_from_file_location("strong", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model() -> KernelBERT:
    torch.manual_seed(0)
    model = KernelBERT(KernelBERTConfig(SMALL, size=16)).eval()
    for parameter in model.parameters():  # so that nothing is as it begins
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.fixture
def data(strong: ModuleType) -> Any:
    rng = np.random.default_rng(1)
    data = strong.Data.__new__(strong.Data)
    for name, count, longest in (("queries", 4, 6), ("docs", 30, 20)):
        lengths = rng.integers(2, longest, count)
        setattr(data, name, strong.Texts(rng.integers(1, 60, lengths.sum()), lengths))
    data.ids = torch.cat([data.queries.ids, data.docs.ids])
    data.query = np.repeat(np.arange(4), 20)
    data.lists = rng.permuted(np.tile(np.arange(30), (80, 1)), axis=1)[:, :5]
    data.target = torch.from_numpy(rng.normal(size=data.lists.shape)).float()
    return data


def batch(texts: Any, numbers: Any) -> TokenBatch:
    rows = [
        texts.ids[start : start + length]
        for start, length in zip(texts.starts[numbers], texts.lengths[numbers], strict=True)
    ]
    masks = [torch.ones(len(row)) for row in rows]
    padded = (torch.nn.utils.rnn.pad_sequence(part, batch_first=True) for part in (rows, masks))
    ids, mask = padded
    return TokenBatch(ids.long(), mask)


def test_scores_are_those_of_the_family(strong: ModuleType, model: KernelBERT, data: Any) -> None:
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    pick = np.array([0, 30, 79])
    with torch.no_grad():
        scored = strong.score_lists(weights, weights, data, pick, range(3))
        for row, number in zip(scored.scores, pick, strict=True):
            query = model.encode_query(batch(data.queries, [data.query[number]] * 5))
            doc = model.encode_doc(batch(data.docs, data.lists[number]))
            torch.testing.assert_close(
                row, model.interact(TokenEmbeddings(*query), doc).score, atol=1e-4, rtol=1e-4
            )


def test_training_comes_nearer_to_the_target(
    strong: ModuleType, model: KernelBERT, data: Any
) -> None:
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}

    def apart(now: dict[str, torch.Tensor]) -> float:
        with torch.no_grad():
            scores = strong.score_lists(now, now, data, np.arange(80), range(3)).scores
        difference = scores - data.target
        return float((difference - difference.mean(1, keepdim=True)).pow(2).mean())

    trained = strong.train(weights, data, "trial", 25, 1e-3, frozen=5, head_rate=1e-2)
    assert apart(trained) < 0.9 * apart(weights)
    assert strong.back(trained, weights, 0.0).keys() == weights.keys()
    same = strong.back(trained, weights, 1.0)
    torch.testing.assert_close(
        same["encoder.layers.2.attention.norm.weight"],
        trained["encoder.layers.2.attention.norm.weight"],
    )


def test_the_encoder_stays_while_it_is_frozen(
    strong: ModuleType, model: KernelBERT, data: Any
) -> None:
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    trained = strong.train(weights, data, "trial", 3, 1e-2, frozen=3, mean_from=1)
    changed = {name for name in weights if not torch.equal(weights[name], trained[name])}
    assert changed == {name for name in weights if not name.startswith("encoder.")}


def test_vectors_begin_as_means_without_layers(
    monkeypatch: pytest.MonkeyPatch, strong: ModuleType, data: Any
) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setitem(sys.modules, "strong", strong)
    further = importlib.import_module("further")
    torch.manual_seed(0)
    big = KernelBERT(KernelBERTConfig(SMALL, size=further.SIZE)).eval()
    weights = {n: t.detach() + 0.1 * torch.randn_like(t) for n, t in big.state_dict().items()}
    whole = strong.read_all(weights, data)
    none = further.without_layers(weights, data, whole)
    docs = whole[0][len(data.queries.ids) :].float()

    def nearness(now: dict[str, torch.Tensor]) -> float:
        return float((docs * strong.token_vectors(now, data.docs)).sum(1).mean())

    cut = {name: tensor for name, tensor in weights.items() if ".layers." not in name}
    assert nearness(cut) < nearness(none) < 1
    tiny = further.with_layers(none, 2, 2, 48)
    trained = strong.train(
        tiny, data, "trial", 30, 1e-3, frozen=0, whole=whole, kept=further.POSITIONS
    )
    assert nearness(trained) > nearness(tiny)
    for name in further.POSITIONS:
        assert torch.equal(trained[name], none[name])
