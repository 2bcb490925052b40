"""A part: the token embeddings of one segment's documents, as plain arrays in a folder.

| array | what it holds |
|---|---|
| `vectors`, or `ids` | one row for each token, document after document |
| `scales` | int8 and int3 only: what each row, or each vector in it, is multiplied by |
| `offsets` | where each passage's rows begin, and last where they all end |
| `spans` | which characters of the document's text a passage has |
| `passages` | where each document's passages begin, and last where they all end |
| `cut` | 1 where a document is longer than its passages |
| `contents` | a hash of each document's text, by which a merged segment finds its rows again |
| `doc_vectors`, `doc_scales` | one int8 vector for each document, in stores that are searched |

It is written a block of documents at a time. After each block the arrays are made durable, and only
then does a small progress file say how far they are: a killed writer's successor cuts off whatever
is behind that, and goes on there.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.embeddings.manifest import (
    DOC_VECTORS,
    IDS,
    PASSAGE_ARRAYS,
    Layout,
    PartRecord,
    array_dtypes,
)
from glassrank.embeddings.rows import DocPassages, Rows, is_usable, row_widths
from glassrank.errors import CorruptError
from glassrank.storage.checksummed_json import FileRecord, check_integer, read_json, write_json
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import (
    ArrayWriter,
    Floats,
    Ints,
    WriteProgress,
    concat_ranges,
    is_partition,
    open_arrays,
)
from glassrank.types import Doc

PROGRESS = "progress.json"
_FILES = {f"{name}.npy" for name in (*PASSAGE_ARRAYS, "vectors", "scales", IDS, *DOC_VECTORS)}


class Part:
    """The open arrays of a part; safe to read from any number of threads and processes."""

    def __init__(self, parent: Folder, record: PartRecord, layout: Layout, *, verify: bool) -> None:
        """`verify` reads every byte, compares checksums, and looks at the numbers."""
        self.folder = parent.path / record.name
        self.record = record
        dtypes = {**array_dtypes(layout), **(DOC_VECTORS if record.has_doc_vectors else {})}
        try:
            with parent.child(record.name) as folder:
                arrays = open_arrays(folder, record.files, dtypes, verify=verify)
        except FileNotFoundError:
            raise CorruptError(
                f"{self.folder}/ is missing; restore it from a copy or encode the index again"
            ) from None
        self.contents: NDArray[np.uint64] = arrays.pop("contents")  # (N,)
        self.passages: Ints = arrays.pop("passages")  # (N + 1,)
        self.cut: NDArray[np.uint8] = arrays.pop("cut")  # (N,)
        spans = arrays.pop("spans")
        self.offsets: Ints = arrays.pop("offsets")  # (P + 1,)
        self._check("contents", len(self.contents) == record.docs)
        self._check("passages", len(self.passages) == record.docs + 1)
        self._check("passages", is_partition(self.passages, record.passages))
        self._check("passages", bool((np.diff(self.passages) > 0).all()))
        self._check("cut", len(self.cut) == record.docs)
        self._check("spans", len(spans) == 2 * record.passages)
        self.spans: NDArray[np.int32] = spans.reshape(-1, 2)  # (P, 2)
        first, last = self.spans.T
        self._check("spans", bool((first >= 0).all() and (first <= last).all()))
        self._check("offsets", len(self.offsets) == record.passages + 1)
        # Compiled code relies on it.
        self._check("offsets", is_partition(self.offsets, record.rows))
        if verify:
            for name, array in arrays.items():
                self._check(name, is_usable(array, layout.dtype))
        self.doc_vectors: NDArray[np.int8] | None = None  # (N, E)
        self.doc_scales: Floats | None = None  # (N,)
        if record.has_doc_vectors:
            flat, self.doc_scales = (arrays.pop(name) for name in DOC_VECTORS)
            self._check("doc_vectors", len(flat) == record.docs * layout.width)
            self._check("doc_scales", len(self.doc_scales) == record.docs)
            self.doc_vectors = flat.reshape(-1, layout.width)
        self._rows: Rows = {}
        for name, width in row_widths(layout).items():
            self._check(name, len(arrays[name]) == record.rows * width)
            self._rows[name] = arrays[name].reshape(-1, width)
        self.vectors: NDArray[Any] = self._rows[layout.rows_name]  # (T, S)
        self.scales: Floats | None = arrays.get("scales")
        """(T * V,): where rows are one vector each, (T,)."""

    def _check(self, name: str, true: bool) -> None:
        if not true:
            raise CorruptError(
                f"{self.folder / name}.npy is damaged: its numbers are not those of a store; "
                "remove the store and encode the index again"
            )

    @property
    def ids(self) -> NDArray[np.int32]:
        """(T,) word ids, in a store that keeps those: its rows have one value."""
        return self.vectors[:, 0]

    def __len__(self) -> int:
        """Documents."""
        return self.record.docs

    def doc_rows(self, first: int, last: int) -> tuple[Ints, Rows]:
        """Where the rows of some consecutive documents begin, and last where they end; and all of
        these rows."""
        ends = self.offsets[self.passages[first : last + 1]]
        rows = {name: array[ends[0] : ends[-1]] for name, array in self._rows.items()}
        return ends - ends[0], rows

    def rows(self, starts: Ints, lengths: Ints) -> Rows:
        """A copy of some passages' rows."""
        places = concat_ranges(starts, lengths)
        return {name: array[places] for name, array in self._rows.items()}

    def passage_rows(self, passages: Ints) -> tuple[Ints, Ints]:
        """Where passages' rows begin, and how many they are."""
        starts = self.offsets.take(passages)
        return starts, self.offsets.take(passages + 1) - starts

    def padded_rows(self, starts: Ints, lengths: Ints) -> Rows:
        """The same as (B, L, ...), zeros after the end of each passage; L is at least 1."""
        shape = len(starts), max(1, int(lengths.max(initial=0)))
        copies = {n: np.zeros((*shape, *a.shape[1:]), a.dtype) for n, a in self._rows.items()}
        for number, (start, length) in enumerate(
            zip(starts.tolist(), lengths.tolist(), strict=True)
        ):
            for name, array in self._rows.items():
                copies[name][number, :length] = array[start : start + length]
        return copies


class PartRows(NamedTuple):
    """Passages of a part, each a run of its rows."""

    part: Part
    starts: Ints
    lengths: Ints


class Located(NamedTuple):
    """Documents that a part has."""

    which: Ints  # (n,) places among what was asked for, ascending
    part: Part
    docs: Ints  # (n,) numbers in the part

    @property
    def cut(self) -> NDArray[np.uint8]:
        """1 where a document is longer than its passages."""
        return self.part.cut.take(self.docs)

    @property
    def first(self) -> Ints:
        """The number of each one's first passage."""
        return self.part.passages.take(self.docs)

    @property
    def counts(self) -> Ints:
        """How many passages each one has."""
        return self.part.passages.take(self.docs + 1) - self.first


def hash_content(doc: Doc) -> int:
    """64 bits that stand for its title and text: among ten million documents, two agree once in
    370,000 times."""
    text = f"{doc.title}\0{doc.text}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class ReusableRows:
    """What parts hold that no segment needs any more. A document is known by its text, not by its
    id: one that was replaced has other rows."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [(part, np.argsort(part.contents, kind="stable")) for part in parts]

    def locate(self, contents: NDArray[np.uint64]) -> Iterator[Located]:
        """Documents of these hashes; each at most once."""
        wanted = np.arange(len(contents))
        for part, order in self._parts:
            if not len(order):
                continue
            near = np.searchsorted(part.contents, contents[wanted], sorter=order)
            places = order[np.minimum(near, len(order) - 1)]
            there = part.contents[places] == contents[wanted]
            if there.any():
                yield Located(wanted[there], part, places[there])
                wanted = wanted[~there]


def is_part_file(name: str) -> bool:
    """Whether a part's folder may hold it."""
    return name == PROGRESS or name in _FILES


class PartWriter:
    """Used as a context: leaving it closes the files, and keeps what is there for the next."""

    def __init__(self, parent: Folder, name: str, layout: Layout) -> None:
        self._parent = parent
        self._name = name
        self._layout = layout
        self._writers: dict[str, ArrayWriter] = {}

    def __enter__(self) -> "PartWriter":
        try:
            try:
                self._open_writers(resume=True)
            except (FileNotFoundError, CorruptError):  # nothing to go on with
                self._close()
                self._parent.remove_child(self._name, is_part_file)
                self._open_writers(resume=False)
                for name in ("passages", "offsets"):
                    self._writers[name].append(np.zeros(1, np.int64))
        except BaseException:
            self._close()
            raise
        return self

    def _open_writers(self, *, resume: bool) -> None:
        self._folder = self._parent.make_child(self._name, exist_ok=True)
        dtypes = array_dtypes(self._layout)
        done = self._read_progress(dtypes) if resume else {}
        for name, (dtype,) in dtypes.items():
            self._writers[name] = ArrayWriter(self._folder, f"{name}.npy", dtype, done.get(name))

    def _read_progress(self, names: Iterable[str]) -> dict[str, WriteProgress]:
        """How far a killed writer came."""
        stored = read_json(self._folder, PROGRESS, "remove it")
        try:
            done = {
                n: WriteProgress(check_integer(stored[n][0]), check_integer(stored[n][1]))
                for n in names
            }
            rows = {done[name].rows / width for name, width in row_widths(self._layout).items()}
            docs, passages = done["contents"].rows, done["offsets"].rows - 1
            counts = [done[name].rows for name in ("passages", "cut", "spans")]
            if counts == [docs + 1, docs, 2 * passages] and len(rows) == 1:
                return done
        except (ValueError, KeyError, TypeError, IndexError):
            pass
        raise CorruptError(f"{self._folder.path / PROGRESS} is damaged; remove it")

    @property
    def docs(self) -> int:
        """How many documents are written."""
        return self._writers["contents"].rows

    @property
    def passages(self) -> int:
        """How many passages are written."""
        return self._writers["offsets"].rows - 1

    @property
    def rows(self) -> int:
        """How many rows are written."""
        name = self._layout.rows_name
        return self._writers[name].rows // row_widths(self._layout)[name]

    def append(
        self, contents: NDArray[np.uint64], passages: DocPassages, lengths: Ints, rows: Rows
    ) -> None:
        """The next documents: hashes of their texts, how they are divided, how many rows each
        passage has, and the rows."""
        self._writers["passages"].append(self.passages + np.cumsum(passages.counts))
        self._writers["offsets"].append(self.rows + np.cumsum(lengths))
        self._writers["contents"].append(contents)
        self._writers["cut"].append(passages.cut)
        self._writers["spans"].append(passages.spans.reshape(-1))
        for name, array in rows.items():
            self._writers[name].append(array.reshape(-1))
        written = {name: writer.sync() for name, writer in self._writers.items()}
        write_json(self._folder, PROGRESS, written)

    def finish(self) -> dict[str, FileRecord]:
        """Makes all durable; gives the files as the manifest names them."""
        records = {f"{name}.npy": writer.close() for name, writer in self._writers.items()}
        self._folder.sync()
        self._parent.sync()
        return records

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.discard()
        self._writers.clear()
        self._folder.close()
