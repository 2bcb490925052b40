"""The manifest of a store: one JSON file that lists its parts and names its model.

One atomic rename replaces it, and the files that it names never change: a reader sees the store
before a part was added, or after.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from glassrank.errors import CorruptError, InputError
from glassrank.index.segment import SegmentRecord, is_segment_name
from glassrank.models.text_batches import KINDS
from glassrank.settings import from_plain
from glassrank.storage.checksummed_json import (
    FileRecord,
    check_integer,
    parse_records,
    read_json,
    write_json,
)
from glassrank.storage.folders import Folder, is_plain_name
from glassrank.storage.mapped_arrays import ArrayDtypes

FILE_NAME = "store.json"
FORMAT = 2
IDS = "ids"  # the dtype of a store of token ids, for models whose embeddings have no context
DTYPES = ("bf16", "int8", "float16", "float32", "int3")
SCALED = ("int8", "int3")  # quantized dtypes, whose vectors have scales
ROW_DTYPES: dict[str, type[np.generic]] = {
    "bf16": np.uint16,  # numpy has no bf16: its bits
    "int8": np.int8,
    "int3": np.uint8,  # six bytes for sixteen values: `backends/quantization.py`
    "float16": np.float16,
    "float32": np.float32,
    IDS: np.int32,
}
PASSAGE_ARRAYS: ArrayDtypes = {
    "contents": [np.uint64],
    "passages": [np.int64],
    "cut": [np.uint8],
    "spans": [np.int32],
    "offsets": [np.int64],
}
_STORES = "stores"
_SOURCE = re.compile("-[0-9a-f]{16}")
_GRAPH = re.compile("neighbours-[0-9]{1,20}[.]npy")
_LONGEST, _LARGEST, _MOST_AXES = 200, 1 << 20, 4
_ROW_MULTIPLE = {"int8": 64, "int3": 16}
_USUAL_MULTIPLE = 32
"""Rows are padded with zeros to a multiple of so many values, as SIMD tiles need them: 64 bytes or
more; int3 has no tiles, and is read by sixteen."""


@dataclass(frozen=True)
class Layout:
    """What a row is: one token of a document, as one model encodes it."""

    model: str
    fingerprint: str
    vocabulary: str  # a digest: the same weights with another vocabulary read other tokens
    doc_length: int  # tokens of a passage at most
    dtype: str
    axes: tuple[int, ...]  # of one token's embedding: one axis, or several, flattened in its row
    idf_axes: tuple[int, ...]  # further axes of a token's idf in an ensemble; none otherwise
    stride: int  # values in a row, with its padding
    reuse: str = ""
    """Of a MORES: s1, its document module's output, or s2, each block's keys and values."""
    overlap: int = 0  # of a document's passages, as its model's `Passages` say
    most_passages: int = 1  # of one document
    left_out: str = ""  # the kind of tokens that have no rows

    @property
    def name(self) -> str:
        """The default name of the store."""
        without = f"without-{self.left_out}" if self.left_out else ""
        return "-".join(filter(None, (self.model, self.reuse, self.dtype, without)))

    @property
    def width(self) -> int:
        """Values in a row, without its padding."""
        return math.prod(self.axes)

    @property
    def scales(self) -> int:
        """How many scales a row of int8 or int3 has. Keys and values differ in size, as blocks do:
        each of them has its own. All else is one vector, or is read as one."""
        return math.prod(self.axes[:-1]) if self.reuse == "s2" else 1

    @property
    def description(self) -> str:
        """What a row holds, for messages."""
        without = f" without {self.left_out}" if self.left_out else ""
        return (f"{self.reuse.upper()} in {self.dtype}" if self.reuse else self.dtype) + without

    @property
    def passages_description(self) -> str:
        """How documents are split into passages, for messages."""
        most = f"at most {self.most_passages} passages" if self.most_passages > 1 else "one passage"
        shared = f" that share {self.overlap}" if self.overlap else ""
        return f"in {most} of {self.doc_length} words{shared}"

    @property
    def rows_name(self) -> str:
        """The array that holds the rows."""
        return IDS if self.dtype == IDS else "vectors"


def store_folder(index: Path, name: str) -> Path:
    """The folder of a store in an index."""
    return index / _STORES / name


def default_store_folder(index: Path, layout: Layout) -> Path:
    """Where a model's store goes without a name: named after the model's family, with its
    fingerprint where another model of the family has that folder."""
    plain = store_folder(index, layout.name)
    try:
        if read_manifest(plain).layout.fingerprint == layout.fingerprint:
            return plain
    except (InputError, CorruptError):  # none, or whoever writes there says what is wrong
        return plain
    return store_folder(index, f"{layout.name}-{layout.fingerprint[:8]}")


def stride(width: int, dtype: str) -> int:
    """
    >>> stride(200, "bf16"), stride(200, "int8")
    (224, 256)
    """
    multiple = _ROW_MULTIPLE.get(dtype, _USUAL_MULTIPLE)
    return -(-width // multiple) * multiple


DOC_VECTORS: ArrayDtypes = {"doc_vectors": [np.int8], "doc_scales": [np.float32]}
"""The arrays of a part that has a vector for each document."""


@dataclass(frozen=True)
class PartRecord:
    """The documents of one segment of the index, deleted ones included."""

    segment: str
    source: str  # which texts were encoded: see `hash_segment_texts`
    docs: int
    passages: int
    rows: int
    files: dict[str, FileRecord]

    @property
    def name(self) -> str:
        """Of its folder; unique for these texts."""
        return f"{self.segment}-{self.source}"

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(file.size for file in self.files.values())

    @property
    def has_doc_vectors(self) -> bool:
        """Whether each document has one vector besides those of its tokens."""
        return "doc_vectors.npy" in self.files


def part_name(segment: SegmentRecord) -> str:
    """Of the folder of this segment's part: another index may have a segment of the same name."""
    return f"{segment.name}-{hash_segment_texts(segment)}"


def hash_segment_texts(segment: SegmentRecord) -> str:
    """Identifies the texts of a segment."""
    files = {
        name: record
        for name, record in sorted(segment.files.items())
        if name.startswith(("texts.", "fields."))
    }
    return hashlib.blake2b(json.dumps(files).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class GraphRecord:
    """The neighbour graph: one file, for the documents of some parts, part after part."""

    parts: tuple[tuple[str, int], ...]  # names of the parts, and how many documents each has
    generation: int  # of the store that it was made for
    file: FileRecord

    @property
    def name(self) -> str:
        """Of its file."""
        return f"neighbours-{self.generation}.npy"

    @property
    def docs(self) -> int:
        """How many documents it has."""
        return sum(docs for _, docs in self.parts)

    @property
    def bases(self) -> dict[str, int]:
        """The number of each part's first document."""
        names, counts = zip(*self.parts, strict=True) if self.parts else ((), ())
        return dict(zip(names, accumulate(counts, initial=0), strict=False))


@dataclass(frozen=True)
class Manifest:
    """What a store holds."""

    layout: Layout
    generation: int = 0  # changes since the store was made
    parts: tuple[PartRecord, ...] = ()
    graph: GraphRecord | None = None

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(part.bytes for part in self.parts) + (self.graph.file.size if self.graph else 0)


def list_stores(index: Path) -> list[Path]:
    """The stores inside an index."""
    try:
        with Folder.open(index) as folder, folder.child(_STORES) as stores:
            return [index / _STORES / name for name in stores.names() if _is_store(stores, name)]
    except FileNotFoundError:
        return []


def _is_store(stores: Folder, name: str) -> bool:
    if not is_plain_name(name) or stores.kind(name) not in ("folder", "link"):
        return False
    with stores.child(name) as folder:  # says so if it is a link
        return folder.kind(FILE_NAME) is not None


def open_store(path: Path, *, make: bool = False) -> Folder:
    """A store's folder. One inside an index is reached from there: no link leads elsewhere."""
    if path.parent.name != _STORES:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        return Folder.open(path)
    with Folder.open(path.parent.parent) as index:
        if not make:
            with index.child(_STORES) as stores:
                return stores.child(path.name)
        with index.make_child(_STORES, exist_ok=True) as stores:
            return stores.make_child(path.name, exist_ok=True)


def read_manifest(path: Path) -> Manifest:
    """Of the store at this path."""
    with open_existing_store(path) as folder:
        return load_store_manifest(folder)


def encode_command(path: Path) -> str:
    """The command that adds missing documents to a store; the user fills in the model."""
    index = path.parent.parent if path.parent.name == _STORES else "INDEX"
    return f"glassrank encode {index} --model MODEL"


@contextmanager
def open_existing_store(path: Path) -> Iterator[Folder]:
    """A store's folder, closed at the end; the error of a folder that is not a store."""
    try:
        with open_store(path) as folder:
            yield folder
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{path} is not a document store (it has no {FILE_NAME}); "
            f"make one with: {encode_command(path)}"
        ) from None


def load_store_manifest(folder: Folder) -> Manifest:
    """Of an open store; what is damaged is named."""
    body = read_json(folder, FILE_NAME, "encode the index again under another name")
    try:
        if body["format"] != FORMAT:
            raise InputError(
                f"{folder.path} has store format {str(body['format'])[:20]}, this version reads "
                f"{FORMAT}; remove it and run glassrank encode again"
            )
        layout = _layout(body["layout"])
        parts = tuple(_part(part, layout) for part in body["parts"])
        if len({part.name for part in parts}) < len(parts):
            raise ValueError("a part is named twice")
        graph = _graph(body.get("graph"))
        return Manifest(layout, check_integer(body["generation"]), parts, graph)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"{folder.path / FILE_NAME} is damaged ({error}); "
            "restore it from a copy, or encode the index again under another name"
        ) from None


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """Commits a change: one rename makes all of it visible."""
    write_json(folder, FILE_NAME, {"format": FORMAT, **asdict(manifest)})


def _layout(stored: Any) -> Layout:
    """Rejects layouts that no encoder writes: compiled code relies on these numbers."""
    try:
        layout = from_plain(Layout, stored, "layout")
    except InputError as error:
        raise ValueError(str(error)) from None
    texts = (layout.model, layout.fingerprint, layout.vocabulary, layout.reuse)
    numbers = (layout.doc_length, layout.most_passages, *layout.axes, *layout.idf_axes)
    known = (
        all(len(text) <= _LONGEST for text in texts)
        and all(1 <= number <= _LARGEST for number in numbers)
        and 0 <= layout.overlap <= _LARGEST
        and layout.dtype in (*DTYPES, IDS)
        and layout.reuse in ("", "s1", "s2")
        and (not layout.left_out or (layout.left_out in KINDS and layout.dtype != IDS))
        and len(layout.axes) <= _MOST_AXES
        and len(layout.idf_axes) <= _MOST_AXES
        and bool(layout.axes) == (layout.dtype != IDS)
        and layout.width <= _LARGEST
        and layout.stride == (stride(layout.width, layout.dtype) if layout.axes else 1)
    )
    if not known:
        raise ValueError("no model writes rows like these")
    return layout


def _part(stored: dict[str, Any], layout: Layout) -> PartRecord:
    segment, source = stored["segment"], stored["source"]
    if not is_part_name(f"{segment}-{source}"):
        raise ValueError("a part belongs to no segment")
    files = parse_records(stored["files"])
    names = {f"{name}.npy" for name in array_dtypes(layout)}
    vectors = {f"{name}.npy" for name in DOC_VECTORS if layout.dtype != IDS}
    if files.keys() not in (names, names | vectors):
        raise ValueError(f"the files of {segment} are not those of a part")
    docs, rows = check_integer(stored["docs"], (1 << 32) - 1), check_integer(stored["rows"])
    passages = check_integer(stored["passages"], docs * layout.most_passages)
    return PartRecord(segment, source, docs, passages, rows, files)


def _graph(stored: Any) -> GraphRecord | None:
    if stored is None:
        return None
    parts = tuple((str(name), check_integer(docs, (1 << 32) - 1)) for name, docs in stored["parts"])
    if not all(is_part_name(name) for name, _ in parts) or len(dict(parts)) < len(parts):
        raise ValueError("a graph is of no parts")
    (file,) = parse_records({"neighbours": stored["file"]}).values()
    return GraphRecord(parts, check_integer(stored["generation"]), file)


def is_graph_name(name: str) -> bool:
    """Whether it is the name of a graph's file."""
    return _GRAPH.fullmatch(name) is not None


def is_part_name(name: str) -> bool:
    """Whether it is the name of a part."""
    return is_segment_name(name[:-17]) and _SOURCE.fullmatch(name[-17:]) is not None


def array_dtypes(layout: Layout) -> ArrayDtypes:
    """The arrays that a part has, besides `DOC_VECTORS`."""
    scales = {"scales": [np.float32]} if layout.dtype in SCALED else {}
    return {**PASSAGE_ARRAYS, layout.rows_name: [ROW_DTYPES[layout.dtype]], **scales}
