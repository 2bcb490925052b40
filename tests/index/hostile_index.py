"""An index as a stranger would send it: what it says is wrong, and every checksum is right."""

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from glassrank.errors import GlassrankError
from glassrank.index import Index
from glassrank.storage.checksummed_json import _serialize
from glassrank.types import Doc

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
METHODS = ["bm25", "ql", "bm25+rm3", "ql(mu=1)+rm3(terms=3)"]


def build(path: Path) -> None:
    """One segment with deleted documents and fields, which a second one stands beside."""
    texts = [" ".join(WORDS[i % 7 : i % 7 + 1 + i % 5] * (1 + i % 3)) for i in range(40)]
    index = Index.build([Doc(f"d{i:02}", t, "a title") for i, t in enumerate(texts)], path)
    index.delete(["d03", "d17", "d18"])
    index.add([Doc("e1", "ant bee"), Doc("e2", "yak")])
    assert len(index.snapshot.segments) == 2


def change_manifest(path: Path, change: Callable[[Any], Any]) -> None:
    body = json.loads((path / "manifest.json").read_text())["index"]
    changed = change(body)
    body = body if changed is None else changed
    (path / "manifest.json").write_bytes(_serialize(body, "index"))


def segment(path: Path) -> Path:
    return min(path.glob("segment-*"))


def change_array(path: Path, name: str, change: Callable[[Any], Any]) -> Path:
    """Writes another array into a file of the first segment, and its size and checksum."""
    (file,) = segment(path).glob(name)
    array = np.load(file)
    changed = change(array)
    np.save(file, array if changed is None else changed)
    content = file.read_bytes()
    crc32 = zlib.crc32(content[:128], zlib.crc32(content[128:]))

    def record(body: Any) -> None:
        (own,) = (one for one in body["segments"] if one["name"] == file.parent.name)
        own["files"][file.name] = [len(content), crc32]

    change_manifest(path, record)
    return file


def use(path: Path, *, verify: bool = True) -> None:
    """Everything that reads values: any error must be one for people."""
    index = Index(path, verify=verify)
    for method in METHODS:
        for query in ("ant bee cat", "hen gnu elk fox yak", "title"):
            for hit in index.search(query, 50, method):
                index.doc(hit.doc_id)
    list(index.docs())
    copy = path.with_name("used")
    shutil.copytree(path, copy)
    try:
        changed = Index(copy)
        changed.add([Doc("zzz", "ant gnu")])
        changed.delete(["d05"])
        changed.merge()
        changed.search("ant bee cat", 50, "bm25+rm3")
    finally:
        shutil.rmtree(copy)


def survives(path: Path) -> bool:
    """Whether the index could be used; anything but an error for people is raised."""
    try:
        use(path)
    except GlassrankError as error:
        assert "\n" not in str(error), error
        return False
    return True
