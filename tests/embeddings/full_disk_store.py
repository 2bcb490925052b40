"""Encodes while no file may grow beyond a limit. Run by test_store_writers.py."""

import shutil
import sys
from pathlib import Path

from store_changes import STARTS, contents, prepare

from glassrank.errors import GlassrankError

sys.path.append(str(Path(__file__).parents[1]))
from killed import limited


def main(folder: Path) -> None:
    saved = prepare()
    for name, kind in STARTS.items():
        case, index = kind(saved), folder / name
        case.begin(index)
        expected = case.finished(index)
        copy, limit, refused = folder / "copy", 0, True
        while refused:
            shutil.copytree(index, copy)
            try:
                with limited(limit):
                    case.work(copy)
                refused = False
            except GlassrankError as error:
                message = str(error)
                assert "cannot write the store" in message, message
                assert "File too large; what was encoded is kept" in message, message
                assert "\n" not in message, message
                case.assert_unbroken(copy)
                case.work(copy)
            assert contents(copy) == expected, limit
            shutil.rmtree(copy)
            limit += 700 + limit // 2
        print(name, limit)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
