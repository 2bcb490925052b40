"""The three modules of a MORES as three folders: each machine loads what it runs.

Encoding documents needs `document`, and for Reuse-S2 `interaction` too; answering queries needs
`query` and `interaction`. A folder is a `config.json` and a `weights.safetensors`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load
from torch import Tensor, nn

from glassrank.checked import parse_json
from glassrank.errors import InputError
from glassrank.folders import Folder
from glassrank.models.mores import MORES, MORESConfig
from glassrank.models.mores_interaction import Interaction, InteractionConfig
from glassrank.models.weights import MOST_BYTES, build, fill, header_of, write_tensors
from glassrank.nn.transformer import Encoder, EncoderConfig
from glassrank.sealed import SealedFiles, about, read_sealed, seal, sealed_files, sealed_folder
from glassrank.settings import from_plain, modest, to_plain

Config = TypeVar("Config")
Module = TypeVar("Module", bound=nn.Module)

CONFIG, WEIGHTS = "config.json", "weights.safetensors"
_SEALED = "part of a MORES"
_CONFIG_BYTES = 1 << 20


def save_parts(folder: Path, model: MORES) -> None:
    """`folder/document`, `folder/query` and `folder/interaction`, all there or none."""
    query = _with_own_layers(model)
    parts: dict[str, Encoder | Interaction] = {
        "document": model.document,
        "query": query,
        "interaction": model.interaction,
    }
    with sealed_folder(folder, _SEALED, (CONFIG, "document", "query", "interaction")) as whole:
        _write(whole, {"kind": "mores", "config": to_plain(model.config)})
        for name, module in parts.items():
            (whole / name).mkdir()
            _write_part(whole / name, module)
            with Folder.open(whole / name) as part:
                seal(part, _SEALED, [CONFIG, WEIGHTS])


def save_part(folder: Path, module: Encoder | Interaction) -> None:
    with sealed_folder(folder, _SEALED, (CONFIG, WEIGHTS)) as part:
        _write_part(part, module)


def load_encoder(folder: Path) -> Encoder:
    """A document or a query module: ids and mask in, one vector for each piece out."""

    def read(files: SealedFiles) -> Encoder:
        config, tensors = _config(files, "encoder", EncoderConfig), _tensors(files)
        return _filled(files, lambda: Encoder(config), tensors)

    return read_sealed(folder, _SEALED, read, _REMEDY)


def load_interaction(folder: Path) -> Interaction:
    def read(files: SealedFiles) -> Interaction:
        config, tensors = _config(files, "interaction", InteractionConfig), _tensors(files)
        return _filled(files, lambda: Interaction(config), tensors)

    return read_sealed(folder, _SEALED, read, _REMEDY)


def load_parts(folder: Path) -> MORES:
    """All three together. Tied encoders are tied again."""

    def read(files: SealedFiles) -> MORES:
        config = _config(files, "mores", MORESConfig)
        tensors: dict[str, Tensor] = {}
        kinds = {"document": "encoder", "query": "encoder", "interaction": "interaction"}
        for name, kind in kinds.items():
            with files.folder.child(name) as part:
                inside = sealed_files(part, _SEALED, _REMEDY)
                _stored(inside, kind)
                own = _tensors(inside)
            tensors |= {f"{name}.{key}": tensor for key, tensor in own.items()}
        if config.tie_encoders:  # the layers are the document's
            tensors = {n: t for n, t in tensors.items() if not n.startswith("query.layers.")}
        return _filled(files, lambda: MORES(config), tensors)

    return read_sealed(folder, _SEALED, read, _REMEDY)


_REMEDY = "save the parts again with save_parts"


def _with_own_layers(model: MORES) -> Encoder:
    """A query module that can leave its document module."""
    query = Encoder(model.config.query)
    query.embeddings.load_state_dict(model.query.embeddings.state_dict())
    for own, source in zip(query.stack(), model.query_layers(), strict=True):
        own.load_state_dict(source.state_dict())
    return query


def _filled(files: SealedFiles, make: Callable[[], Module], tensors: dict[str, Tensor]) -> Module:
    with about(files.path, "it does not hold a module that can be used"):
        module = build(make, header_of(tensors))
        fill(module, tensors)
        return module.eval()


def _tensors(files: SealedFiles) -> dict[str, Tensor]:
    with about(files.path, f"{WEIGHTS} is damaged"):
        return load(files.read(WEIGHTS, MOST_BYTES))


def _config(files: SealedFiles, kind: str, config: type[Config]) -> Config:
    with about(files.path, f"{CONFIG} is not what a part of a MORES has"):
        return modest(from_plain(config, _stored(files, kind), "config"), "config")


def _stored(files: SealedFiles, kind: str) -> dict[str, Any]:
    with about(files.path, f"{CONFIG} is not what a part of a MORES has"):
        stored: dict[str, Any] = parse_json(files.read(CONFIG, _CONFIG_BYTES))
        if stored["kind"] != kind:
            found = str(stored["kind"])[:40]
            raise InputError(f"it holds a part of kind {found!r}, expected {kind!r}")
        config: dict[str, Any] = stored["config"]
        return config


def _write_part(folder: Path, module: Encoder | Interaction) -> None:
    kind = "encoder" if isinstance(module, Encoder) else "interaction"
    weights = {n: t.detach().cpu().contiguous() for n, t in module.state_dict().items()}
    write_tensors(weights, folder / WEIGHTS)
    _write(folder, {"kind": kind, "config": to_plain(module.config)})


def _write(folder: Path, plain: dict[str, Any]) -> None:
    (folder / CONFIG).write_text(json.dumps(plain, indent=2) + "\n", "utf-8")
