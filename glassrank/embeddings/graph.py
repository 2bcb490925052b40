"""The neighbour graph of a store: of each document, the 16 others whose vectors are nearest.

Numbers in it count documents over the parts that it was made for, one part after another. When
documents are added, theirs are computed, and those of others change where a new document is nearer.
All pairs are compared, unless they are too many: then documents are put into clusters by k-means,
and each is compared with those of the clusters that are nearest to its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled
from glassrank.backends.onnx_file import Graph
from glassrank.backends.threads import num_threads, run_parallel
from glassrank.embeddings.manifest import GraphRecord
from glassrank.embeddings.part import Part
from glassrank.embeddings.writer import StoreWriter
from glassrank.errors import CorruptError
from glassrank.models.onnx_models import OnnxSession
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import Bools, Floats, Ints, Uints, open_array, replace_array

NEIGHBOURS = 16
NONE = 0xFFFF_FFFF  # in the place of a neighbour, where there are fewer
MAX_PAIRS = 10_000_000_000  # that are compared one by one: all of 100,000 documents
_ROWS, _COLUMNS = 256, 1024  # vectors of a block, whose products stay in a cache
_DOCS_PER_CLUSTER, _NEAR_CLUSTERS = 1000, 16
_KMEANS_DOCS, _KMEANS_ROUNDS = 50, 8  # documents of each cluster that k-means reads


class DocVectors(NamedTuple):
    """Of all documents of some parts."""

    values: NDArray[np.int8]  # (N, E)
    scales: Floats  # (N,)


class Neighbours(NamedTuple):
    """Lists of neighbours, nearest first; of equals, the smaller number."""

    numbers: Ints  # (N, 16); -1: none
    scores: Floats  # (N, 16) cosines, by the scale of the document itself


def open_graph(folder: Folder, graph: GraphRecord, *, verify: bool) -> Uints:
    """(N, 16). Numbers are not checked: who reads them leaves out those that are too large."""
    flat = open_array(folder, graph.name, graph.file, [np.uint32], verify=verify)
    if len(flat) != NEIGHBOURS * graph.docs:
        raise CorruptError(
            f"{folder.path / graph.name} is damaged: it is not the graph of these documents; "
            "remove the store and encode the index again"
        )
    return flat.reshape(-1, NEIGHBOURS)


def update_graph(writer: StoreWriter) -> None:
    """Makes the graph of a store's parts, which all have doc vectors, unless it is there."""
    manifest, folder = writer.manifest, writer.folder
    parts = tuple((part.name, part.docs) for part in manifest.parts)
    if manifest.graph is not None and manifest.graph.parts == parts:
        return
    graph = GraphRecord(parts, manifest.generation + 1, FileRecord(0, 0))
    known = np.full((graph.docs, NEIGHBOURS), -1)
    is_new = np.ones(graph.docs, np.bool_)
    if manifest.graph is not None:
        with suppress(CorruptError):  # a damaged one is made anew
            old = open_graph(folder, manifest.graph, verify=True)
            known, is_new = _carry_over(manifest.graph, old, graph)
    opened = [Part(folder, part, manifest.layout, verify=False) for part in manifest.parts]
    # In the order of their ids, so that of equals the same are taken however segments are divided.
    ids = [doc_id for name, _ in parts for doc_id in writer.names[name].ids]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
    ranks = np.append(np.argsort(order), -1)  # -1, for none, stays -1
    values, scales = _join_vectors(opened)
    vectors = DocVectors(values[order], scales[order])
    found = find_neighbours(vectors, ranks[known[order]], is_new[order])
    numbers = np.append(order, -1)[found][ranks[:-1]]
    flat = np.where(numbers >= 0, numbers, NONE).astype(np.uint32).reshape(-1)
    writer.set_graph(replace(graph, file=replace_array(folder, graph.name, flat)))


def _carry_over(old: GraphRecord, stored: Uints, new: GraphRecord) -> tuple[Ints, Bools]:
    """Neighbours of documents whose parts are still there, by their new numbers; and which
    documents are new."""
    bases = new.bases
    renumbered = np.concatenate(
        [
            bases[name] + np.arange(docs) if name in bases else np.full(docs, -1)
            for name, docs in old.parts
        ]
    )
    kept = np.flatnonzero(renumbered >= 0)
    known = np.full((new.docs, NEIGHBOURS), -1)
    known[renumbered[kept]] = np.append(renumbered, -1)[np.minimum(stored[kept], old.docs)]
    is_new = np.ones(new.docs, np.bool_)
    is_new[renumbered[kept]] = False
    return known, is_new


def _join_vectors(parts: Sequence[Part]) -> DocVectors:
    vectors = [part.doc_vectors for part in parts if part.doc_vectors is not None]
    scales = [part.doc_scales for part in parts if part.doc_scales is not None]
    if not vectors:
        return DocVectors(np.empty((0, 1), np.int8), np.empty(0, np.float32))
    return DocVectors(np.concatenate(vectors), np.concatenate(scales))


def find_neighbours(vectors: DocVectors, known: Ints, is_new: Bools) -> Ints:
    """(N, 16) numbers of the nearest; those of documents that are not new are `known`, but for
    what is new among them."""
    fresh, rest = np.flatnonzero(is_new), np.flatnonzero(~is_new)
    found = Neighbours(known.copy(), np.full(known.shape, -np.inf, np.float32))
    if len(fresh) * len(is_new) > MAX_PAIRS:
        found.numbers[:] = -1
        for rows, columns in _near_clusters(vectors):
            _compare(vectors, rows, columns, found)
        return found.numbers
    _score_known(vectors, rest, found)
    _compare(vectors, fresh, np.arange(len(is_new)), found)
    _compare(vectors, rest, fresh, found)
    return found.numbers


def _score_known(vectors: DocVectors, docs: Ints, found: Neighbours) -> None:
    """Scores and sorts what is known of these documents."""
    for start in range(0, len(docs), _COLUMNS):
        rows = docs[start : start + _COLUMNS]
        numbers = found.numbers[rows]  # (n, 16)
        scores = np.matmul(
            vectors.values[numbers].astype(np.float32),
            vectors.values[rows].astype(np.float32)[..., None],
        )[..., 0]
        scores = np.where(numbers >= 0, scores * vectors.scales[numbers], np.float32(-np.inf))
        order = np.lexsort((numbers, -scores))
        found.numbers[rows] = np.take_along_axis(numbers, order, 1)
        found.scores[rows] = np.take_along_axis(scores, order, 1)


def _compare(vectors: DocVectors, rows: Ints, columns: Ints, found: Neighbours) -> None:
    """Puts into the lists of `rows` what is near enough among `columns`. Sums of products of int8
    are exact in float32, as far as 16 million: all machines agree. ONNX Runtime multiplies, since
    NumPy's threads slow each other down twentyfold on a busy machine."""
    threads = num_threads()
    session = _product_session()

    def insert(number: int) -> None:
        mine = rows[number::threads]
        for block in range(0, len(columns), _COLUMNS):
            others = columns[block : block + _COLUMNS]
            right = np.ascontiguousarray(vectors.values[others].T, np.float32)  # (E, n)
            for start in range(0, len(mine), _ROWS):
                some = mine[start : start + _ROWS]
                left = vectors.values[some].astype(np.float32)
                (products,) = session.run({"left": left, "right": right})
                insert_neighbours(products, vectors.scales, some, others, *found)

    run_parallel(insert, threads)


@cache
def _product_session() -> OnnxSession:
    """Made once: clusters are compared a thousand times."""
    graph = Graph("products")
    left = graph.input("left", "float32", ["rows", "size"])
    right = graph.input("right", "float32", ["size", "columns"])
    graph.output("products", graph.add("MatMul", left, right), "float32", ["rows", "columns"])
    return OnnxSession(graph.serialize())


@compiled
def insert_neighbours(
    products: Any, scales: Any, rows: Any, columns: Any, numbers: Any, scores: Any
) -> None:
    """Puts into a row's list what is nearer than its last, by products of rows and columns."""
    last = numbers.shape[1] - 1
    for i, row in enumerate(rows):
        floor = scores[row, last]
        for j, column in enumerate(columns):
            score = products[i, j] * scales[column]
            if score < floor or column == row:
                continue
            if score == floor and column > numbers[row, last] >= 0:
                continue
            place = last
            while place and (
                score > scores[row, place - 1]
                or (score == scores[row, place - 1] and column < numbers[row, place - 1])
            ):
                scores[row, place] = scores[row, place - 1]
                numbers[row, place] = numbers[row, place - 1]
                place -= 1
            scores[row, place] = score
            numbers[row, place] = column
            floor = scores[row, last]


def _near_clusters(vectors: DocVectors) -> Iterator[tuple[Ints, Ints]]:
    """The documents of each cluster, and those of the clusters that are nearest to it."""
    count = max(1, len(vectors.values) // _DOCS_PER_CLUSTER)
    step = max(1, len(vectors.values) // (count * _KMEANS_DOCS))
    sample = _unit(vectors.values[::step])
    centers = sample[:: max(1, len(sample) // count)][:count]
    for _ in range(_KMEANS_ROUNDS):
        owners = _nearest_center(sample, centers)
        sums = np.zeros_like(centers)
        np.add.at(sums, owners, sample)
        centers = np.where(sums.any(1, keepdims=True), _unit(sums), centers)
    owners = np.concatenate(
        [
            _nearest_center(_unit(vectors.values[at : at + _COLUMNS]), centers)
            for at in range(0, len(vectors.values), _COLUMNS)
        ]
    )
    order = np.argsort(owners, kind="stable")
    members = np.split(order, np.searchsorted(owners[order], np.arange(1, count)))
    for cluster, near in enumerate(np.argsort(-(centers @ centers.T), 1)[:, :_NEAR_CLUSTERS]):
        yield members[cluster], np.concatenate([members[other] for other in near])


def _nearest_center(vectors: Floats, centers: Floats) -> Ints:
    return np.asarray((vectors @ centers.T).argmax(1))


def _unit(vectors: NDArray[Any]) -> Floats:
    floats = vectors.astype(np.float32)
    floats /= np.maximum(np.linalg.norm(floats, axis=1, keepdims=True), np.float32(1e-9))
    return floats
