"""Which form of a model ranks, by what this machine has."""

from types import SimpleNamespace

import pytest
from model_cases import SMALL

from glassrank.models import MODELS, Ranker
from glassrank.models.torch_models import fast_form
from glassrank.settings import from_plain


def as_if_on_a_gpu() -> Ranker:
    model = MODELS["tk"](from_plain(MODELS["tk"].info.config_type, SMALL["tk"]))
    model.parameters = lambda: iter([SimpleNamespace(is_cuda=True)])  # type: ignore[assignment]
    return model


@pytest.mark.parametrize("triton", [object(), None], ids=["triton", "no triton"])
def test_without_triton_the_plain_layers_serve_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, triton: object
) -> None:
    monkeypatch.setattr("glassrank.backends.gpu.find_spec", lambda name: triton)
    model = as_if_on_a_gpu()
    if triton is None:
        assert fast_form(model) is model
    else:
        pytest.importorskip("triton", reason="triton is not there")
        from glassrank.research.papers.gpu_contextual import ContextualOnGPU

        assert isinstance(fast_form(model).contextual, ContextualOnGPU)
