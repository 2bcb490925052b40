"""Names of devices: what torch can use, or one sentence."""

import pytest
import torch

from glassrank.backends.gpu import get_device
from glassrank.errors import InputError


def test_the_processor_is_always_there() -> None:
    assert get_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x"])
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(InputError, match=r"expected cpu, cuda or cuda:1, found"):
        get_device(name)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"no GPU here for 'cuda'; take cpu"):
        get_device("cuda")


def test_the_number_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert get_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match=r"no cuda:2 here; GPUs are counted from 0 to 1"):
        get_device("cuda:2")
