"""Writes golden_scores.json: what each model gives for fixed weights and words.

    python tests/models/make_golden_scores.py

Run it only when a model is meant to change, after `python -m tests.parity` has passed: that is what
says the scores are right, these only say that they stay so.
"""

import json
from pathlib import Path

import torch
from model_cases import SMALL, SMALL_PIECES, score, small_model

from glassrank.models import Ranker, TokenBatch, TokenEmbeddings

GOLDEN = Path(__file__).with_name("golden_scores.json")
# Windows have an exponential that large weights would send away, DUET a final ReLU that negative
# ones would silence, TKL a root that must not be near zero. A norm is near 1, as a trained one:
# else a transformer forgets what it read.
SIZE = {"tk_windowed": 0.05}
LIFT = {"duet": 0.2, "tkl.saturation.bias": 20.0}


def waves(*shape: int, phase: float = 0.0) -> torch.Tensor:
    """Numbers that are the same on every machine and with every version of torch."""
    count = int(torch.tensor(shape).prod())
    return torch.sin(torch.arange(count) * 0.7317 + phase).view(shape)


def golden_model(name: str) -> Ranker:
    model = small_model(name)
    with torch.no_grad():
        for number, (part, parameter) in enumerate(sorted(model.named_parameters())):
            wave = waves(*parameter.shape, phase=number + 1.0)
            lift = (
                1.0
                if part.endswith("norm.weight")
                else LIFT.get(f"{name}.{part}", LIFT.get(name, 0.0))
            )
            parameter.copy_(SIZE.get(name, 0.4) * wave + lift)
    return model


def golden_words(lengths: list[int], width: int, phase: float) -> TokenEmbeddings:
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).float()
    vectors = waves(len(lengths), width, 12, phase=phase) * mask[..., None]
    return TokenEmbeddings(vectors, mask, (1 + waves(len(lengths), width, phase=phase)) * mask)


def golden_pieces(lengths: list[int], width: int, step: int) -> TokenBatch:
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    ids = 3 + torch.arange(len(lengths) * width).view(-1, width) * step % 37
    return TokenBatch(ids * mask, mask.float())


def golden_scores(name: str) -> list[float]:
    if name in SMALL_PIECES:
        model = golden_model(name)
        with torch.no_grad():
            found = model(golden_pieces([3, 2, 5], 5, 7), golden_pieces([9, 4, 2], 9, 11))
        return [round(value, 6) for value in found.tolist()]
    query = golden_words([3, 1, 5], 5, phase=0.3)
    doc = golden_words([9, 4, 1], 9, phase=1.9)
    return [round(value, 6) for value in score(golden_model(name), query, doc).tolist()]


if __name__ == "__main__":
    found = {name: golden_scores(name) for name in sorted(SMALL | SMALL_PIECES)}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
