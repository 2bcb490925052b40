"""Model folders on the hub: fetched by the name `org/name`, and pushed. A fetched folder is not
trusted: only files with known names are downloaded, never pickles or code, and all are checked.
"""

import os
import re
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from glassrank.errors import InputError, needs_extra, sanitize, wrap_os_errors
from glassrank.models.io.model_folder import CARD, MEMBERS, MODEL_FILES
from glassrank.models.published_files import GRAPHS
from glassrank.storage.atomic_folders import MANIFEST, replace_folder
from glassrank.storage.folders import Folder

OURS = (*MODEL_FILES, MANIFEST)
"""The files of a model folder of this package; an ensemble has such folders: 0, 1, …"""
_THEIRS = (
    *("model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "modules.json", "adapter_config.json"),
    *("sentence_bert_config.json", "config_sentence_transformers.json"),
    *("[0-9]_Pooling/config.json", "[0-9]_Normalize/config.json", "artifact.metadata"),
    *GRAPHS,
)
"""The files of a BERT, a sentence transformer or a cross-encoder."""
FILES = (*OURS, *(f"{place}/{name}" for place in MEMBERS for name in OURS), *_THEIRS)
"""All files that are ever downloaded."""
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def find_or_fetch(folder: Path, name: str) -> Path:
    """A folder that exists; else, if its name has the form `org/name`, the hub's."""
    return fetch(name) if not folder.exists() and _NAME.fullmatch(name) else folder


def fetch(name: str) -> Path:
    """Downloads the newest version; without a network, the one that was downloaded last."""
    try:
        snapshot = _package().snapshot_download(name, allow_patterns=list(FILES))
    except InputError as error:
        raise InputError(f"{name} is not a folder here, and {error}") from None
    except Exception as error:  # whatever a network can do
        raise InputError(
            f"{name} is not a folder here, and the hub did not give it "
            f"({type(error).__name__}); give a folder's path, or a name that the hub has"
        ) from None
    return _copy_to_plain_files(Path(snapshot))


def _package() -> Any:
    with needs_extra("hub", "the hub"):
        import huggingface_hub
    return huggingface_hub


def _copy_to_plain_files(snapshot: Path) -> Path:
    """Copies the hub's links, which are never followed here, to plain files."""
    files = {
        path.relative_to(snapshot): path.resolve()
        for path in snapshot.rglob("*")
        if path.is_file()
        and any(fnmatchcase(path.relative_to(snapshot).as_posix(), known) for known in FILES)
    }
    folder = snapshot.parents[1] / "glassrank" / snapshot.name
    if {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == set(files):
        return folder
    with replace_folder(folder) as part:
        for name, path in files.items():
            (part / name).parent.mkdir(exist_ok=True)
            try:
                os.link(path, part / name)
            except OSError:
                shutil.copyfile(path, part / name)
    return folder


def push(folder: Path, name: str, *, private: bool = False) -> str:
    """Pushes the files of a model folder to the hub as one commit, with the card as README. Returns
    the commit's URL. The hub's package holds the login (`hf auth login`)."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name on the hub; expected org/name")
    hub = _package()
    with wrap_os_errors(f"read {folder}"), Folder.open(folder) as opened:
        sent = {path: folder / path for path in _files_of(opened)}
    if MANIFEST not in sent:
        raise InputError(f"{folder} is not a model folder of glassrank's; nothing was sent")
    if CARD in sent:
        sent["README.md"] = folder / CARD
    added = [hub.CommitOperationAdd(path, str(file)) for path, file in sent.items()]
    try:
        api = hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.create_commit(name, added, commit_message="A model of glassrank's")
    except Exception as error:
        reason = sanitize(" ".join(str(error).split()))[:300]
        raise InputError(
            f"the hub did not take {name} ({type(error).__name__}: {reason}); is the name yours, "
            "and are you logged in (hf auth login)?"
        ) from None
    return str(commit.commit_url)


def _files_of(folder: Folder) -> Iterator[str]:
    for name in folder.names():
        kind = folder.kind(name)
        if kind == "file" and name in OURS:
            yield name
        elif kind == "folder" and fnmatchcase(name, "[0-9]*"):
            with folder.child(name) as member:
                yield from (f"{name}/{inside}" for inside in _files_of(member))
