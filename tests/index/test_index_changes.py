"""Any sequence of changes ends where a fresh build of the same documents begins."""

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from glassrank.errors import DuplicateIdError, InputError
from glassrank.index import Index
from glassrank.types import Doc

METHODS = ["bm25", "ql", "bm25+rm3(docs=3)", "ql+rm3(docs=3)"]
QUERIES = ["ant bee", "bee", "cat dog elk", "fox fox ant", "gnu hen owl", "yak"]
WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "owl", "pig", "rat", "yak"]

# Few ids, so that they meet again; the counts of some words need two bytes.
ids = st.sampled_from([f"d{i}" for i in range(14)] + ["é", "Z z"])
contents = st.builds(
    lambda words, times: " ".join(words * times),
    st.lists(st.sampled_from(WORDS), max_size=8),
    st.sampled_from([1, 1, 1, 1, 2, 40, 300]),
)
docs = st.builds(
    Doc,
    ids,
    contents,
    title=st.sampled_from(["", "", "Ants & bees", "Ü"]),
    source=st.sampled_from(["", "https://example.org/a"]),
    metadata=st.sampled_from([{}, {"year": 1999, "tags": ["a", "b"]}]),
)
batches = st.lists(docs, min_size=1, max_size=6, unique_by=lambda doc: doc.doc_id)

Rankings = list[tuple[tuple[str, float], ...]]


def rankings(index: Index) -> Rankings:
    return [
        tuple((hit.doc_id, hit.score) for hit in index.search(query, 8, method))
        for method in METHODS
        for query in QUERIES
    ]


class Changes(RuleBasedStateMachine):
    """An index beside a plain dictionary of what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        first = Doc("first", "ant bee cat")
        self.expected = {"first": first}
        self.index = Index.build([first], self.folder / "index")

    @rule(batch=batches)
    def add_new(self, batch: list[Doc]) -> None:
        fresh = [doc for doc in batch if doc.doc_id not in self.expected]
        assert self.index.add(fresh) == len(fresh)
        self.expected.update({doc.doc_id: doc for doc in fresh})

    @rule(batch=batches)
    def add_or_replace(self, batch: list[Doc]) -> None:
        assert self.index.add(batch, replace=True) == len(batch)
        self.expected.update({doc.doc_id: doc for doc in batch})

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), other=docs)
    def add_one_that_is_there(self, data: st.DataObject, other: Doc) -> None:
        taken = data.draw(st.sampled_from(sorted(self.expected)))
        unrelated = [other] if other.doc_id != taken else []
        generation = self.index.generation
        with pytest.raises(DuplicateIdError):
            self.index.add([*unrelated, Doc(taken, "owl")])
        assert self.index.generation == generation

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.expected)), min_size=1, max_size=5))
        assert self.index.delete(gone) == len(gone)
        for doc_id in gone:
            del self.expected[doc_id]

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def delete_an_unknown_one_too(self, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(sorted(self.expected)))
        with pytest.raises(InputError, match="no document has the id 'nobody'"):
            self.index.delete([known, "nobody"])

    @rule()
    def merge(self) -> None:
        self.index.merge()
        assert len(self.index.snapshot.segments) <= 1

    @invariant()
    def holds_the_documents(self) -> None:
        assert {doc.doc_id: doc for doc in self.index.docs()} == self.expected
        assert len(self.index) == len(self.expected)
        assert all(self.index.doc(doc_id) == doc for doc_id, doc in self.expected.items())

    def teardown(self) -> None:
        """Compared once, at the end: every prefix of a sequence is a sequence of its own."""
        try:
            again = Index(self.index.path)
            before_merge = rankings(again)
            assert before_merge == rankings(self.index)
            again.merge()
            assert rankings(again) == before_merge
            if self.expected:
                fresh = Index.build(self.expected.values(), self.folder / "fresh")
                assert fresh.snapshot.collection == again.snapshot.collection
                assert rankings(fresh) == before_merge
            else:
                assert not any(before_merge)
        finally:
            shutil.rmtree(self.folder)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=15, stateful_step_count=10, deadline=None)


class TestManyChanges(Changes.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
    pytestmark = pytest.mark.slow
