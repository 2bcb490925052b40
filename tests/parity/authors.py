"""Our models from the authors' weights: how their names and shapes map onto ours."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.models.model import Output, TokenEmbeddings
from glassrank.models.torch_models import Ranker
from glassrank.research.papers.knrm import KNRM, ConvKNRM, ConvKNRMConfig, KNRMConfig
from glassrank.research.papers.tk import TK, TKWindowed, TKWindowedConfig
from glassrank.settings import from_plain

Weights = dict[str, Tensor]
Description = dict[str, Any]

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "models"

# AllenNLP's names for the parts of a contextual layer.
_LAYER = (
    (r"stacked_att\.feedforward_(\d)\._linear_layers\.0\.(\w+)", r"layers.\1.feed_forward.0.\2"),
    (r"stacked_att\.feedforward_(\d)\._linear_layers\.1\.(\w+)", r"layers.\1.feed_forward.2.\2"),
    (r"stacked_att\.feedforward_layer_norm_(\d)\.gamma", r"layers.\1.feed_forward_norm.gain"),
    (r"stacked_att\.feedforward_layer_norm_(\d)\.beta", r"layers.\1.feed_forward_norm.bias"),
    (r"stacked_att\.layer_norm_(\d)\.gamma", r"layers.\1.attention_norm.gain"),
    (r"stacked_att\.layer_norm_(\d)\.beta", r"layers.\1.attention_norm.bias"),
    (r"stacked_att\.self_attention_(\d)\._combined_projection\.(\w+)",
     r"layers.\1.query_key_value.\2"),
    (r"stacked_att\.self_attention_(\d)\._output_projection\.(\w+)", r"layers.\1.output.\2"),
)  # fmt: skip


def tk_authors(family: type[Ranker], **changes: object) -> Any:
    """The settings with which TK's authors ran a family, as its config file has them."""
    text = (CONFIGS / f"{family.info.name}-tk-authors.toml").read_text("utf-8")
    settings = {**tomllib.loads(text)["config"], **changes}
    return from_plain(family.info.config_type, settings, "config")


def rename(weights: Weights, rules: tuple[tuple[str, str], ...]) -> Weights:
    """Every weight must be named by a rule: none is left out unnoticed."""
    renamed = {}
    for name, tensor in weights.items():
        new = next((re.sub(old, new, name) for old, new in rules if re.fullmatch(old, name)), None)
        assert new is not None, f"no rule for {name}"
        renamed[new] = tensor
    return renamed


def load(model: Ranker, weights: Weights) -> Ranker:
    state = model.state_dict()
    assert state.keys() == weights.keys(), state.keys() ^ weights.keys()
    model.load_state_dict(
        {name: tensor.reshape(state[name].shape) for name, tensor in weights.items()}
    )
    return model


def contextual(weights: Weights) -> tuple[ContextualConfig, Weights]:
    own = {n: t for n, t in weights.items() if n.startswith("stacked_att")}
    renamed = {f"contextual.{n}": t for n, t in rename(own, _LAYER).items()}
    renamed["contextual.mix"] = weights["mixer"]
    layers = len({re.findall(r"\d", name)[0] for name in own})
    return ContextualConfig(layers=layers), renamed


def tk(description: Description, weights: Weights) -> Ranker:
    config, renamed = contextual(weights)
    renamed |= {
        "scale": weights["nn_scaler"],
        "log_weights": weights["dense.weight"],
        "length_weights": weights["dense_mean.weight"],
        "path_weights": weights["dense_comb.weight"],
    }
    return load(TK(TKConfig(contextual=config)), renamed)


def tk_windowed(description: Description, weights: Weights) -> Ranker:
    config, renamed = contextual(weights)
    hyper = description["hyper"]
    sizes = range(len(hyper["win_size"]))
    renamed |= {
        "kernel_weights": torch.cat([weights[f"kernel_weights.{i}.weight"] for i in sizes]),
        "scales": torch.cat([weights[f"nn_scaler.{i}"] for i in sizes]),
        "size_weights": weights["window_merger.weight"],
        **{f"rank_weights.{i}": weights[f"window_scorer.{i}.weight"] for i in sizes},
    }
    model = TKWindowed(
        TKWindowedConfig(
            contextual=config,
            windows=tuple(hyper["win_size"]),
            longest_doc=hyper["max_doc_length"],
            authors_padding=True,
        )
    )
    return load(model, renamed)


def knrm(description: Description, weights: Weights) -> Ranker:
    return load(KNRM(KNRMConfig()), {"weights": weights["dense.weight"]})


def conv_knrm(description: Description, weights: Weights) -> Ranker:
    renamed = rename(
        weights,
        ((r"convolutions\.(\d)\.1\.(\w+)", r"convolutions.\1.\2"), (r"dense\.weight", "weights")),
    )
    return load(ConvKNRM(ConvKNRMConfig(mask_words=False)), renamed)


BUILDERS: dict[str, Callable[[Description, Weights], Ranker]] = {
    "tk": tk,
    "tk_windowed": tk_windowed,
    "knrm": knrm,
    "conv_knrm": conv_knrm,
}


# What the authors put out beside the score, from our parts.
OUTPUTS: dict[str, Callable[[TokenEmbeddings, TokenEmbeddings, Output], Tensor]] = {
    "score": lambda query, doc, output: output.score,
    "cosine_matrix_masked": lambda query, doc, output: output.parts["similarity"],
    "per_kernel": lambda query, doc, output: output.parts["log_signal"].sum(1),
    "per_kernel_mean": lambda query, doc, output: output.parts["length_signal"].sum(1),
}
