"""An index made in shards, each by a task; one rename makes it an index.

Documents are read once and dealt out by a hash of their ids, so that two of one id meet in one
shard. A shard becomes a small index beside the one that is wanted, which then takes its segment
over. Whatever was finished when the work was stopped is not done again.

    my.index.building/      shares.json: which documents these are; docs-N.jsonl, shard-N/
    my.index/               an index as any other, with a segment for each shard
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from glassrank.checked import read_checked, write_checked
from glassrank.errors import BusyError, CorruptError, GlassrankError, InputError, explained
from glassrank.folders import Folder
from glassrank.retrieve import Index
from glassrank.retrieve.index import check_target, located
from glassrank.retrieve.manifest import Manifest, open_index
from glassrank.retrieve.segment import encode_fields
from glassrank.retrieve.writer import changing
from glassrank.text import EnglishAnalyzer
from glassrank.types import Doc
from glassrank.whole_folder import remove_tree

Tasks = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterable[tuple[int, Any]]]
"""Runs a function for each of several arguments: here, or on a cluster."""

_SHARES = "shares.json"
_WAIT_SECONDS = 60.0


def in_turn(
    task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Tasks in this process: the plain form of a cluster's."""
    for number, call in enumerate(calls):
        yield number, task(*call)


def build_shards(
    docs: Iterable[Doc],
    path: Path,
    count: int,
    tasks: Tasks = in_turn,
    *,
    source: str,
    overwrite: bool = False,
    finished: Callable[[int], None] = lambda shards: None,
) -> Index:
    """An index of so many segments. `source` stands for the documents: work that was stopped goes
    on only if it is the same. `finished` hears how many shards are there."""
    if count < 1:
        raise InputError(f"an index has one shard at least, not {count}")
    check_target(path, overwrite=overwrite)
    work = path.absolute().with_name(f"{path.name}.building")
    hint = "what was finished is kept, so make room and run the same command again"
    with located(docs), explained(f"build the index {path}", hint):
        work.mkdir(parents=True, exist_ok=True)
        with Folder.open(work) as folder, folder.lock():
            total = _deal(docs, folder, count, source)
            calls = [(str(work), number) for number in range(count) if total[number]]
            for done, _ in enumerate(tasks(build_shard, calls), 1):
                finished(done)
            with changing(path, create=Manifest(EnglishAnalyzer.name)) as writer:
                for _, number in calls:
                    shard = Index(_shard(work, number), verify=False)
                    with open_index(shard.path) as made:
                        for record in shard.snapshot.records:
                            writer.adopt(made, record)
        with Folder.open(work.parent) as parent:
            remove_tree(parent, work.name)
    return Index(path, verify=False)


def build_shard(work: str, number: int) -> int:
    """How many documents it has: one that is there already, or a new one."""
    path = _shard(Path(work), number)
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        with suppress(GlassrankError):
            return len(Index(path))
        try:
            return len(Index.build(_Share(Path(work), number), path, overwrite=True))
        except BusyError:  # of somebody who is taken for dead, and soon is
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _shard(work: Path, number: int) -> Path:
    return work / f"shard-{number}"


def _deal(docs: Iterable[Doc], folder: Folder, count: int, source: str) -> list[int]:
    """How many documents each shard is to have; they are written down first, unless that was
    done."""
    wanted = {"source": source, "shards": count}
    with suppress(FileNotFoundError, CorruptError, KeyError, TypeError):
        shares = read_checked(folder, _SHARES, "remove it")
        if shares["wanted"] == wanted:
            return [int(docs) for docs in shares["docs"]]
    for name in folder.names():
        if name.startswith(("docs-", "shard-", _SHARES)):
            remove_tree(folder, name)
    totals = [0] * count
    with ExitStack() as stack:
        files = [
            stack.enter_context(folder.create(f"docs-{number}.jsonl")) for number in range(count)
        ]
        for doc in docs:
            number = crc32(doc.doc_id.encode("utf-8", "replace")) % count
            files[number].write(_line(doc))
            totals[number] += 1
        for file in files:
            file.flush()
            os.fsync(file.fileno())
    if not any(totals):
        raise InputError("there are no documents to index; check the input")
    write_checked(folder, _SHARES, {"wanted": wanted, "docs": totals})
    return totals


def _line(doc: Doc) -> bytes:
    fields = (doc.doc_id, doc.text, doc.title, doc.source, dict(doc.metadata))
    try:
        return json.dumps(fields).encode() + b"\n"
    except (TypeError, ValueError, RecursionError):
        encode_fields(doc)  # says what is wrong
        raise


class _Share:
    """One shard's documents, as they were dealt out."""

    def __init__(self, work: Path, number: int) -> None:
        self._path = work / f"docs-{number}.jsonl"

    def __iter__(self) -> Iterator[Doc]:
        with self._path.open("rb") as lines:
            for line in lines:
                yield Doc(*json.loads(line))
