"""A store made in parts, each by a task: what `glassrank encode` does, on as many machines.

A task writes the part of one segment, and goes on where one before it was stopped. A part counts
when who gave the tasks has named it in the store's manifest, once, whoever has written it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from glassrank.errors import BusyError, CorruptError
from glassrank.models.checkpoint import SavedModel, load_served
from glassrank.retrieve import Index
from glassrank.retrieve.manifest import open_index
from glassrank.retrieve.segment import Segment, SegmentRecord
from glassrank.scale.building import Tasks, in_turn
from glassrank.store import Progress, Report, store_folder
from glassrank.store.doc_encoder import DocEncoder
from glassrank.store.encode import DEFAULT_DTYPE, Counts, EncodedPart, Tally, encode_part
from glassrank.store.manifest import Layout, PartRecord, open_store
from glassrank.store.part import OldRows, Part
from glassrank.store.writer import changing_store

_WAIT_SECONDS = 60.0


class Encoding(NamedTuple):
    """How documents are encoded; a model is loaded where that is done."""

    model: str
    dtype: str = DEFAULT_DTYPE
    device: str = "cpu"
    reuse: str = "s2"
    leave_out: str = ""


def encode_shards(
    index: Index,
    saved: SavedModel,
    encoding: Encoding,
    tasks: Tasks = in_turn,
    path: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """As `store.encode_index`, a task for each segment that the store lacks."""
    layout = DocEncoder(saved, encoding.dtype, "cpu", encoding.reuse, encoding.leave_out).layout
    folder = (store_folder(index.path, layout.name) if path is None else path).absolute()
    tally = Tally(progress)
    with changing_store(folder, layout, index.snapshot) as writer:
        layout = writer.manifest.layout
        missing = writer.missing()
        tally.total = sum(map(len, missing.values()))
        old = [part for part in writer.manifest.parts if part.name not in writer.names]
        calls = [
            (index.path.absolute(), segment.record, folder, name, encoding, layout, old)
            for name, segment in missing.items()
        ]
        segments = list(missing.values())
        for number, (part, counts) in tasks(encode_segment, calls):
            writer.add(segments[number], part.passages, part.rows, part.files)
            tally.add(counts)
        writer.tidy()
        return tally.report(folder, writer.manifest)


def encode_segment(
    index: Path,
    record: SegmentRecord,
    store: Path,
    name: str,
    encoding: Encoding,
    layout: Layout,
    old: Sequence[PartRecord],
) -> tuple[EncodedPart, Counts]:
    """One segment's documents; what parts of segments that are gone have of them is copied."""
    encoder = _encoder(encoding)
    encoder.layout = layout
    tally = Tally(None)
    with open_index(index) as parent:
        segment = Segment(parent, record, verify=False, seen=())
    with open_store(store) as folder, ExitStack() as stack:
        for _ in _until(_WAIT_SECONDS):
            with suppress(BusyError):  # of somebody who is taken for dead, and soon is
                stack.enter_context(folder.lock(name))
                break
        else:
            stack.enter_context(folder.lock(name))
        parts = []
        for known in old:
            with suppress(CorruptError):
                parts.append(Part(folder, known, layout, verify=True))
        part = encode_part(folder, name, segment, encoder, OldRows(parts), tally)
    return part, tally.counts


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.2)


@lru_cache(maxsize=1)
def _encoder(encoding: Encoding) -> DocEncoder:
    model, dtype, device, *further = encoding
    return DocEncoder(load_served(model, device), dtype, device, *further)
