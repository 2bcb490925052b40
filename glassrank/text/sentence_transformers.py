"""A sentence transformer from a folder, of which nothing is run.

Such a folder names the classes that it is made of, and may bring Python files and pickles along.
The package refuses to import those since version 6; here the folder is looked through before the
package sees it, whatever its version is, and what is not known to be harmless is refused.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.files import read_whole
from glassrank.folders import is_plain
from glassrank.text.word_vectors import extra

_MODULES = ("Transformer", "Pooling", "Normalize", "LayerNorm")
_RUNS_CODE = {"auto_map", "trust_remote_code", "custom_pipelines", "custom_generate"}
_LARGEST = 1 << 20
_LONG = ("tokenizer.json", "vocab.json")
"""Words, of which nothing is run, however many there are."""


def load_sentence_transformer(folder: str | Path) -> Any:
    """Nothing is fetched, nothing is unpickled."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; expected one with a sentence-transformer")
    package = extra("sentence_transformers")
    check_folder(folder)
    try:
        return package.SentenceTransformer(
            str(folder),
            device=None,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # whatever is wrong with a folder shows in the package's own ways
        raise InputError(
            f"{folder} could not be loaded as a sentence-transformer: {type(error).__name__}: "
            f"{' '.join(str(error).split())}"
        ) from None


def check_folder(folder: Path) -> None:
    """Refuses what would have code run, or another folder read."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} has no config.json; expected a sentence-transformer's folder")
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} is an adapter to another model; merge the two first")
    places = [folder]
    if (folder / "modules.json").exists():
        modules = _json(folder / "modules.json")
        if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
            raise InputError(f"{folder / 'modules.json'} is not a list of modules")
        places += [_module_folder(folder, module) for module in modules]
    for path in sorted({path for place in places for path in place.glob("*.json")}):
        if path.name in _LONG:
            continue
        for name in _names(_json(path)):
            if name in _RUNS_CODE:
                raise InputError(f"{path} wants code to be run ({name}), which is never done")


def _module_folder(folder: Path, module: dict[str, Any]) -> Path:
    kind, path = module.get("type"), module.get("path")
    package, _, name = str(kind).rpartition(".")
    ours = package == "sentence_transformers" or package.startswith("sentence_transformers.")
    if not ours or name not in _MODULES:
        raise InputError(
            f"{folder / 'modules.json'} names the class {kind!r}; "
            f"known are sentence-transformers' own {', '.join(_MODULES)}"
        )
    if not isinstance(path, str) or not (path == "" or is_plain(path)):  # "" is the folder itself
        raise InputError(f"{folder / 'modules.json'} leads out of its folder: {path!r}")
    return folder / path


def _json(path: Path) -> Any:
    try:
        return json.loads(read_whole(path, _LARGEST))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None


def _names(value: Any) -> Iterator[str]:
    """All keys, at any depth."""
    below = [value]
    while below:
        value = below.pop()
        if isinstance(value, dict):
            yield from value
            below += value.values()
        elif isinstance(value, list):
            below += value
