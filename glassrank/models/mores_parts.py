"""The three modules of a MORES as three folders: each machine loads what it runs.

Encoding documents needs `document`, and for Reuse-S2 `interaction` too; answering queries needs
`query` and `interaction`. A folder is a `config.json` and a `weights.safetensors`.
"""

import json
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file, save_file
from torch import nn

from glassrank.errors import InputError
from glassrank.models.mores import MORES, MORESConfig
from glassrank.models.mores_interaction import Interaction, InteractionConfig
from glassrank.nn.transformer import Encoder, EncoderConfig
from glassrank.settings import from_plain, to_plain
from glassrank.whole_folder import whole_folder

Part = TypeVar("Part", bound=nn.Module)


def save_parts(folder: Path, model: MORES) -> None:
    """`folder/document`, `folder/query` and `folder/interaction`, all there or none."""
    with whole_folder(folder) as part:
        _write(part / "config.json", {"kind": "mores", "config": to_plain(model.config)})
        save_part(part / "document", model.document)
        save_part(part / "query", _with_own_layers(model))
        save_part(part / "interaction", model.interaction)


def save_part(folder: Path, module: Encoder | Interaction) -> None:
    kind = "encoder" if isinstance(module, Encoder) else "interaction"
    with whole_folder(folder) as part:
        weights = {n: t.detach().cpu().contiguous() for n, t in module.state_dict().items()}
        save_file(weights, part / "weights.safetensors")
        _write(part / "config.json", {"kind": kind, "config": to_plain(module.config)})


def load_encoder(folder: Path) -> Encoder:
    """A document or a query module: ids and mask in, one vector for each piece out."""
    return _filled(Encoder(from_plain(EncoderConfig, _config(folder, "encoder"))), folder)


def load_interaction(folder: Path) -> Interaction:
    stored = from_plain(InteractionConfig, _config(folder, "interaction"))
    return _filled(Interaction(stored), folder)


def load_parts(folder: Path) -> MORES:
    """All three together. Tied encoders are tied again."""
    config = from_plain(MORESConfig, _config(folder, "mores"))
    model = MORES(config)
    _filled(model.document, folder / "document")
    _filled(model.interaction, folder / "interaction")
    query = load_encoder(folder / "query")
    own = model.query.state_dict().keys()  # where encoders are tied, only embeddings
    model.query.load_state_dict({n: t for n, t in query.state_dict().items() if n in own})
    return model.eval()


def _with_own_layers(model: MORES) -> Encoder:
    """A query module that can leave its document module."""
    query = Encoder(model.config.query)
    query.embeddings.load_state_dict(model.query.embeddings.state_dict())
    for own, source in zip(query.stack(), model.query_layers(), strict=True):
        own.load_state_dict(source.state_dict())
    return query


def _filled(module: Part, folder: Path) -> Part:
    module.load_state_dict(load_file(folder / "weights.safetensors"))
    return module.eval()


def _config(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise InputError(f"{folder} is no part of a MORES: it has no config.json")
    stored = json.loads(path.read_text("utf-8"))
    if stored.get("kind") != kind:
        raise InputError(f"{folder} holds a part of kind {stored.get('kind')!r}, expected {kind!r}")
    found: dict[str, Any] = stored["config"]
    return found


def _write(path: Path, plain: dict[str, Any]) -> None:
    path.write_text(json.dumps(plain, indent=2) + "\n", "utf-8")
