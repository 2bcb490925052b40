"""Files of a published model's folder, as transformers and sentence-transformers write them."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from glassrank.errors import InputError
from glassrank.storage.checksummed_json import parse_json
from glassrank.storage.folders import Folder, is_plain_name

Pooling = Literal["mean", "cls"]
"""The mean of all subwords, or the first one."""
GRAPHS = (
    *("onnx/model_quantized.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"),
    *("model.onnx", "onnx/model.onnx"),
)
"""Where a folder may have its graph; the first that exists is used."""
TEXT_BYTES = 1 << 26
_MODULES = ("Transformer", "Pooling", "Normalize", "LayerNorm")
_RUNS_CODE = {"auto_map", "trust_remote_code", "custom_pipelines", "custom_generate"}
_VOCABULARIES = ("tokenizer.json", "vocab.json")  # large files that name no code


def open_file(path: Path) -> IO[bytes]:
    """A plain file, or a link to one: the hub's folders consist of links."""
    real = path.resolve()
    with Folder.open(real.parent) as folder:
        return folder.open_file(real.name)


def read_bytes(path: Path, limit: int = TEXT_BYTES) -> bytes:
    """A whole file of at most `limit` bytes."""
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{path} has more than {limit:,} bytes, which is not read")
    return content


def read_json(path: Path, kind: type = dict, *, optional: bool = False) -> Any:
    """A table, or a list; an `optional` file that is not there is an empty one."""
    if optional and not path.exists():
        return kind()
    try:
        stored = parse_json(read_bytes(path))
    except FileNotFoundError:
        raise InputError(f"{path.parent} is not a BERT's folder: {path.name} is missing") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(stored, kind):
        raise InputError(f"{path} is not a {'table' if kind is dict else kind.__name__}")
    return stored


def read_pooling(path: Path) -> Pooling | None:
    """How token vectors become one; older files have switches, newer ones a name."""
    stored = read_json(path, optional=True)
    prefix = "pooling_mode_"
    on = [name.removeprefix(prefix) for name in stored if name.startswith(prefix) and stored[name]]
    named = stored.get("pooling_mode")
    if named == "mean" or (not named and on == ["mean_tokens"]):
        return "mean"
    if named == "cls" or (not named and on == ["cls_token"]):
        return "cls"
    if named or on:
        raise InputError(f"{path} pools by {str(named or on)[:80]}; known are mean and cls")
    return None


def check_folder(folder: Path) -> None:
    """Refuses a sentence transformer's folder that would run code or read another folder, before
    any package reads it: sentence-transformers itself refuses this only since version 6."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} has no config.json; expected a sentence-transformer's folder")
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} is an adapter to another model; merge the two first")
    modules = read_json(folder / "modules.json", list, optional=True)
    places = [folder, *(_module_folder(folder, module) for module in modules)]
    for path in sorted({path for place in places for path in place.glob("*.json")}):
        stored = {} if path.name in _VOCABULARIES else read_json(path, object)
        if found := _RUNS_CODE.intersection(_iter_keys(stored)):
            raise InputError(f"{path} asks to run code ({min(found)}), which is not allowed")


def _module_folder(folder: Path, module: object) -> Path:
    fields = module if isinstance(module, dict) else {}
    kind, path = fields.get("type"), fields.get("path")
    package, _, name = str(kind).rpartition(".")
    ours = package == "sentence_transformers" or package.startswith("sentence_transformers.")
    if not ours or name not in _MODULES:
        raise InputError(
            f"{folder / 'modules.json'} names the class {kind!r}; "
            f"known are sentence-transformers' own {', '.join(_MODULES)}"
        )
    if not isinstance(path, str) or (path and not is_plain_name(path)):  # "": the folder itself
        raise InputError(f"{folder / 'modules.json'} leads out of its folder: {path!r}")
    return folder / path


def _iter_keys(value: Any) -> Iterator[str]:
    below = [value]
    while below:
        value = below.pop()
        if isinstance(value, dict):
            yield from value
            below += value.values()
        elif isinstance(value, list):
            below += value
