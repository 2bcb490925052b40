"""What lies in an index's folder."""

from pathlib import Path

from glassrank.index.snapshot import read_manifest


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(folder: Path) -> set[str]:
    """What the manifest does not name."""
    named = {"manifest.json", "write.lock"}
    for segment in read_manifest(folder).segments:
        named |= {segment.name, *(f"{segment.name}/{name}" for name in segment.files)}
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - named
