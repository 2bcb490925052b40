"""A recorded step learns what the plain step learns."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from glassrank.models import Ranker
from glassrank.research.train.batches import Examples, Sampler, SplitTensors, Tokens
from glassrank.research.train.build import build_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.cuda_graph_step import CudaGraphStep, compile_model
from glassrank.research.train.state import RunProgress
from glassrank.research.train.step import (
    Step,
    encode_texts,
    look_up,
    make_optimizers,
    score_encoded,
)
from tests.research.train.tiny_run import tiny_config, tiny_prepared

LENGTHS = {"query_length": 4, "doc_length": 12}
LAYERS = {"layers": 2, "heads": 2, "attention_size": 4}
SETTINGS: dict[str, dict[str, object]] = {
    "tk": {"size": 8, "contextual": LAYERS},
    "tk_windowed": {"size": 8, "windows": [3, 5], "longest_doc": 12, "contextual": LAYERS},
    "tkl": {"size": 8, "chunk": 4, "window": 4, "contextual": LAYERS},
    "knrm": {"size": 8},
    "conv_knrm": {"size": 8, "channels": 6},
    "matchpyramid": {"size": 8, "channels": [2, 2], "pools": [[3, 6], [2, 3]]},
    "duet": {"size": 8, "hidden": 8, "doc_pool": 4, "dropout": 0.0, **LENGTHS},
    "pacrr": {"size": 8, **LENGTHS},
    "co_pacrr": {"size": 8, "shuffle": False, **LENGTHS},
    "rpacrr": {"size": 8, "dropout": 0.0, **LENGTHS},
}


def config_of(name: str, **optimizer: object) -> TrainConfig:
    chosen = {"steps": 6, "rest": 0.01, "vectors": 0.01, "clip": 1.0, **optimizer}
    return tiny_config(
        model=name, config=SETTINGS[name], loss={"kind": "kl"}, optimizer=chosen, **LENGTHS
    )


def batches(config: TrainConfig, device: str, *, pad_to_max: bool) -> list[Examples]:
    prepared = tiny_prepared(teacher=True)
    docs = Tokens.of(prepared.docs, config.doc_length, torch.device(device))
    data = SplitTensors.of(prepared.train, docs, config.query_length, torch.device(device))
    sampler = Sampler(prepared.train, config.sampler, config.seed)
    return [data.examples(sampler.batch(step), pad_to_max=pad_to_max) for step in range(6)]


Gradients = dict[str, torch.Tensor]


def trained(
    config: TrainConfig, device: str, *, recorded: bool
) -> tuple[Ranker, list[float], Gradients]:
    """The model, each step's loss, and the first step's gradients."""
    torch.manual_seed(0)
    model = build_model(config, tiny_prepared(teacher=True)).to(device).train()
    optimizers = make_optimizers(model, config.optimizer)
    examples = batches(config, device, pad_to_max=recorded)
    step = (
        CudaGraphStep(model, optimizers, config, examples[0])
        if recorded
        else Step(model, optimizers, config)
    )
    progress, values, gradients = RunProgress(), [], {}
    for batch in examples:
        values.append(float(step.gradients(batch)))
        step.update(progress)
        progress.step += 1
        gradients = gradients or {
            name: weight.grad.to_dense().clone()
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }
    return model, values, gradients


def agree(name: str, device: str, tolerance: float) -> None:
    config = config_of(name)
    plain, plain_values, wanted = trained(config, device, recorded=False)
    replayed, values, gradients = trained(config, device, recorded=True)
    assert values == pytest.approx(plain_values, rel=tolerance, abs=tolerance)
    assert values[0] != values[-1]
    assert gradients.keys() == wanted.keys() == dict(plain.named_parameters()).keys()
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    other = dict(replayed.named_parameters())
    for weight_name, weight in plain.named_parameters():
        torch.testing.assert_close(
            gradients[weight_name],
            wanted[weight_name],
            rtol=tolerance,
            atol=tolerance * largest,
            msg=weight_name,
        )
        # On a GPU sums come out a little different each time, and Adam goes as far by a gradient
        # of rounding errors, as a last bias has it in a loss of differences, as by any other.
        if device == "cpu":
            torch.testing.assert_close(
                other[weight_name], weight, rtol=tolerance, atol=tolerance, msg=weight_name
            )


@pytest.mark.parametrize("name", SETTINGS)
def test_kept_tensors_give_the_gradients_of_the_plain_step(name: str) -> None:
    agree(name, "cpu", 1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
@pytest.mark.parametrize("name", SETTINGS)
def test_replayed_steps_learn_what_plain_ones_do(name: str) -> None:
    agree(name, "cuda", 1e-3)


def test_vectors_that_are_not_trained_stay() -> None:
    config = tiny_config(
        model="knrm", config=SETTINGS["knrm"], vectors={"train": False}, loss={"kind": "softmax"}
    )
    model, values, _ = trained(config, "cpu", recorded=True)
    assert values[0] != values[-1]
    assert not any(
        name.startswith("words.") for name, p in model.named_parameters() if p.requires_grad
    )


@contextmanager
def eager_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compile_ = torch.compile
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", lambda f, **k: compile_(f, backend="aot_eager", **k))
        yield


def score_batch(model: Ranker, batch: Examples) -> torch.Tensor:
    texts = look_up(model, batch.query), look_up(model, batch.doc)
    words = encode_texts(model, *texts, "float32")
    return score_encoded(model, words, batch.first_stage, "float32")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "knrm" else pytest.mark.slow) for name in SETTINGS],
)
@pytest.mark.long
def test_a_models_calls_can_be_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(name)
    model = build_model(config, tiny_prepared(teacher=True)).train()
    batch = batches(config, "cpu", pad_to_max=True)[0]
    expected = score_batch(copy.deepcopy(model), batch)
    # Made once, on the CPU: compiled code must not make them again.
    monkeypatch.setattr("glassrank.research.papers.contextual.sinusoidal_positions", None)
    with eager_backend(monkeypatch), compile_model(model, broken_calls_stay=False):
        got = score_batch(model, batch)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert "interact" not in vars(model)
