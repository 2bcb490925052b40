"""Encodes the documents of an index into a store, and follows the index when it changes.

Documents are encoded in blocks, in the index's order. A block is made durable before the next one
begins, and does not depend on what came before it: work that was killed goes on at the last block,
and the finished store has the same bytes as if nothing had happened.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glassrank.embeddings.doc_encoder import DocEncoder
from glassrank.embeddings.doc_vectors import write_doc_vectors
from glassrank.embeddings.graph import update_graph
from glassrank.embeddings.manifest import (
    IDS,
    Layout,
    Manifest,
    PartRecord,
    default_store_folder,
    hash_segment_texts,
)
from glassrank.embeddings.part import Located, PartWriter, ReusableRows, hash_content
from glassrank.embeddings.rows import DocPassages, EncodedPassages, Rows, row_bytes
from glassrank.embeddings.writer import StoreWriter, open_store_writer
from glassrank.index import Index
from glassrank.index.segment import Segment
from glassrank.models.io.model_folder import SavedModel
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import Ints, concat_ranges
from glassrank.types import Doc

BLOCK_DOCS = 2048
"""Documents, or passages of long ones, in a block; fewer if their rows take more than:"""
BLOCK_BYTES = 256 << 20
DEFAULT_DTYPE = "int8"  # half of what bf16 takes, with hardly a loss (docs/reference/stores.md)
_TRIED = 200  # documents that an estimate is made from
_PASSAGE_BYTES = 8 + 8 + 17  # of a document with one passage, besides its rows
_CHARACTERS_PER_WORD = 12  # a document with more characters is counted as several passages


@dataclass(frozen=True)
class Progress:
    """While it runs: `total` is how many documents were missing at the start."""

    documents: int
    total: int
    per_second: float
    bytes_per_document: float
    seconds_left: float


@dataclass(frozen=True)
class Estimate:
    """Before it starts: what will be added to a store, estimated from some documents."""

    path: Path
    dtype: str
    documents: int
    passages: int
    bytes: int


@dataclass(frozen=True)
class Report:
    """Documents, words and bytes are the whole store's; `encoded` and `reused` are this run's."""

    path: Path
    dtype: str
    documents: int
    passages: int
    words: int
    bytes: int
    bytes_per_document: float
    of_float32: float | None
    """Bytes, as a share of plain float32 vectors; None where ids are stored."""
    encoded: int
    reused: int
    cut: int  # how many encoded documents are longer than all their passages
    seconds: float
    per_second: float


class Counts(NamedTuple):
    """Documents that were encoded, copied from other parts, or finished by an interrupted run; how
    many were cut; and bytes."""

    encoded: int = 0
    reused: int = 0
    resumed: int = 0
    cut: int = 0
    bytes: int = 0


class Tally:
    """Counts finished documents, and reports progress."""

    def __init__(self, progress: Callable[[Progress], None] | None) -> None:
        self.total = 0
        self.counts = Counts()
        self._progress = progress
        self._started = time.perf_counter()

    def add(self, counts: Counts) -> None:
        """More documents are finished. Resumed ones do not count for the speed."""
        self.counts = now = Counts(*map(sum, zip(self.counts, counts, strict=True)))
        done = now.encoded + now.reused
        if self._progress is not None and done:
            pace = (time.perf_counter() - self._started) / done
            finished = now.resumed + done
            left = (self.total - finished) * pace
            self._progress(Progress(finished, self.total, 1 / pace, now.bytes / done, left))

    def report(self, path: Path, manifest: Manifest) -> Report:
        """When all is done."""
        layout, parts, size = manifest.layout, manifest.parts, manifest.bytes
        documents, words = sum(part.docs for part in parts), sum(part.rows for part in parts)
        plain = 0 if layout.dtype == IDS else 4 * layout.width * words
        seconds = time.perf_counter() - self._started
        return Report(
            path=path,
            dtype=layout.dtype,
            documents=documents,
            passages=sum(part.passages for part in parts),
            words=words,
            bytes=size,
            bytes_per_document=size / max(1, documents),
            of_float32=size / plain if plain else None,
            encoded=self.counts.encoded,
            reused=self.counts.reused,
            cut=self.counts.cut,
            seconds=seconds,
            per_second=(self.counts.encoded + self.counts.reused) / seconds,
        )


def encode_index(
    index: Index,
    saved: SavedModel,
    path: str | Path | None = None,
    dtype: str = DEFAULT_DTYPE,
    progress: Callable[[Progress], None] | None = None,
    device: str = "cpu",
    reuse: str = "s2",
    leave_out: str = "",
    begins: Callable[[Estimate], None] | None = None,
    graph: bool | None = None,
) -> Report:
    """Makes a store of every document, or brings one up to date; inside the index by default.

    `dtype` is int8, bf16, float16 or float32; a model whose words have no context stores their ids,
    whatever it says. `reuse` is what is kept of a MORES: the document module's output (s1), or each
    block's keys and values (s2), which take more room and less time. `leave_out` names words that
    are not stored. `begins` hears beforehand how much room it will take. With `graph`, documents
    are found by their vectors and neighbours too; by default, where the model is made for it.
    """
    encoder = DocEncoder(saved, dtype, device, reuse, leave_out, graph)
    folder = default_store_folder(index.path, encoder.layout) if path is None else Path(path)
    tally = Tally(progress)
    with open_store_writer(folder, encoder.layout, index.snapshot) as writer:
        missing = writer.missing()
        tally.total = sum(map(len, missing.values()))
        if begins is not None and missing:
            begins(_estimate(folder, list(missing.values()), encoder))
        old = writer.reusable_rows() if missing else ReusableRows([])
        for name, segment in missing.items():
            writer.add(encode_part(writer.folder, name, segment, encoder, old, tally))
        finish_store(writer, encoder)
        return tally.report(folder, writer.manifest)


def encode_part(
    folder: Folder,
    name: str,
    segment: Segment,
    encoder: DocEncoder,
    old: ReusableRows,
    tally: Tally,
) -> PartRecord:
    """The documents of one segment, from where a killed writer stopped."""
    with PartWriter(folder, name, encoder.layout) as part:
        tally.add(Counts(resumed=part.docs))
        while part.docs < len(segment):
            docs = _next_block(segment, part.docs, encoder.layout)
            contents = np.array([hash_content(doc) for doc in docs], np.uint64)
            part.append(contents, *_encode_block(docs, list(old.locate(contents)), encoder, tally))
        source = hash_segment_texts(segment.record)
        record = PartRecord(
            *(segment.record.name, source, part.docs, part.passages, part.rows, part.finish())
        )
    return write_doc_vectors(folder, record, encoder.layout) if encoder.graph else record


def finish_store(writer: StoreWriter, encoder: DocEncoder) -> None:
    """Once every segment has its part: lets go of old ones, and updates the neighbour graph."""
    writer.tidy()
    if not encoder.graph and writer.manifest.graph is None:
        return
    for part in writer.manifest.parts:
        if not part.has_doc_vectors:  # the store was made without a graph
            writer.add(write_doc_vectors(writer.folder, part, writer.manifest.layout))
    update_graph(writer)


def _estimate(path: Path, segments: Sequence[Segment], encoder: DocEncoder) -> Estimate:
    """From some documents, spread over all that are to be encoded."""
    total = sum(map(len, segments))
    ends = np.cumsum([len(segment) for segment in segments])
    tried = []
    for number in np.unique(np.linspace(0, total - 1, min(_TRIED, total)).astype(np.int64)):
        which = int(np.searchsorted(ends, number, side="right"))
        segment = segments[which]
        tried.append(segment.doc(int(number - ends[which] + len(segment))))
    read = encoder.read(tried)
    words = sum(encoder.rows(passage.ids) for doc in read for passage in doc.passages)
    passages = sum(len(doc.passages) for doc in read)
    size = words * row_bytes(encoder.layout) + passages * _PASSAGE_BYTES
    share = total / max(1, len(tried))
    return Estimate(path, encoder.layout.dtype, total, round(passages * share), round(size * share))


def _next_block(segment: Segment, start: int, layout: Layout) -> list[Doc]:
    """The same wherever the work was interrupted: by the documents alone."""
    left = max(1, min(BLOCK_DOCS, BLOCK_BYTES // (layout.doc_length * row_bytes(layout))))
    docs: list[Doc] = []
    for number in range(start, len(segment)):
        doc = segment.doc(number)
        characters = len(doc.text) // (_CHARACTERS_PER_WORD * layout.doc_length)
        left -= min(layout.most_passages, 1 + characters)
        if docs and left < 0:
            break
        docs.append(doc)
    return docs


def _encode_block(
    docs: Sequence[Doc], stored: Sequence[Located], encoder: DocEncoder, tally: Tally
) -> tuple[DocPassages, Ints, Rows]:
    """How documents are divided, how many rows each passage has, and the rows."""
    fresh = np.setdiff1d(np.arange(len(docs)), np.concatenate([[], *(s.which for s in stored)]))
    read = encoder.read([docs[place] for place in fresh])
    counts, cut = np.zeros(len(docs), np.int64), np.zeros(len(docs), np.uint8)
    counts[fresh] = [len(doc.passages) for doc in read]
    cut[fresh] = [doc.cut for doc in read]
    for located in stored:
        counts[located.which] = located.counts
        cut[located.which] = located.cut
    first = np.cumsum(counts) - counts
    spans = np.zeros((int(counts.sum()), 2), np.int32)
    encoded = []
    for located in stored:
        places = concat_ranges(first[located.which], located.counts)
        passages = concat_ranges(located.first, located.counts)
        spans[places] = located.part.spans[passages]
        starts, lengths = located.part.passage_rows(passages)
        encoded.append(EncodedPassages(places, lengths, located.part.rows(starts, lengths)))
        tally.add(Counts(reused=len(located.which), bytes=encoded[-1].bytes))
    places_read = concat_ranges(first[fresh], counts[fresh])
    of_doc = np.repeat(np.arange(len(docs)), counts)
    passages_read = [passage for doc in read for passage in doc.passages]
    new_spans = [(passage.start, passage.stop) for passage in passages_read]
    spans[places_read] = np.array(new_spans, np.int32).reshape(-1, 2)
    for some in encoder.encode([passage.ids for passage in passages_read]):
        places = places_read[some.places]
        encoded.append(some._replace(places=places))
        begun = of_doc[places[np.isin(places, first)]]  # a document counts with its first passage
        tally.add(Counts(encoded=len(begun), cut=int(cut[begun].sum()), bytes=some.bytes))
    return DocPassages(counts, spans, cut), *_concatenate(encoded)


def _concatenate(parts: Sequence[EncodedPassages]) -> tuple[Ints, Rows]:
    """How many rows each passage has, and all of them in the passages' order."""
    order = np.argsort(np.concatenate([part.places for part in parts]))
    lengths = np.concatenate([part.lengths for part in parts])
    places = concat_ranges((np.cumsum(lengths) - lengths)[order], lengths[order])
    joined = {
        name: np.concatenate([part.rows[name] for part in parts])[places] for name in parts[0].rows
    }
    return lengths[order], joined
