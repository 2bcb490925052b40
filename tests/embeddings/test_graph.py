"""The neighbour graph is that of a plain sort, whatever happened to the index."""

from pathlib import Path

import numpy as np
import pytest
from small_store import small_saved, some_docs

from glassrank.embeddings import Store, encode_index, graph
from glassrank.embeddings.graph import NEIGHBOURS, DocVectors, find_neighbours
from glassrank.index import Index
from glassrank.index.writer import open_writer
from glassrank.types import Doc

SAVED = small_saved("tk")


def random_vectors(count: int, size: int = 16, most: int = 6) -> DocVectors:
    """Of so few different values that many products are equal."""
    rng = np.random.default_rng(count)
    values = rng.integers(-most, most, (count, size), dtype=np.int8)
    return DocVectors(values, rng.choice([0.25, 0.5], count).astype(np.float32))


def plain(vectors: DocVectors) -> np.ndarray:
    wide = vectors.values.astype(np.float64)
    products = wide @ wide.T * vectors.scales
    np.fill_diagonal(products, -np.inf)
    order = np.argsort(-products, 1, kind="stable")[:, :NEIGHBOURS]
    order = np.where(order == np.arange(len(wide))[:, None], -1, order)
    return np.pad(order, ((0, 0), (0, NEIGHBOURS - order.shape[1])), constant_values=-1)


def find_all(vectors: DocVectors) -> np.ndarray:
    count = len(vectors.values)
    return find_neighbours(vectors, np.full((count, NEIGHBOURS), -1), np.ones(count, bool))


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 300])
def test_neighbours_are_those_of_a_sort(count: int) -> None:
    vectors = random_vectors(count)
    assert np.array_equal(find_all(vectors), plain(vectors))


def test_new_documents_change_what_they_are_nearer_to() -> None:
    vectors = random_vectors(200)
    is_new = np.arange(200) % 3 == 0
    old = np.flatnonzero(~is_new)
    known = np.full((200, NEIGHBOURS), -1)
    known[old] = old[find_all(DocVectors(vectors.values[old], vectors.scales[old]))]
    assert np.array_equal(find_neighbours(vectors, known, is_new), plain(vectors))


def test_clusters_find_most_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    centers = rng.normal(0, 30, (40, 32))
    values = centers[rng.integers(0, 40, 3000)] + rng.normal(0, 12, (3000, 32))
    vectors = DocVectors(values.clip(-127, 127).astype(np.int8), np.ones(3000, np.float32))
    monkeypatch.setattr(graph, "MAX_PAIRS", 1)
    monkeypatch.setattr(graph, "_DOCS_PER_CLUSTER", 50)
    monkeypatch.setattr(graph, "_NEAR_CLUSTERS", 8)
    found, expected = find_all(vectors), plain(vectors)
    shared = [len({*f} & {*e}) for f, e in zip(found.tolist(), expected.tolist(), strict=True)]
    assert np.mean(shared) > 0.9 * NEIGHBOURS
    assert (found >= 0).all()


def ids(first: int, last: int) -> list[str]:
    return [f"d{i:03}" for i in range(first, last)]


def neighbour_ids(index: Index, path: Path, *, stale: bool = False) -> dict[str, list[str]]:
    """Also from a `stale` store, which has not been brought up to date."""
    snapshot = index.snapshot
    numbers = np.array([snapshot.find(doc.doc_id) for doc in index.docs()])
    store = Store.open(path, SAVED.model, None if stale else snapshot)
    return {
        snapshot.doc_id(int(number)): [snapshot.doc_id(n) for n in row if n >= 0]
        for number, row in zip(numbers, store.neighbours(snapshot, numbers).tolist(), strict=True)
    }


def test_it_follows_the_index(tmp_path: Path) -> None:
    """As if all had been encoded at once: also after a merge, before and after encoding again."""
    index = Index.build(some_docs(1, ids(0, 60)), tmp_path / "index")
    path = encode_index(index, SAVED, graph=True).path
    index.add(some_docs(2, ids(60, 75)))
    near = neighbour_ids(index, path, stale=True)
    assert not any(near[doc_id] for doc_id in ids(60, 75))
    encode_index(index, SAVED, path)
    with open_writer(index.path) as writer:  # without merging, as `add` would
        writer.add(some_docs(3, ids(75, 80)))
    index.refresh()
    encode_index(index, SAVED, path)
    fresh = Index.build(list(index.docs()), tmp_path / "fresh")
    expected = neighbour_ids(fresh, encode_index(fresh, SAVED, graph=True).path)
    assert neighbour_ids(index, path) == expected
    assert len(index.snapshot.segments) == 3
    index.merge()
    assert len(index.snapshot.segments) == 1
    assert neighbour_ids(index, path, stale=True) == expected
    encode_index(index, SAVED, path)
    assert neighbour_ids(index, path) == expected
    assert len(list(path.glob("neighbours-*.npy"))) == 1


def test_of_equals_the_same_are_neighbours_in_any_segments(tmp_path: Path) -> None:
    """Forty documents of two texts: each has more neighbours at no distance than are kept."""
    docs = [Doc(f"d{n:02}", "ant bee" if n % 2 else "fox gnu hen") for n in range(40)]
    whole = Index.build(docs, tmp_path / "whole")
    parts = Index.build(docs[::-3], tmp_path / "parts")
    with open_writer(parts.path) as writer:
        writer.add([doc for doc in docs if doc not in docs[::-3]])
    parts.refresh()
    assert len(parts.snapshot.segments) == 2
    one, other = (
        neighbour_ids(index, encode_index(index, SAVED, graph=True).path)
        for index in (whole, parts)
    )
    assert one == other


def test_it_takes_few_bytes(tmp_path: Path) -> None:
    index = Index.build(some_docs(1, ids(0, 60)), tmp_path / "index")
    plain = encode_index(index, SAVED, tmp_path / "plain", graph=False).bytes
    report = encode_index(index, SAVED, tmp_path / "graph", graph=True)
    size = Store.open(report.path, SAVED.model).layout.width
    headers = 3 * 128
    assert report.bytes - plain - headers == 60 * (size + 4 + 4 * NEIGHBOURS)
