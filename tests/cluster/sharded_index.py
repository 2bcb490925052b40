"""Texts with many ties, as an index of one segment and as one of several."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from zlib import crc32

from glassrank.corpus import write_run
from glassrank.index import Index
from glassrank.index.writer import open_writer
from glassrank.types import Doc, Query, Run

WORDS = [f"{first}{last}" for first in "bcdfg" for last in ("an", "en", "in", "on", "un", "ar")]
QUERIES = [Query(f"q{n}", " ".join(Random(n).choices(WORDS, k=1 + n % 5))) for n in range(12)]
METHODS = ("bm25", "ql", "bm25+rm3", "ql+rm3(docs=5)", "bm25(rounded=1)")


def some_docs(count: int, seed: int = 1) -> list[Doc]:
    """Short texts of few words: many have the same score, and only their ids can tell."""
    chance = Random(seed)
    return [
        Doc(
            f"d{chance.randrange(10**9):09}-{n}",
            " ".join(chance.choices(WORDS, range(1, len(WORDS) + 1), k=chance.choice((3, 5, 9)))),
            metadata={"year": 2000 + n % 7} if n % 3 else {},
        )
        for n in range(count)
    ]


def build_in_segments(docs: Sequence[Doc], path: Path, count: int) -> Index:
    """What a cluster makes: documents go by their ids."""
    parts: list[list[Doc]] = [[] for _ in range(count)]
    for doc in docs:
        parts[crc32(doc.doc_id.encode()) % count].append(doc)
    Index.build(parts[0], path)
    for part in parts[1:]:
        with open_writer(path) as writer:
            writer.add(part)
    return Index(path)


def run_bytes(run: Run, folder: Path) -> bytes:
    """The file that a command writes."""
    write_run(run, folder / "run.txt", "test")
    return (folder / "run.txt").read_bytes()
