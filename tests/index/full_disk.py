"""Changes an index while no file may grow beyond a limit. Run by test_full_disk.py."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from changing_index import some_docs
from index_files import contents, leftovers

from glassrank.errors import GlassrankError
from glassrank.index import Index

sys.path.append(str(Path(__file__).parents[1]))
from killed import limited

FIRST = some_docs(1, [f"a{i}" for i in range(30)])
MORE = some_docs(2, [f"b{i}" for i in range(30)])
CHANGES: dict[str, Callable[[Path], object]] = {
    "add": lambda folder: Index(folder).add(MORE),
    "replace": lambda folder: Index(folder).add(some_docs(3, ["a1", "a2", "c"]), replace=True),
    "delete": lambda folder: Index(folder).delete([f"a{i}" for i in range(0, 30, 3)]),
    "merge": lambda folder: Index(folder).merge(),
    "overwrite": lambda folder: Index.build(MORE, folder, overwrite=True),
    "build": lambda folder: Index.build(MORE, folder.with_name("new")),
}


def refused(change: Callable[[Path], object], folder: Path, limit: int) -> bool:
    before = contents(folder)
    try:
        with limited(limit):
            change(folder)
    except GlassrankError as error:
        message = str(error)
        assert "cannot write the index" in message, message
        assert "File too large" in message, message
        assert "\n" not in message, message
        assert contents(folder) == before
        assert not leftovers(folder), leftovers(folder)
        assert not folder.with_name("new").exists()
        Index(folder, verify=True)
        return True
    return False


def main(folder: Path) -> None:
    Index.build(FIRST, folder)
    Index(folder).add(some_docs(4, ["x", "y"]))
    Index(folder).delete(["a7"])
    for name, change in CHANGES.items():
        # Once with room, so that compiled code need not be saved while there is none.
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        change(copy)
        shutil.rmtree(copy)
        shutil.rmtree(copy.with_name("new"), ignore_errors=True)
        limit = 0
        while refused(change, folder, limit):
            limit += 700
        print(name, limit)
        shutil.rmtree(folder.with_name("new"), ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
