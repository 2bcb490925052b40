"""Builds an index in shards, and a store in parts, by tasks that run here or on a cluster.

Documents are dealt out by a hash of their ids, so that two of one id meet in one shard. A shard
becomes a small index in `my.index.building/`, whose segment the index then takes over; a part of a
store counts once its manifest names it. What was finished is not done again after a stop.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from glassrank.embeddings import Progress, Report
from glassrank.embeddings.doc_encoder import DocEncoder
from glassrank.embeddings.encode import DEFAULT_DTYPE, Counts, Tally, encode_part, finish_store
from glassrank.embeddings.manifest import Layout, PartRecord, default_store_folder, open_store
from glassrank.embeddings.part import Part, ReusableRows
from glassrank.embeddings.writer import open_store_writer
from glassrank.errors import BusyError, CorruptError, GlassrankError, InputError, wrap_os_errors
from glassrank.index import Index
from glassrank.index.index import check_target, locate_duplicates
from glassrank.index.segment import Segment, SegmentRecord, encode_fields
from glassrank.index.snapshot import Manifest, open_index
from glassrank.index.writer import open_writer
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.model_folder import SavedModel
from glassrank.storage.atomic_folders import remove_tree
from glassrank.storage.checksummed_json import read_json, write_json
from glassrank.storage.folders import Folder
from glassrank.text.languages import get_analyzer
from glassrank.types import Doc

Tasks = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Results of a function for several arguments, in any order: `starmap` here, or a cluster."""

T = TypeVar("T")
_SHARES = "shares.json"
_WAIT_SECONDS = 60.0


def build_shards(
    docs: Iterable[Doc],
    path: Path,
    count: int,
    tasks: Tasks = starmap,
    *,
    source: str,
    overwrite: bool = False,
    language: str = "en",
    finished: Callable[[int], None] = lambda shards: None,
) -> Index:
    """An index of so many segments, of documents in this language. `source` stands for them: work
    that was stopped goes on only if it is the same. `finished` hears how many shards are there."""
    if count < 1:
        raise InputError(f"an index has one shard at least, not {count}")
    analyzer = get_analyzer(language)
    check_target(path, overwrite=overwrite)
    work = path.absolute().with_name(f"{path.name}.building")
    hint = "what was finished is kept"
    with locate_duplicates(docs), wrap_os_errors(f"build the index {path}", hint):
        work.mkdir(parents=True, exist_ok=True)
        with Folder.open(work) as folder, folder.lock():
            total = _deal(docs, folder, {"source": source, "shards": count, "language": language})
            calls = [(str(work), number, language) for number in range(count) if total[number]]
            for done, _ in enumerate(tasks(build_shard, calls), 1):
                finished(done)
            with open_writer(path, create=Manifest(analyzer.name)) as writer:
                for _, number, _ in calls:
                    shard = Index(_shard(work, number), verify=False)
                    with open_index(shard.path) as made:
                        for record in shard.snapshot.records:
                            writer.adopt(made, record, shard.analyzer)
        with Folder.open(work.parent) as parent:
            remove_tree(parent, work.name)
    return Index(path, verify=False)


def build_shard(work: str, number: int, language: str) -> int:
    """How many documents it has: one that is there already, or a new one."""
    path = _shard(Path(work), number)

    def build() -> int:
        with suppress(GlassrankError):
            return len(Index(path))
        docs = Path(work, f"docs-{number}.jsonl")
        return len(Index.build(_read(docs), path, overwrite=True, language=language))

    return _when_free(build)


def _shard(work: Path, number: int) -> Path:
    return work / f"shard-{number}"


def _deal(docs: Iterable[Doc], folder: Folder, wanted: dict[str, Any]) -> list[int]:
    """How many documents each shard has; writes them down first, if that was not done."""
    count = wanted["shards"]
    with suppress(FileNotFoundError, CorruptError, KeyError, TypeError):
        shares = read_json(folder, _SHARES, "remove it")
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
    write_json(folder, _SHARES, {"wanted": wanted, "docs": totals})
    return totals


def _line(doc: Doc) -> bytes:
    fields = (doc.doc_id, doc.text, doc.title, doc.source, dict(doc.metadata))
    try:
        return json.dumps(fields).encode() + b"\n"
    except (TypeError, ValueError, RecursionError):
        encode_fields(doc)  # says what is wrong
        raise


def _read(docs: Path) -> Iterator[Doc]:
    with docs.open("rb") as lines:
        for line in lines:
            yield Doc(*json.loads(line))


class Encoding(NamedTuple):
    """How documents are encoded; a model is loaded where that is done."""

    model: str
    dtype: str = DEFAULT_DTYPE
    device: str = "cpu"
    reuse: str = "s2"
    leave_out: str = ""
    graph: bool | None = None

    def load(self, saved: SavedModel, device: str) -> DocEncoder:
        """An encoder on a device."""
        return DocEncoder(saved, self.dtype, device, self.reuse, self.leave_out, self.graph)


def encode_shards(
    index: Index,
    saved: SavedModel,
    encoding: Encoding,
    tasks: Tasks = starmap,
    path: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """As `store.encode_index`, a task for each segment that the store lacks."""
    encoder = encoding.load(saved, "cpu")
    layout = encoder.layout
    folder = (default_store_folder(index.path, layout) if path is None else path).absolute()
    tally = Tally(progress)
    with open_store_writer(folder, layout, index.snapshot) as writer:
        layout = writer.manifest.layout
        missing = writer.missing()
        tally.total = sum(map(len, missing.values()))
        old = [part for part in writer.manifest.parts if part.name not in writer.names]
        calls = [
            (index.path.absolute(), segment.record, folder, name, encoding, layout, old)
            for name, segment in missing.items()
        ]
        for part, counts in tasks(encode_segment, calls):
            writer.add(part)
            tally.add(counts)
        finish_store(writer, encoder)
        return tally.report(folder, writer.manifest)


def encode_segment(
    index: Path,
    record: SegmentRecord,
    store: Path,
    name: str,
    encoding: Encoding,
    layout: Layout,
    old: Sequence[PartRecord],
) -> tuple[PartRecord, Counts]:
    """One segment's documents; what parts of segments that are gone have of them is copied."""
    encoder = _encoder(encoding)
    encoder.layout = layout
    tally = Tally(None)
    with open_index(index) as parent:
        segment = Segment(parent, record, verify=False, checked=())
    with open_store(store) as folder, ExitStack() as stack:
        _when_free(lambda: stack.enter_context(folder.lock(name)))
        parts = []
        for known in old:
            with suppress(CorruptError):
                parts.append(Part(folder, known, layout, verify=True))
        part = encode_part(folder, name, segment, encoder, ReusableRows(parts), tally)
    return part, tally.counts


def _when_free(work: Callable[[], T]) -> T:
    """Waits for the lock of somebody who is taken for dead, and soon is."""
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return work()
        except BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@lru_cache(maxsize=1)
def _encoder(encoding: Encoding) -> DocEncoder:
    return encoding.load(load_for_inference(encoding.model, encoding.device), encoding.device)
