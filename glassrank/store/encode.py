"""Encodes the documents of an index into a store, and follows the index when it changes.

Documents are encoded in blocks, in the index's order. A block is made durable before the next one
begins, and does not depend on what came before it: work that was killed goes on at the last block,
and the finished store has the same bytes as if nothing had happened.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import consecutive
from glassrank.models.checkpoint import SavedModel
from glassrank.retrieve import Index
from glassrank.retrieve.segment import Segment
from glassrank.store.doc_encoder import DocEncoder
from glassrank.store.manifest import IDS, Layout, Manifest, store_folder
from glassrank.store.part import OldRows, PartWriter, content_of, text_of
from glassrank.store.rows import EncodedDocs, Rows, row_bytes
from glassrank.store.writer import changing_store

BLOCK_DOCS = 2048
"""Documents in a block, if their rows do not take more than this:"""
BLOCK_BYTES = 256 << 20


@dataclass(frozen=True)
class Progress:
    """In the middle of the work: `total` is what the store lacked when the work began."""

    documents: int
    total: int
    per_second: float
    bytes_per_document: float
    seconds_left: float


@dataclass(frozen=True)
class Report:
    """Documents, words and bytes are the whole store's; `encoded` and `reused` are this run's."""

    path: Path
    dtype: str
    documents: int
    words: int
    bytes: int
    bytes_per_document: float
    of_float32: float | None
    """Bytes, as a share of what plain float32 vectors take; none where ids are stored."""
    encoded: int
    reused: int
    cut: int
    """Of those encoded, how many are longer than what the model reads of them."""
    seconds: float
    per_second: float


class Tally:
    """Counts documents as they are done, and tells whoever wants to know."""

    def __init__(self, tell: Callable[[Progress], None] | None) -> None:
        self.total = 0
        self._tell = tell
        self._started = time.perf_counter()
        self._encoded = self._reused = self._resumed = self._cut = self._bytes = 0

    def resumed(self, docs: int) -> None:
        """Done by a run that was interrupted: they count, but not as this one's speed."""
        self._resumed += docs

    def reused(self, docs: int, size: int) -> None:
        """Taken over from another segment."""
        self._reused += docs
        self._add(size)

    def encoded(self, docs: int, size: int, cut: int) -> None:
        """Encoded in this run."""
        self._encoded += docs
        self._cut += cut
        self._add(size)

    def _add(self, size: int) -> None:
        self._bytes += size
        done = self._encoded + self._reused
        if self._tell is not None and done:
            pace = (time.perf_counter() - self._started) / done
            left = self.total - self._resumed - done
            self._tell(
                Progress(
                    self._resumed + done, self.total, 1 / pace, self._bytes / done, left * pace
                )
            )

    def report(self, path: Path, manifest: Manifest) -> Report:
        """When all is done."""
        layout, parts = manifest.layout, manifest.parts
        documents, words = sum(part.docs for part in parts), sum(part.rows for part in parts)
        size = sum(part.bytes for part in parts)
        plain = 0 if layout.dtype == IDS else 4 * layout.width * words
        seconds = time.perf_counter() - self._started
        return Report(
            path=path,
            dtype=layout.dtype,
            documents=documents,
            words=words,
            bytes=size,
            bytes_per_document=size / max(1, documents),
            of_float32=size / plain if plain else None,
            encoded=self._encoded,
            reused=self._reused,
            cut=self._cut,
            seconds=seconds,
            per_second=(self._encoded + self._reused) / seconds,
        )


def encode_index(
    index: Index,
    saved: SavedModel,
    path: str | Path | None = None,
    dtype: str = "bf16",
    progress: Callable[[Progress], None] | None = None,
    device: str = "cpu",
    reuse: str = "s2",
) -> Report:
    """Makes a store of every document, or brings one up to date.

    `dtype` is bf16, int8, float16 or float32; a model whose words have no context stores their ids,
    whatever it says. `reuse` is what is kept of a MORES: the document module's output (s1), or each
    block's keys and values (s2), which take more room and less time; other models have no choice.
    The store stands inside the index unless `path` says otherwise.
    """
    encoder = DocEncoder(saved, dtype, device, reuse)
    folder = store_folder(index.path, encoder.layout.name) if path is None else Path(path)
    tally = Tally(progress)
    with changing_store(folder, encoder.layout, index.snapshot) as writer:
        layout = encoder.layout = writer.manifest.layout
        missing = writer.missing()
        tally.total = sum(map(len, missing.values()))
        old = writer.old_rows() if missing else OldRows([])
        for name, segment in missing.items():
            with PartWriter(writer.folder, name, layout) as part:
                tally.resumed(part.docs)
                _encode_segment(segment, encoder, old, part, tally)
                writer.add(segment, part.rows, part.finish())
        writer.tidy()
        return tally.report(folder, writer.manifest)


def _encode_segment(
    segment: Segment, encoder: DocEncoder, old: OldRows, part: PartWriter, tally: Tally
) -> None:
    size = _block_docs(encoder.layout)
    for start in range(part.docs, len(segment), size):
        texts = [text_of(segment.doc(n)) for n in range(start, min(start + size, len(segment)))]
        contents = np.array([content_of(text) for text in texts], np.uint64)
        parts = list(old.find(contents))
        for docs in parts:
            tally.reused(len(docs.docs), docs.bytes)
        there = np.concatenate([np.empty(0, np.int64), *(docs.docs for docs in parts)])
        for docs in encoder.encode(texts, np.setdiff1d(np.arange(len(texts)), there)):
            parts.append(docs)
            tally.encoded(len(docs.docs), docs.bytes, docs.cut)
        part.append(contents, *_joined(parts, len(texts)))


def _block_docs(layout: Layout) -> int:
    """The same for the whole store, so that blocks are, wherever the work was interrupted."""
    return max(1, min(BLOCK_DOCS, BLOCK_BYTES // (layout.doc_length * row_bytes(layout))))


def _joined(parts: Sequence[EncodedDocs], docs: int) -> tuple[NDArray[np.int64], Rows]:
    """How many rows each document of a block has, and all of them in the documents' order."""
    lengths = np.zeros(docs, np.int64)
    for part in parts:
        lengths[part.docs] = part.lengths
    ends = np.cumsum(lengths)
    joined = {
        name: np.empty((ends[-1], *array.shape[1:]), array.dtype)
        for name, array in parts[0].rows.items()
    }
    for part in parts:
        places = consecutive((ends - lengths)[part.docs], part.lengths)
        for name, array in part.rows.items():
            joined[name][places] = array
    return lengths, joined
