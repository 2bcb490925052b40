"""Every Triton kernel compiles for a GPU, without one: its interpreter, which the other tests use,
lets pass what the compiler does not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from glassrank.backends.configs import EncoderConfig, Kernels
from glassrank.backends.gpu import folded_layers
from glassrank.backends.gpu.kernels import pool_triton
from glassrank.models import TokenBatch
from glassrank.models.late_interaction import ContextualConfig
from glassrank.research.papers.contextual import ContextualLayers
from glassrank.research.papers.gpu_contextual import ContextualOnGPU
from glassrank.research.papers.gpu_mores import StoredMORES
from glassrank.research.papers.mores import MORES, MORESConfig

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
HOPPER, AMPERE = GPUTarget("cuda", 90, 32), GPUTarget("cuda", 80, 32)


@pytest.fixture(
    params=[
        pytest.param(HOPPER, id="hopper"),
        pytest.param(AMPERE, id="ampere", marks=pytest.mark.slow),
    ]
)
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Kernels are compiled instead of launched; the names of those that were."""
    names: set[str] = set()
    known: set[object] = set()

    def run(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        options = {
            n: kwargs.pop(n) for n in ("num_warps", "num_stages", "launch_pdl") if n in kwargs
        }
        given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if "interpreted" in given:
            given["interpreted"] = False
        signature, constants = {}, {}
        for place, name in enumerate(self.arg_names):
            value = given[name]
            if self.params[place].is_constexpr:
                signature[name], constants[(place,)] = "constexpr", value
            else:
                signature[name] = TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        key = (self.fn, str(signature), str(constants))
        if key not in known:
            known.add(key)
            source = ASTSource(self, signature, constexprs=constants)
            made = triton.compile(source, target=request.param, options=options)
            assert made.asm["ptx"]
        names.add(self.fn.__name__)

    early = {"early": True, "launch_pdl": True} if request.param is HOPPER else {"early": False}
    monkeypatch.setattr(folded_layers, "_launched_early", lambda x: early)
    monkeypatch.setattr(JITFunction, "run", run)
    yield names


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_mores(compiled: set[str], dtype: torch.dtype) -> None:
    encoder = EncoderConfig(vocabulary=20, size=128, layers=3, heads=4, feed_forward=512)
    model = MORES(MORESConfig.like(encoder, 2)).to(dtype).eval()
    fast = StoredMORES(model)
    ids = torch.ones(1, 5, dtype=torch.long)
    query = fast.encode_query(TokenBatch(ids, torch.ones(1, 5))).vectors
    starts, lengths = torch.tensor([0, 3]), torch.tensor([3, 2], dtype=torch.int32)
    fast.scores(query, torch.zeros(5, 4 * 128, dtype=dtype), None, starts, lengths)
    rows, scales = torch.zeros(5, 4 * 128, dtype=torch.int8), torch.ones(5, 4)
    fast.scores(query, rows, scales, starts, lengths)
    assert compiled == {"_linear", "_attended", "_cross", "_add_norm", "_attend", "_look"}


def test_contextual_layers(compiled: set[str]) -> None:
    layers = ContextualLayers(20, ContextualConfig(layers=1, heads=2, attention_size=16))
    ContextualOnGPU(layers)(torch.randn(2, 7, 20), torch.ones(2, 7))
    assert compiled == {"_attend", "_add_norm"}


@pytest.mark.parametrize("kernels_of", [Kernels.eleven, Kernels.rising])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8])
def test_kernel_pooling(
    compiled: set[str], dtype: torch.dtype, kernels_of: Callable[[], Kernels]
) -> None:
    rows = torch.zeros(9, 64, dtype=dtype)
    scales = torch.ones(9) if dtype == torch.int8 else None
    kernels, weights = kernels_of(), torch.ones(11)
    starts, lengths = torch.tensor([0, 4]), torch.tensor([4, 5], dtype=torch.int32)
    pool_triton(
        torch.randn(3, 60), torch.ones(3), rows, scales, starts, lengths, kernels, weights, weights
    )
    assert compiled == {"_pool"}
