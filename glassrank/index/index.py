"""The index: add, delete, search and read documents."""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassrank.deadline import NEVER, Deadline
from glassrank.errors import DuplicateIdError, GlassrankError, InputError, wrap_os_errors
from glassrank.index.filters import FilterSpec
from glassrank.index.methods import parse_method
from glassrank.index.search import Method, TopK, check_k, drop_high_df_terms, run_method
from glassrank.index.segment import SegmentRecord
from glassrank.index.snapshot import MANIFEST_FILE, Manifest, Snapshot, read_manifest
from glassrank.index.snippets import SnippetMaker, make_snippet
from glassrank.index.writer import UNCHANGED, check_is_index, open_writer
from glassrank.storage.folders import Folder
from glassrank.text.analysis import Analyzer
from glassrank.text.languages import get_analyzer, get_analyzer_by_name
from glassrank.tracing import span
from glassrank.types import Doc, Hit, Query, Ranking, Run


class ChangeCounts(NamedTuple):
    """The numbers of documents added to an index and deleted from it."""

    added: int
    deleted: int


class Index:
    """A folder of segments. Any number of threads and processes may search it; one process at a
    time may change it, and readers see the complete change after `refresh`.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> docs = [Doc("d1", "The cat sat on the mat."), Doc("d2", "Dogs chase cats.")]
    >>> index = Index.build(docs, folder.name + "/my.index")
    >>> [hit.doc_id for hit in index.search("a cat on a mat")]
    ['d1', 'd2']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | Path,
        *,
        verify: bool = True,
        checked: Sequence[SegmentRecord] | None = None,
    ) -> None:
        """Opens an index. `verify` reads every byte and compares checksums; without it only sizes
        are compared, which is enough for your own indexes. With `checked`, the values of all other
        segments are checked, since compiled code relies on them."""
        self.path = Path(path)
        self._move_to(Snapshot.open(self.path, verify=verify, checked=checked))

    def _move_to(self, snapshot: Snapshot) -> None:
        made_with = snapshot.manifest.analyzer
        analyzer = get_analyzer_by_name(made_with)
        if analyzer.name != made_with:
            raise InputError(
                f"{self.path} was made with the analyzer {made_with!r}, this version has "
                f"{analyzer.name!r}; build the index again",
                code="wrong_version",
            )
        self.snapshot = snapshot  # what was opened last
        self.analyzer: Analyzer = analyzer  # of its documents and queries

    @classmethod
    def from_snapshot(cls, path: str | Path, snapshot: Snapshot) -> "Index":
        """An index of an open snapshot, or of a part of one."""
        index = cls.__new__(cls)
        index.path = Path(path)
        index._move_to(snapshot)
        return index

    @classmethod
    def build(
        cls,
        docs: Iterable[Doc | Mapping[str, Any] | str],
        path: str | Path,
        *,
        overwrite: bool = False,
        language: str = "en",
    ) -> "Index":
        """Builds an index of documents, as one segment. A dict has the fields of a line of JSONL;
        a document without an id, such as a text, gets its position from 0 as id. `language` is the
        language of documents and queries: `de`, `fr`, `ja`, …, or `auto` if documents differ."""
        path = Path(path)
        analyzer = get_analyzer(language)
        check_target(path, overwrite=overwrite)
        with locate_duplicates(docs), open_writer(path, create=Manifest(analyzer.name)) as writer:
            if not writer.add(_to_docs(docs)):
                raise InputError("there are no documents to index; check the input")
        with _committed(path):
            return cls(path, verify=False)

    def add(self, docs: Iterable[Doc | Mapping[str, Any] | str], *, replace: bool = False) -> int:
        """Adds documents; with `replace`, they replace documents with the same ids."""
        return self.change(add=docs, replace=replace).added

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Deletes documents by id. Statistics and scores change at once."""
        return self.change(delete=doc_ids).deleted

    def merge(self) -> None:
        """Merges all segments into one, and frees the space of deleted documents."""
        self.change(merge=True)

    def change(
        self,
        *,
        delete: Iterable[str] = (),
        add: Iterable[Doc | Mapping[str, Any] | str] | None = None,
        replace: bool = False,
        merge: bool = False,
    ) -> ChangeCounts:
        """Deletes, then adds, then merges, in one atomic change."""
        with locate_duplicates(add), open_writer(self.path) as writer:
            deleted = writer.delete(delete)
            added = 0 if add is None else writer.add(_to_docs(add), replace_existing=replace)
            if merge:
                writer.merge()
            elif add is not None:
                writer.merge_small()
        with _committed(self.path):
            self._move_to(Snapshot.open(self.path, verify=False))
        return ChangeCounts(added, deleted)

    def refresh(self, *, verify: bool = False) -> bool:
        """Opens the newest state; returns whether there was one. The values of new segments are
        checked, and with `verify` all checksums. Running searches finish on the old state."""
        with wrap_os_errors(f"read the index {self.path}"):
            if read_manifest(self.path).state == self.snapshot.manifest.state:
                return False
        self._move_to(Snapshot.open(self.path, verify=verify, checked=self.snapshot.records))
        return True

    def search(
        self,
        query: str,
        k: int = 10,
        method: str | Method = "bm25",
        *,
        where: FilterSpec | None = None,
    ) -> Ranking:
        """Searches one query. `method` is `bm25`, `ql`, `bm25+rm3` or `ql+rm3`, with optional
        parameters: `bm25(k1=1.2,b=0.75)`. `where` filters documents:
        `{"year": {">=": 2019}, "lang": ["en", "de"]}`."""
        started = time.perf_counter()
        pinned = self.pin()
        snapshot = pinned.snapshot
        top = pinned.top_k([query], k, method, threads=1, where=where)[0]
        hits = tuple(
            Hit(rank, snapshot.doc_id(number), score).with_reader(
                partial(snapshot.doc, number), self.snippet_function(query)
            )
            for rank, (number, score) in enumerate(
                zip(top.docs.tolist(), top.scores.tolist(), strict=True), 1
            )
        )
        return Ranking(query, hits, timing={"first_stage": 1e3 * (time.perf_counter() - started)})

    def retrieve(
        self,
        queries: Sequence[Query],
        depth: int = 1000,
        method: str | Method = "bm25",
        threads: int | None = None,
        *,
        where: FilterSpec | None = None,
    ) -> Run:
        """Searches many queries, on all cores by default; `where` as in `search`."""
        pinned = self.pin()
        snapshot = pinned.snapshot
        texts = [query.text for query in queries]
        tops = pinned.top_k(texts, depth, method, threads, where=where)
        # Queries share documents: read each id once.
        numbers = np.unique(np.concatenate([np.empty(0, np.int64), *(top.docs for top in tops)]))
        ids = {number: snapshot.doc_id(number) for number in numbers.tolist()}
        return Run.from_rows(
            (query.query_id, map(ids.__getitem__, top.docs.tolist()), top.scores.astype(np.float64))
            for query, top in zip(queries, tops, strict=True)
        )

    def top_k(
        self,
        queries: Sequence[str],
        k: int,
        method: str | Method = "bm25",
        threads: int | None = None,
        deadline: Deadline = NEVER,
        *,
        where: FilterSpec | None = None,
    ) -> list[TopK]:
        """Document numbers and scores, for re-ranking. `Snapshot.doc` reads a document."""
        check_k(k)
        snapshot = self.snapshot.with_filter(where)
        parsed = parse_method(method) if isinstance(method, str) else method
        with span("tokenize"):
            terms = [self.analyzer(text) for text in queries]
        return self._search(snapshot, terms, k, parsed, threads, deadline)

    def terms(self, query: str) -> list[str]:
        """The analyzed terms of a query: stems, without stop words."""
        return self.analyzer(query)

    def dropped_terms(self, query: str) -> list[str]:
        """The terms that a search with a deadline leaves out because they are too frequent."""
        terms = dict.fromkeys(self.analyzer(query), 1.0)
        kept = drop_high_df_terms(self.snapshot, terms)
        return [term for term in terms if term not in kept]

    def _search(
        self,
        snapshot: Snapshot,
        queries: Sequence[Sequence[str]],
        k: int,
        method: Method,
        threads: int | None,
        deadline: Deadline,
    ) -> list[TopK]:
        """Overridden for an index in shards."""
        return run_method(snapshot, queries, k, method, threads, deadline)

    def doc(self, doc_id: str, characters: int | None = None) -> Doc:
        """A stored document, with its whole text or the first `characters` of it."""
        snapshot = self.snapshot
        number = snapshot.find(doc_id)
        if number < 0:
            raise InputError(f"no document of {self.path} has the id {doc_id!r}", code="not_found")
        return snapshot.doc(number, characters)

    def docs(self) -> Iterator[Doc]:
        """All live documents."""
        return self.snapshot.docs()

    def snippets(self, query: str) -> SnippetMaker:
        """Makes the snippets of texts for a query."""
        return SnippetMaker(query, self.analyzer)

    def snippet_function(self, query: str) -> Callable[[str, tuple[int, int] | None], str]:
        """A function that makes the snippet of a hit from its text and passage."""
        return partial(make_snippet, query, self.analyzer)

    def pin(self) -> "Index":
        """A copy that stays at the present state."""
        return copy.copy(self)

    @property
    def language(self) -> str:
        """The language of its documents: `en`, `de`, …, or `auto`."""
        return self.analyzer.language

    @property
    def state(self) -> tuple[str, int]:
        """Differs between any two states of this index or any other."""
        return self.snapshot.manifest.state

    @property
    def generation(self) -> int:
        """The number of changes to the index."""
        return self.snapshot.manifest.generation

    def __len__(self) -> int:
        return self.snapshot.collection.docs

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self.snapshot.find(doc_id) >= 0

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}: {len(self)} documents)"


def _to_docs(given: Iterable[Doc | Mapping[str, Any] | str]) -> Iterator[Doc]:
    from glassrank.corpus.records import to_docs  # a search does not need it

    return to_docs(given)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raises an error if no index may be built here."""
    with wrap_os_errors(f"write the index {path}", UNCHANGED):
        there = _names(path)
    if MANIFEST_FILE in there and not overwrite:
        raise InputError(
            f"{path} is an index already; add to it (--add), replace it (--overwrite), or choose "
            "another name",
            code="already_exists",
        )
    check_is_index(path, there)


def _names(path: Path) -> list[str]:
    """The entries of a folder; none if it does not exist."""
    try:
        with Folder.open(path) as folder:
            return folder.names()
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if not path.exists():  # its parent is a file
            raise
        message = f"{path} is not an index; choose another name"
        raise InputError(message, code="already_exists") from None


@contextmanager
def _committed(path: Path) -> Iterator[None]:
    """Says in errors that the change was made: what fails from here on does not undo it."""
    try:
        yield
    except GlassrankError as error:
        message = f"the change to {path} was made, but then: {error}"
        raise GlassrankError(message, code=error.code) from error


@contextmanager
def locate_duplicates(docs: Iterable[Any] | None) -> Iterator[None]:
    """Adds the lines of a duplicate id to the error, if the documents come from files."""
    try:
        yield
    except DuplicateIdError as error:
        locate = getattr(docs, "locate", None)
        where = locate(error.doc_id) if locate else ""
        raise DuplicateIdError(error.doc_id, where, indexed=error.indexed) from None
