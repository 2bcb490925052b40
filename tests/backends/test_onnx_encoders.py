"""Transformers as ONNX graphs beside the plain ones."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from glassrank.backends.configs import EncoderConfig
from glassrank.backends.cpu import architecture, has_vnni
from glassrank.backends.onnx_encoders import (
    Linear,
    Quantized,
    Weights,
    add_bert,
    as_float32,
    block_linear,
    row_linear,
    text_linear,
)
from glassrank.backends.onnx_file import CONTRIB, Graph
from glassrank.backends.transformer import Encoder
from glassrank.errors import InputError
from glassrank.models.late_interaction import ContextualConfig, sinusoidal_positions
from glassrank.models.onnx_models import OnnxSession, add_contextual
from glassrank.research.papers.contextual import ContextualLayers

SMALL = EncoderConfig(vocabulary=30, size=24, layers=2, heads=4, feed_forward=40, positions=20)
KINDS = {
    "BERT": SMALL,
    "the other GELU": replace(SMALL, activation="gelu_tanh"),
    "ReLU": replace(SMALL, activation="relu"),
    "fewer heads": replace(SMALL, heads=3, head_size=6),
    "MPNet": replace(SMALL, distances=8),
    "no layers": replace(SMALL, layers=0),
}


def shaken(module: torch.nn.Module) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module.eval()


def arrays_of(module: torch.nn.Module) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def bert(config: EncoderConfig, weights: dict[str, Any], threads: int = 1) -> Callable[..., Any]:
    graph = Graph("BERT")
    ids = graph.input("ids", "int64", [1, "length"])
    states = add_bert(graph, ids, config, Weights(weights))
    graph.output("states", states, "float32", [1, "length", config.size])
    session = OnnxSession(graph.serialize(), optimised=True, threads=threads)
    return lambda ids: session.run({"ids": ids})[0]


def quantized(weights: dict[str, NDArray[Any]]) -> dict[str, Any]:
    made: dict[str, Any] = dict(weights)
    for name, array in weights.items():
        if array.ndim == 2 and ("layers." in name or "pieces" in name):
            scales = np.abs(array).max(1) / np.float32(127)
            made[name] = Quantized(np.rint(array / scales[:, None]).astype(np.int8), scales)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_berts_states_are_those_of_the_plain_form(kind: str) -> None:
    plain = shaken(Encoder(KINDS[kind]))
    encode = bert(KINDS[kind], arrays_of(plain))
    for length in (1, 2, 9, 20):
        ids = torch.randint(0, 30, (1, length))
        expected = plain(ids, torch.ones(1, length)).detach()
        np.testing.assert_allclose(encode(ids.numpy()), expected, rtol=1e-4, atol=1e-5)


def test_contextual_vectors_are_those_of_the_plain_form() -> None:
    config = ContextualConfig(2, 3, 12, feed_forward=20)
    plain = shaken(ContextualLayers(14, config))
    graph = Graph("TK")
    given = [graph.input(name, "float32", [1, "length", 14]) for name in ("words", "places")]
    rows = add_contextual(graph, *given, 14, config, Weights(arrays_of(plain)))
    graph.output("rows", rows, "float32", [1, "length", 14])
    session = OnnxSession(graph.serialize(), optimised=True)
    for length in (1, 2, 11):
        words = torch.randn(1, length, 14)
        expected = plain(words, torch.ones(1, length)).detach()
        (found,) = session.run(
            {"words": words.numpy(), "places": sinusoidal_positions(length, 14)[None]}
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(
    architecture() == "x86_64" and not has_vnni(), reason="sums of two products overflow"
)
def test_int8_products_with_a_scale_for_the_whole_text() -> None:
    """The slow form: all activations become integers between the least and the greatest, and 0."""
    random = np.random.default_rng(0)
    scales = random.uniform(0.001, 0.01, 7).astype(np.float32)
    weight = Quantized(random.integers(-127, 128, (7, 128), np.int8), scales)
    rows = random.normal(size=(1, 5, 128)).astype(np.float32)
    graph = Graph("product")
    made = text_linear(graph, graph.input("rows", "float32", [1, "length", 128]), "weight", weight)
    graph.output("made", made, "float32", [1, "length", 7])
    (found,) = OnnxSession(graph.serialize(), optimised=True).run({"rows": rows})
    step = np.float32(rows.max() - rows.min()) / np.float32(255)
    zero = np.rint(-rows.min() / step)
    whole = (np.clip(np.rint(rows[0] / step) + zero, 0, 255) - zero) * step
    expected = whole.astype(np.float64) @ as_float32(weight).T.astype(np.float64)
    exact = rows[0].astype(np.float64) @ as_float32(weight).T.astype(np.float64)
    off = np.abs(found[0] - expected).max()
    assert off <= 0.3 * np.abs(exact - expected).max() + 1e-4  # nothing but last bits of rounding


@pytest.mark.parametrize("inputs", [24, 128, 300])
@pytest.mark.parametrize("linear", [block_linear, row_linear])
def test_int8_products_are_those_of_rounded_rows(linear: Linear, inputs: int) -> None:
    """The slow form: each row, or block of 128 of its values, becomes integers with a scale."""
    if linear is row_linear and architecture() == "x86_64" and not has_vnni():
        pytest.skip("sums of two products overflow without VNNI")
    size = inputs if linear is row_linear else 128
    random = np.random.default_rng(inputs)
    scales = random.uniform(0.001, 0.01, 7).astype(np.float32)
    weight = Quantized(random.integers(-127, 128, (7, inputs), np.int8), scales)
    rows = random.normal(size=(1, 5, inputs)).astype(np.float32)
    graph = Graph("product")
    given = graph.input("rows", "float32", [1, "length", inputs])
    made = linear(graph, given, "weight", weight)
    graph.output("made", made, "float32", [1, "length", 7])
    (found,) = OnnxSession(graph.serialize(), optimised=True).run({"rows": rows})
    expected = np.zeros((5, 7))
    for start in range(0, inputs, size):
        block = rows[0, :, start : start + size].astype(np.float64)  # (5, B)
        step = np.abs(block).max(1, keepdims=True) / 127
        whole = np.rint(block / step) * step
        expected += whole @ as_float32(weight)[:, start : start + size].T.astype(np.float64)
    exact = rows[0].astype(np.float64) @ as_float32(weight).T.astype(np.float64)
    off = np.abs(found[0] - expected).max()
    assert off <= 0.3 * np.abs(exact - expected).max() + 1e-4  # nothing but last bits of rounding


def test_a_text_gives_the_same_bytes_with_any_number_of_threads() -> None:
    config = EncoderConfig(vocabulary=99, size=96, layers=2, heads=4, feed_forward=256)
    weights = quantized(arrays_of(shaken(Encoder(config))))
    one, two = (bert(config, weights, threads) for threads in (1, 2))
    for length in (1, 7, 64, 300):
        ids = np.random.default_rng(length).integers(0, 99, (1, length))
        assert np.array_equal(one(ids), two(ids))


def test_graphs_are_what_onnx_says_a_graph_is() -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    graph = Graph("small")
    ids = graph.input("ids", "int64", [1, "length"])
    states = add_bert(graph, ids, KINDS["MPNet"], Weights(arrays_of(Encoder(KINDS["MPNet"]))))
    graph.output("states", states, "float32", [1, "length", 24])
    model = onnx.load_from_string(graph.serialize())
    onnx.checker.check_model(model, full_check=True)
    (weight,) = [w for w in model.graph.initializer if w.name == "layers.0.attention.output.bias"]
    assert onnx.numpy_helper.to_array(weight).shape == (24,)
    assert {node.domain for node in model.graph.node} == {"", CONTRIB}


def test_what_is_no_graph_is_one_sentence() -> None:
    with pytest.raises(InputError, match="cannot open this graph"):
        OnnxSession(b"nothing of the kind")


def test_onnx_runtime_keeps_and_sends_nothing(tmp_path: Path) -> None:
    """Without the variable it uploads telemetry, and leaves a session file behind."""
    code = "import glassrank as gr, os; gr.rank('a cat', ['the cat', 'a dog'])"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert list(tmp_path.iterdir()) == []
