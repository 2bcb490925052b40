"""An open store: finds the rows of candidates, and reads them as embeddings."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from glassrank.embeddings.doc_encoder import get_embedding_axes, reusing
from glassrank.embeddings.doc_vectors import nearest
from glassrank.embeddings.graph import open_graph
from glassrank.embeddings.manifest import (
    DTYPES,
    IDS,
    GraphRecord,
    Layout,
    Manifest,
    encode_command,
    list_stores,
    load_store_manifest,
    open_existing_store,
    part_name,
    read_manifest,
)
from glassrank.embeddings.part import Located, Part, ReusableRows, hash_content
from glassrank.embeddings.rows import row_bytes, to_embeddings, unpack
from glassrank.errors import CorruptError, GlassrankError, InputError, wrap_os_errors
from glassrank.index import Index
from glassrank.index.search import TopK, merge_top_k
from glassrank.index.segment import Segment
from glassrank.index.snapshot import Snapshot
from glassrank.models.io.model_folder import fingerprint
from glassrank.models.model import Model, TokenEmbeddings
from glassrank.storage.mapped_arrays import Bools, Floats, Ints, Uints


class _Docs(NamedTuple):
    """Which numbers a segment's documents have in a part; -1 for those that it has not."""

    part: Part
    numbers: Ints  # (N,)
    is_own: bool = False
    """Whether the part was made for this segment, and has its numbers."""


class Store:
    """Memory-mapped and immutable: threads and processes share it without locks."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        parts: Sequence[Part],
        graph: Uints | None,
        model: Model | None,
    ) -> None:
        self.path = path
        self.layout = manifest.layout
        self.generation = manifest.generation
        self.has_doc_vectors = bool(manifest.parts) and all(
            part.has_doc_vectors for part in manifest.parts
        )
        """Whether documents can be found by their vectors."""
        self._graph_record = manifest.graph
        self._parts = {part.record.segment: part for part in parts}
        self._by_name = {part.record.name: part for part in parts}
        self._model = model
        self._of_snapshot: WeakKeyDictionary[Snapshot, list[list[_Docs]]] = WeakKeyDictionary()
        self._graph = graph
        self._numbering: WeakKeyDictionary[Snapshot, tuple[Ints, Ints]] = WeakKeyDictionary()

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: Model | str,
        snapshot: Snapshot | None = None,
        *,
        verify: bool = True,
    ) -> "Store":
        """`model` may be its fingerprint alone, unless ids are stored: they are encoded by it. With
        a snapshot, a store that lacks any of its documents is refused. `verify` reads every byte
        once and compares checksums; without it only sizes are compared."""
        wanted = model if isinstance(model, str) else fingerprint(model)
        store = cls._open(Path(path), wanted, None if isinstance(model, str) else model, verify)
        if snapshot is not None:
            store.require(snapshot)
        return store

    @classmethod
    def _open(
        cls,
        path: Path,
        wanted: str,
        model: Model | None,
        verify: bool,
        without: Collection[str] = frozenset(),
        has_graph: bool = True,
    ) -> "Store":
        with wrap_os_errors(f"read the store {path}"):
            while True:
                with open_existing_store(path) as folder:
                    manifest = load_store_manifest(folder)
                    layout = manifest.layout
                    if layout.fingerprint != wanted:
                        raise InputError(
                            f"{path} was encoded by another model (its fingerprint is "
                            f"{layout.fingerprint}, expected {wanted}); "
                            f"run: {encode_command(path)} --name NAME"
                        )
                    try:
                        parts = [
                            Part(folder, part, layout, verify=verify)
                            for part in manifest.parts
                            if part.segment not in without
                        ]
                        graph = None
                        if has_graph and manifest.graph is not None:
                            graph = open_graph(folder, manifest.graph, verify=verify)
                        break
                    except (OSError, GlassrankError):
                        # A writer may have removed these parts meanwhile: begin again.
                        if read_manifest(path) == manifest:
                            raise
        if model is not None:
            _check_rows(path, model, layout, parts, verify=verify)
        return cls(path, manifest, parts, graph, model)

    @classmethod
    def find(
        cls,
        index: Index,
        model: Model,
        *,
        verify: bool = True,
        without: Collection[str] = frozenset(),
        graph: bool = True,
    ) -> "Store | None":
        """A model's store inside an index, or None. Of several the one that lacks fewest documents;
        of those one with all words, the first of bf16, int8, float16, float32, and S2, which ranks
        faster than S1. It comes `without` the parts of segments that somebody else reads, and
        without the graph unless `graph`: who asks shards has it."""
        wanted = fingerprint(model)
        with wrap_os_errors(f"read the stores of {index.path}"):
            layouts = {folder: read_manifest(folder).layout for folder in list_stores(index.path)}
        fitting = [folder for folder, layout in layouts.items() if layout.fingerprint == wanted]
        order = (*DTYPES, IDS)

        def preference(folder: Path) -> tuple[bool, int, bool, Path]:
            layout = layouts[folder]
            return bool(layout.left_out), order.index(layout.dtype), layout.reuse == "s1", folder

        fitting.sort(key=preference)
        stores = [cls._open(folder, wanted, model, verify, without, graph) for folder in fitting]
        return min(stores, key=lambda store: store.count_missing(index.snapshot), default=None)

    def require(self, snapshot: Snapshot) -> None:
        """Refuses a snapshot of which not every document is stored."""
        for segment in snapshot.segments:
            if not self.covers(segment):
                raise self._missing_docs_error(segment)

    @property
    def dtype(self) -> str:
        """Of its rows; `ids` where it keeps those."""
        return self.layout.dtype

    @property
    def bytes(self) -> int:
        """Of all rows, with their scales."""
        return sum(part.record.rows for part in self._parts.values()) * row_bytes(self.layout)

    def covers(self, segment: Segment) -> bool:
        """Whether every document of a segment is stored."""
        return self._part_of(segment) is not None

    def part(self, segment_name: str) -> Part:
        """The part of one segment of the index."""
        if segment_name not in self._parts:
            raise InputError(f"{self.path} has no part for {segment_name!r}")
        return self._parts[segment_name]

    def count_missing(self, snapshot: Snapshot) -> int:
        """How many documents are not stored; deleted ones do not count."""
        lacking = 0
        for segment, stored in zip(snapshot.segments, self._locate_docs(snapshot), strict=True):
            if not self.covers(segment):
                missing = segment.live.copy() if len(segment.live) else np.ones(len(segment), bool)
                for rows in stored:
                    missing &= rows.numbers < 0
                lacking += int(missing.sum())
        return lacking

    def _part_of(self, segment: Segment) -> Part | None:
        # Not by its name alone, which a segment of another index may have.
        return self._by_name.get(part_name(segment.record))

    def _locate_docs(self, snapshot: Snapshot) -> list[list["_Docs"]]:
        """For each segment, where its documents are. One without a part of its own may come
        from a merge: its documents, by their texts, are in parts of segments that are gone."""
        rows = self._of_snapshot.get(snapshot)
        if rows is None:
            parts = list(map(self._part_of, snapshot.segments))
            others = [part for part in self._by_name.values() if part not in parts]
            old = ReusableRows(others if None in parts else [])
            rows = self._of_snapshot[snapshot] = [
                [_Docs(part, np.arange(len(part)), is_own=True)]
                if part is not None
                else list(_find_reusable(segment, old) if others else ())
                for segment, part in zip(snapshot.segments, parts, strict=True)
            ]
        return rows

    def _missing_docs_error(self, segment: Segment) -> InputError:
        return InputError(
            f"{self.path} has not encoded all documents of the index (those of "
            f"{segment.record.name} are missing); run: {encode_command(self.path)}"
        )

    def locate(
        self, snapshot: Snapshot, numbers: NDArray[np.integer], *, partial: bool = False
    ) -> list[Located]:
        """Which parts documents are in, by the index's numbers. A document that is not stored is
        an error; if `partial`, it is in none of the answers."""
        located, seen = [], 0
        for position, rows in enumerate(self._locate_docs(snapshot)):
            base, end = snapshot.bases[position : position + 2]
            which = np.flatnonzero((numbers >= base) & (numbers < end))
            seen += len(which)
            if not len(which):
                continue
            docs, stored = numbers.take(which) - base, 0
            for part, all_numbers, _ in rows:
                numbers_there, here = all_numbers.take(docs), which
                if (numbers_there < 0).any():
                    there = numbers_there >= 0
                    numbers_there, here = numbers_there[there], which[there]
                if len(here):
                    located.append(Located(here, part, numbers_there))
                stored += len(here)
            if stored < len(which) and not partial:
                raise self._missing_docs_error(snapshot.segments[position])
        if seen < len(numbers):
            raise IndexError("the index has no document of one of these numbers")
        return located

    def read_doc_vectors(self, snapshot: Snapshot, docs: NDArray[np.integer]) -> Floats:
        """(n, E) of length 1, by the index's numbers; 0 for a document that is not stored."""
        vectors = np.zeros((len(docs), self.layout.width), np.float32)
        for which, part, rows in self.locate(snapshot, docs, partial=True):
            assert part.doc_vectors is not None and part.doc_scales is not None
            vectors[which] = part.doc_vectors[rows] * part.doc_scales[rows, None]
        return vectors

    @property
    def has_graph(self) -> bool:
        """Whether documents have neighbours."""
        return self._graph is not None

    def nearest(self, snapshot: Snapshot, query: Floats, k: int, live: Sequence[Bools]) -> TopK:
        """The k documents whose vectors have the largest cosines with a query's, by the index's
        numbers. Of each segment, `live` has those that may be found; empty for all."""
        tops = []
        for position, stored in enumerate(self._locate_docs(snapshot)):
            allowed = live[position]
            for part, numbers, is_own in stored:
                if is_own:
                    docs, scores = nearest(part, query, k, allowed)
                else:  # a merged segment: its documents are anywhere in the part
                    there = np.flatnonzero(numbers >= 0)
                    of_row = np.full(len(part), -1)
                    of_row[numbers[there]] = there
                    mask = (of_row >= 0) & (allowed[of_row] if len(allowed) else True)
                    rows, scores = nearest(part, query, k, mask)
                    docs = of_row[rows]
                tops.append(TopK(docs + snapshot.bases[position], scores))
        return merge_top_k(snapshot, tops, k)

    def neighbours(self, snapshot: Snapshot, docs: Ints) -> Ints:
        """(n, 16) the nearest documents of each of these, by the index's numbers; -1 for none."""
        assert self._graph is not None and self._graph_record is not None
        numbering = self._numbering.get(snapshot)
        if numbering is None:
            numbering = self._number_docs(snapshot, self._graph_record)
            self._numbering[snapshot] = numbering
        row_of_doc, doc_of_row = numbering
        rows = row_of_doc[docs]  # (n,)
        found = self._graph[np.maximum(rows, 0)]  # (n, 16)
        known = (rows >= 0)[:, None] & (found < len(self._graph))
        return np.where(known, doc_of_row[np.where(known, found, 0)], -1)

    def _number_docs(self, snapshot: Snapshot, graph: GraphRecord) -> tuple[Ints, Ints]:
        """The row of each document in the graph, and the document of each row; -1 for none."""
        bases = graph.bases
        row_of_doc, doc_of_row = np.full(snapshot.bases[-1], -1), np.full(graph.docs, -1)
        for position, segment in enumerate(snapshot.segments):
            own = part_name(segment.record)
            # What is not merged is known without its part, which may be elsewhere.
            located = [(own, np.arange(len(segment)))]
            if own not in bases:
                stored = self._locate_docs(snapshot)[position]
                located = [(part.record.name, numbers) for part, numbers, _ in stored]
            for name, numbers in located:
                if name in bases:
                    there = np.flatnonzero(numbers >= 0)
                    rows, docs = bases[name] + numbers[there], snapshot.bases[position] + there
                    row_of_doc[docs], doc_of_row[rows] = rows, docs
        return row_of_doc, doc_of_row

    def read_embeddings(
        self, part: Part, starts: Ints, lengths: Ints, dtype: Any = None
    ) -> TokenEmbeddings:
        """Passages as `encode_doc` gives them, for any model's `interact`: arrays for a model that
        is served without PyTorch, else tensors of this type, on the model's device if it has one.
        """
        rows = part.padded_rows(starts, lengths)
        width = rows[self.layout.rows_name].shape[1]
        mask = (np.arange(width) < lengths[:, None]).astype(np.float32)  # (B, L)
        if self._model is not None and self._model.device is None:
            vectors = unpack(rows, self.layout)  # (B, L, E)
            return TokenEmbeddings(vectors.reshape(*mask.shape, *self.layout.axes), mask, mask)
        return to_embeddings(rows, mask, self.layout, self._model, dtype)

    def __repr__(self) -> str:
        docs = sum(map(len, self._parts.values()))
        return f"Store({str(self.path)!r}: {docs} documents, {self.layout.description})"


def _find_reusable(segment: Segment, old: ReusableRows) -> Iterator[_Docs]:
    docs_there = (segment.doc(number) for number in range(len(segment)))
    contents = np.fromiter(map(hash_content, docs_there), np.uint64, len(segment))
    for which, part, numbers in old.locate(contents):
        docs = _Docs(part, np.full(len(segment), -1))
        docs.numbers[which] = numbers
        yield docs


def _check_rows(
    path: Path, model: Model, layout: Layout, parts: Sequence[Part], *, verify: bool
) -> None:
    """That rows are what this model writes: its fingerprint is easily copied from another store."""
    if layout.dtype == IDS:
        known = min((len(r.words.idf) for r in model.rankers() if r.words is not None), default=0)
        fits = not verify or all(part.ids.max(initial=0) < known for part in parts)
    else:
        reuses = hasattr(model, "reusing") == bool(layout.reuse)
        fits = reuses and get_embedding_axes(reusing(model, layout.reuse)) == (
            layout.axes,
            layout.idf_axes,
        )
    if not fits:
        raise CorruptError(
            f"{path} is damaged: this model does not write rows like these; remove it and run "
            "glassrank encode again"
        )
