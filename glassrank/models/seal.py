"""Checksums for a model folder that an older version saved, or that somebody edited on purpose.

python -m glassrank.models.seal FOLDER [FOLDER ...]
"""

import sys
from collections.abc import Collection
from pathlib import Path

from glassrank.errors import GlassrankError, wrap_os_errors
from glassrank.models.io.load import load_files
from glassrank.models.io.model_folder import (
    CONFIG,
    VOCABULARY,
    WEIGHTS,
    load_config,
    resolve_folder,
)
from glassrank.storage.atomic_folders import ChecksummedFiles, write_checksums
from glassrank.storage.checksummed_json import checksum_file
from glassrank.storage.folders import Folder


def seal_model(folder: Path, trusted: Collection[str] = ()) -> None:
    """Writes the manifest, of an ensemble's members too, if the model can be used."""
    with wrap_os_errors(f"add checksums to {folder}"), Folder.open(folder) as opened:
        _seal(opened, trusted)


def _seal(folder: Folder, trusted: Collection[str]) -> None:
    names = [name for name in (CONFIG, WEIGHTS, VOCABULARY) if folder.kind(name)]
    files = ChecksummedFiles(folder, {name: checksum_file(folder, name) for name in names})
    for name in load_config(files).members:
        with folder.child(name) as member:
            _seal(member, trusted)
    load_files(files, trusted)
    write_checksums(folder, "model", names)


def main() -> None:
    """As a command."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        try:
            seal_model(*resolve_folder(name))
        except GlassrankError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_status)
        print(f"{name}: its checksums are in checksums.json")


if __name__ == "__main__":
    main()
