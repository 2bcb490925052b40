"""Trains models further with six teachers, and `tiny` from the mean vectors of `default`'s tokens.

    python configs/default/further.py FOLDER --default OURS --fast runs/default/fast/best
    python configs/default/strong_data.py FOLDER --save runs/default/tiny --name tiny \
        --first-stage-weight 0.25

FOLDER is what strong_data.py and strong.py have filled; OURS is the model folder that again.toml
makes. The teachers are those of strong.py, OURS, and what strong.py has trained. Lists keep the
root of their deviation. One H200 takes 26 minutes, if the teachers' scores are there.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from strong import (
    DEV,
    DEVICE,
    HEAD_SIZE,
    Data,
    Judged,
    Weights,
    back,
    layer_numbers,
    measure,
    mix,
    norm,
    read_all,
    read_weights,
    score_lists,
    train,
)
from torch import Tensor

from glassrank.models.io.load import load_named

TEACHERS = {"ce": 2.0, "mpnet": 3.0, "bge": 2.0, "colbert": 1.0, "default": 2.0, "strong": 2.0}
BONUS, RATE, SIZE = 0.5, 4e-5, 128
TABLE = "encoder.embeddings."
POSITIONS = (TABLE + "positions.weight", TABLE + "types.weight")


def rooted(scores: Tensor) -> Tensor:
    """Mean 0 in each row; deviations are the roots of what they were."""
    centred = scores - scores.mean(1, keepdim=True)
    deviation = centred.pow(2).mean(1, keepdim=True).sqrt() + 1e-6
    return centred / (deviation * centred.pow(2).mean().sqrt()).sqrt()


def model_weights(model: str | Path) -> Weights:
    """Of a model folder, or of a model of the package."""
    state = load_named(model).model.state_dict()
    return {n: t.float().to(DEVICE) for n, t in state.items() if n != "first_stage_weight"}


@torch.no_grad()
def width(weights: Weights, data: Data) -> float:
    """How wide scores are within a list, by how wide the target is: a model that was trained with
    another loss keeps its own."""
    pick = np.random.default_rng(3).permutation(len(data.query))[:64]
    rows = score_lists(weights, weights, data, pick, layer_numbers(weights)).scores
    target = data.target[torch.from_numpy(pick).to(DEVICE)]
    spread = [float((x - x.mean(1, keepdim=True)).pow(2).mean()) for x in (rows, target)]
    return math.sqrt(spread[0] / spread[1])


@torch.no_grad()
def without_layers(big: Weights, data: Data, whole: tuple[Tensor, Tensor]) -> Weights:
    """A token's vector is the mean of what `big` makes of it in documents; a rare one is near to
    what a linear map makes of the table of `big`."""
    ids, asked = data.docs.ids.long(), len(data.queries.ids)
    table = big[TABLE + "pieces.weight"]
    sums, counts = table.new_zeros(len(table), SIZE), table.new_zeros(len(table))
    for part in torch.split(torch.arange(len(ids), device=DEVICE), 1 << 21):
        sums.index_add_(0, ids[part], whole[0][asked + part].float())
        counts.index_add_(0, ids[part], torch.ones_like(part, dtype=sums.dtype))
    x = table + big[POSITIONS[0]][:100].mean(0) + big[POSITIONS[1]][0]
    x = norm(x, big[TABLE + "norm.weight"], big[TABLE + "norm.bias"]).double()
    seen = counts.double()[:, None]
    weighted = (x * seen / (seen + 20)).T
    ridge = 1e-2 * torch.eye(x.shape[1], device=DEVICE, dtype=x.dtype)
    mapped = x @ torch.linalg.solve(weighted @ x + ridge, weighted @ (sums / seen.clamp(min=1)))
    means = (sums + 10 * mapped) / (seen + 10)
    # A norm removes the mean over dimensions: the direction in which least lies is turned there.
    directions = torch.linalg.eigh((means.T @ means).cpu()).eigenvectors
    ones = torch.ones(SIZE, 1, dtype=torch.float64)
    random = torch.randn(SIZE, SIZE - 1, generator=torch.Generator().manual_seed(1))
    turn = (directions @ torch.linalg.qr(torch.cat([ones, random.double()], 1)).Q.T).to(DEVICE)
    weights = {
        TABLE + "pieces.weight": (means @ turn * math.sqrt(SIZE)).float(),
        POSITIONS[0]: table.new_zeros(len(big[POSITIONS[0]]), SIZE),
        POSITIONS[1]: table.new_zeros(2, SIZE),
        TABLE + "norm.weight": table.new_ones(SIZE),
        TABLE + "norm.bias": table.new_zeros(SIZE),
        "projection.weight": turn.float(),
        "log_weights": big["log_weights"],
        "length_weights": big["length_weights"],
    }
    states = norm(
        weights[TABLE + "pieces.weight"],
        *(weights[TABLE + f"norm.{n}"] for n in ("weight", "bias")),
    )
    y = torch.cat([states, states.new_ones(len(states), 1)], 1)[data.queries.ids.long()].double()
    ridge = 1e-3 * len(y) * torch.eye(SIZE + 1, device=DEVICE, dtype=y.dtype)
    wanted = torch.logit((whole[1].double() / 2).clamp(0.01, 0.99))
    linear = torch.linalg.solve(y.T @ y + ridge, y.T @ wanted).float()
    return weights | {"term_weight.weight": linear[None, :-1], "term_weight.bias": linear[-1:]}


def with_layers(weights: Weights, layers: int, heads: int, feed_forward: int) -> Weights:
    """Random layers that change little, behind a table that is there."""
    inside, generator = heads * HEAD_SIZE, torch.Generator().manual_seed(6)
    shapes = {
        "attention.query_key_value": (3 * inside, SIZE, 0.75),
        "attention.output": (SIZE, inside, 0.2),
        "feed_forward.inner": (feed_forward, SIZE, 0.75),
        "feed_forward.outer": (SIZE, feed_forward, 0.2),
    }
    found = dict(weights)
    for number in range(layers):
        for name, (rows, columns, size) in shapes.items():
            random = torch.randn(rows, columns, generator=generator) * size / math.sqrt(columns)
            found[f"encoder.layers.{number}.{name}.weight"] = random.to(DEVICE)
            found[f"encoder.layers.{number}.{name}.bias"] = torch.zeros(rows, device=DEVICE)
        for name in ("attention.norm", "feed_forward.norm"):
            found[f"encoder.layers.{number}.{name}.weight"] = torch.ones(SIZE, device=DEVICE)
            found[f"encoder.layers.{number}.{name}.bias"] = torch.zeros(SIZE, device=DEVICE)
    return found


def main() -> None:
    """One after the other; shares and means as dev queries chose them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--default", type=Path, required=True)
    parser.add_argument("--fast", type=Path, required=True)
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    default, fast = model_weights(asked.default), model_weights(asked.fast)
    strong, start = (
        read_weights(np.load(asked.folder / f"{name}.npz"))
        for name in ("trained-strong", "colbert")
    )
    models = {"default": default, "strong": strong}
    data = Data(asked.folder, TEACHERS, models=models, scaled=rooted, bonus=BONUS)
    target = data.target
    settings: dict[str, Any] = {"frozen": 0, "head_rate": 1e-3, "mean_from": 0.75}
    runs = [train(strong, data, f"strong, {n}", 5200, RATE, seed=n, **settings) for n in (21, 22)]
    found = {"strong-2": back(mix(runs[0], runs[1], 0.5), start, 0.95)}
    data.target = target * width(default, data)
    settings["head_rate"] = 5e-4
    further = train(default, data, "default", 8450, RATE, seed=31, **settings)
    found["default-2"] = mix(further, default, 0.5)
    settings = {"frozen": 0, "whole": read_all(found["default-2"], data)}
    data.target = target * width(fast, data)
    found["fast-2"] = train(
        fast,
        data,
        "fast",
        13100,
        2e-4,
        seed=51,
        head_rate=1e-3,
        table_rate=5e-5,
        vectors_weights=(2.0, 0.5),
        mean_from=0.75,
        **settings,
    )
    data.target, settings["mean_from"] = target, 0.85
    none = without_layers(found["default-2"], data, settings["whole"])
    trained = train(
        none,
        data,
        "no layers",
        14600,
        1e-3,
        seed=40,
        table_rate=5e-4,
        vectors_weights=(2.0, 2.0),
        kept=POSITIONS,
        **settings,
    )
    found["tiny"] = train(
        with_layers(mix(trained, none, 0.5), 2, 2, 256),
        data,
        "tiny",
        27100,
        1e-3,
        seed=41,
        table_rate=3e-4,
        vectors_weights=(6.0, 0.5),
        **settings,
    )
    arrays = np.load(asked.folder / "eval.npz")
    for name, weights in found.items():
        measure(weights, [Judged(arrays, part, "dev") for part in DEV], name)
        halves: dict[str, Any] = {n: t.half().cpu().numpy() for n, t in weights.items()}
        np.savez(asked.folder / f"trained-{name}.npz", **halves)


if __name__ == "__main__":
    main()
