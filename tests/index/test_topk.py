"""The compiled search on collections larger than a window, against sorting all scores."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from glassrank.index import BM25, QL, Index
from glassrank.index.scoring import _LOG_TABLE, _TYPICAL_TF, WINDOW, TermStatistics
from glassrank.types import Doc

SIZE = 30_000
METHODS = {"bm25": BM25(), "ql": QL()}


@pytest.fixture(scope="module")
def identical(tmp_path_factory: pytest.TempPathFactory) -> Index:
    assert SIZE > 4 * WINDOW
    docs = (Doc(f"{number:05d}", "owl fox") for number in reversed(range(SIZE)))
    return Index.build(docs, tmp_path_factory.mktemp("identical") / "index")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 10, 1000, 20_000, SIZE + 1])
def test_of_equal_scores_the_smallest_ids_win(identical: Index, method: str, k: int) -> None:
    ranked = identical.search("owl", k, method)
    assert [hit.doc_id for hit in ranked] == [f"{i:05d}" for i in range(min(k, SIZE))]
    assert len({hit.score for hit in ranked}) == 1


def random_docs() -> Iterator[Doc]:
    """Few words in documents of random length: thousands of different scores, and many ties."""
    random = np.random.default_rng(0)
    words = np.array(["owl", "fox", "elk", "dog", "hen", "cow"])
    chances = np.array([0.4, 0.3, 0.2, 0.06, 0.03, 0.01])
    lengths = random.integers(0, 12, SIZE) * np.where(np.arange(SIZE) % 5000 == 0, 300, 1)
    drawn = iter(random.choice(words, lengths.sum(), p=chances).tolist())
    for number, length in enumerate(lengths.tolist()):
        yield Doc(f"{number:05d}", " ".join(islice(drawn, length)))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Index:
    index = Index.build(random_docs(), tmp_path_factory.mktemp("mixed") / "index")
    assert len(index.snapshot.segments) == 1
    return index


def all_scores(index: Index, query: list[str], method: BM25 | QL) -> np.ndarray:
    """Of every document of one segment, from its vectors, in single precision as compiled."""
    snapshot = index.snapshot
    (segment,) = snapshot.segments
    lengths = method.length_norms(segment.lengths, snapshot.collection)
    vectors = segment.vectors.unpack(slice(None))
    scores = np.zeros(len(segment), np.float32)
    for word in query:
        number = segment.terms.find(word)
        where = np.flatnonzero(segment.terms_by_df[vectors.ids] == number)
        docs = len(where)
        owners = np.searchsorted(vectors.offsets, where, side="right") - 1
        counts = vectors.tfs[where].astype(np.float32)
        total = int(vectors.tfs[where].sum(dtype=np.int64))
        factors = method.term_factors(TermStatistics(docs, total), snapshot.collection)
        scores[owners] += method.score(factors, counts, lengths[owners]).astype(np.float32)
    if len(segment.live):
        scores[~segment.live] = 0
    return scores


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("query", ["owl", "cow", "owl fox elk", "hen cow", "owl fox elk dog cow"])
@pytest.mark.parametrize("k", [1, 100, 5000])
def test_the_best_of_many_windows(mixed: Index, name: str, query: str, k: int) -> None:
    expected = all_scores(mixed, query.split(), METHODS[name])
    (top,) = mixed.top_k([query], k, name)
    best = np.argsort(-expected, kind="stable")[: min(k, int((expected > 0).sum()))]
    assert len(top.docs) == len(best)
    # A word's score is a logarithm less another, of about 1 each: on some processors the last bit
    # of numpy's differs from that of compiled code.
    last_bits = len(query.split()) * float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(top.scores, expected[best], rtol=3e-6, atol=last_bits)
    np.testing.assert_allclose(top.scores, expected[top.docs], rtol=3e-6, atol=last_bits)
    # In its own scores: best first, of equal ones the smaller number, none twice.
    order = np.lexsort((top.docs, -top.scores))
    assert order.tolist() == list(range(len(order)))
    assert len(set(top.docs.tolist())) == len(top.docs)


@pytest.mark.parametrize("name", METHODS)
def test_a_short_list_begins_the_long_one(mixed: Index, name: str) -> None:
    """However many candidates the compiled loops keep, ties at the edge go by number."""
    (everything,) = mixed.top_k(["owl fox elk"], SIZE, name)
    for k in (1, 2, 10, 99, 1000, 4097, 12_345):
        (top,) = mixed.top_k(["owl fox elk"], k, name)
        assert top.docs.tolist() == everything.docs[:k].tolist()
        assert top.scores.tolist() == everything.scores[:k].tolist()


@pytest.mark.parametrize("name", METHODS)
def test_deleted_documents_are_never_found(mixed: Index, tmp_path: Path, name: str) -> None:
    index = Index(shutil.copytree(mixed.path, tmp_path / "index"))
    best = [hit.doc_id for hit in index.search("owl fox", 3000, name)]
    index.delete(best[::2])
    again = index.search("owl fox", 3000, name)
    assert len(again) == 3000
    assert not {hit.doc_id for hit in again} & set(best[::2])
    (top,) = index.top_k(["owl fox"], SIZE, name)
    assert len(top.docs) == int((all_scores(index, ["owl", "fox"], METHODS[name]) > 0).sum())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "counts",
    [
        [1, _TYPICAL_TF, _LOG_TABLE - 1, _LOG_TABLE, 200],  # around the table of logarithms
        [1, 254, 255, 256, 300],  # counts of two bytes
        [1, 40, 300, 65_535, 65_536],  # of four
    ],
)
def test_words_that_a_document_repeats_often(tmp_path: Path, name: str, counts: list[int]) -> None:
    docs = [Doc(f"{n:06d}", "owl " * n + "fox " * 10) for n in counts]
    index = Index.build([*docs, Doc("other", "elk")], tmp_path / "index")
    expected = all_scores(index, ["owl"], METHODS[name])[: len(counts)]
    scores = {hit.doc_id: hit.score for hit in index.search("owl", method=name)}
    np.testing.assert_allclose([scores[doc.doc_id] for doc in docs], expected, rtol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_the_width_of_counts_does_not_change_a_score(tmp_path: Path, name: str) -> None:
    """A document that repeats a word 70,000 times makes counts wider, even when it is deleted."""
    docs = [Doc(str(n), "owl " * n + "fox") for n in (1, 31, 33, 200)]
    index = Index.build(docs, tmp_path / "index")
    before = index.search("owl fox", method=name).hits
    for times in (300, 70_000):
        index.add([Doc("many", "owl " * times)])
        index.merge()
        index.delete(["many"])
    assert index.snapshot.segments[0].postings.unpack(slice(None)).tfs.max() == 70_000
    assert index.search("owl fox", method=name).hits == before
