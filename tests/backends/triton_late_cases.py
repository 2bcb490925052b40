"""A late-interaction model's query on a GPU, beside the plain code: run by `test_triton`, in a
process of its own."""

import os
from dataclasses import replace

import pytest
import torch

from glassrank.backends.configs import EncoderConfig
from glassrank.models import TokenBatch
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.late_interaction import KernelBERTConfig

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SMALL = EncoderConfig(vocabulary=40, size=24, layers=3, heads=3, feed_forward=40, positions=80)
FEWER_HEADS = replace(SMALL, heads=2, head_size=8)  # 16 values together, where rows have 24


@pytest.mark.parametrize("words", [1, 5, 17])
@pytest.mark.parametrize("encoder", [SMALL, FEWER_HEADS], ids=["all heads", "fewer heads"])
def test_same_words_as_the_plain_encoder(encoder: EncoderConfig, words: int) -> None:
    torch.manual_seed(0)
    model = KernelBERT(KernelBERTConfig(encoder, size=10)).to(DEVICE).eval()
    torch.nn.init.normal_(model.term_weight.weight)
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(norm.bias)
    ids = torch.randint(1, 40, (1, words + 3), device=DEVICE)
    mask = (torch.arange(words + 3, device=DEVICE) < words).float()[None]  # the rest is padding
    fast = model.gpu_query_encoder()
    assert fast is not None
    found = fast(TokenBatch(ids, mask))
    plain = model.encode_query(TokenBatch(ids[:, :words], mask[:, :words]))
    torch.testing.assert_close(found.vectors[:, :words], plain.vectors, atol=2e-5, rtol=0)
    torch.testing.assert_close(found.idf[:, :words], plain.idf, atol=2e-5, rtol=0)
    assert not found.idf[:, words:].any()


def test_distances_are_left_to_the_plain_encoder() -> None:
    far = replace(SMALL, distances=4)
    assert KernelBERT(KernelBERTConfig(far, size=10)).to(DEVICE).gpu_query_encoder() is None
