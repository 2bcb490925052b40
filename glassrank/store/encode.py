"""Encodes the documents of an index into a store, and follows the index when it changes.

Documents are encoded in blocks, in the index's order. A block is made durable before the next one
begins, and does not depend on what came before it: work that was killed goes on at the last block,
and the finished store has the same bytes as if nothing had happened.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import consecutive
from glassrank.models.checkpoint import SavedModel
from glassrank.retrieve import Index
from glassrank.retrieve.segment import Segment
from glassrank.store.doc_encoder import DocEncoder
from glassrank.store.manifest import Layout, store_folder
from glassrank.store.part import content_of, text_of
from glassrank.store.part_writer import PartWriter
from glassrank.store.progress import Progress, Report, Tally
from glassrank.store.reuse import OldRows, Piece
from glassrank.store.rows import Rows, row_bytes
from glassrank.store.writer import changing_store

BLOCK_DOCS = 2048
"""Documents in a block, if their rows do not take more than this:"""
BLOCK_BYTES = 256 << 20


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
        pieces = list(old.find(contents))
        for piece in pieces:
            tally.reused(len(piece.docs), piece.bytes)
        there = np.concatenate([np.empty(0, np.int64), *(piece.docs for piece in pieces)])
        for piece in encoder.encode(texts, np.setdiff1d(np.arange(len(texts)), there)):
            pieces.append(piece)
            tally.encoded(len(piece.docs), piece.bytes, piece.cut)
        part.append(contents, *_joined(pieces, len(texts)))


def _block_docs(layout: Layout) -> int:
    """The same for the whole store, so that blocks are, wherever the work was interrupted."""
    return max(1, min(BLOCK_DOCS, BLOCK_BYTES // (layout.doc_length * row_bytes(layout))))


def _joined(pieces: Sequence[Piece], docs: int) -> tuple[NDArray[np.int64], Rows]:
    """How many rows each document of a block has, and all of them in the documents' order."""
    lengths = np.zeros(docs, np.int64)
    for piece in pieces:
        lengths[piece.docs] = piece.lengths
    ends = np.cumsum(lengths)
    joined = {
        name: np.empty((ends[-1], *array.shape[1:]), array.dtype)
        for name, array in pieces[0].rows.items()
    }
    for piece in pieces:
        places = consecutive((ends - lengths)[piece.docs], piece.lengths)
        for name, array in piece.rows.items():
            joined[name][places] = array
    return lengths, joined
