"""The index: documents in, rankings out."""

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
from glassrank.index.filters import FilterSpec, parse_filter
from glassrank.index.methods import Method, parse_method, run_method
from glassrank.index.search import TopK, drop_high_df_terms
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
    """How many documents were added to an index, and how many deleted."""

    added: int
    deleted: int


class Index:
    """A folder of segments. Searching is safe from any number of threads and processes; one
    process at a time may change it, and readers see a change whole, when they `refresh`.

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
        seen: Sequence[SegmentRecord] | None = None,
    ) -> None:
        """Opens an index. `verify` reads every byte once and compares checksums; without it only
        sizes are compared, which is enough for one's own. With `seen`, the numbers of segments that
        are not among it are looked at, since compiled code relies on them."""
        self.path = Path(path)
        self._move_to(Snapshot.open(self.path, verify=verify, seen=seen))

    def _move_to(self, snapshot: Snapshot) -> None:
        made_with, analyzer = (
            snapshot.manifest.analyzer,
            get_analyzer_by_name(snapshot.manifest.analyzer),
        )
        if analyzer.name != made_with:
            raise InputError(
                f"{self.path} was made with the analyzer {made_with!r}, this version has "
                f"{analyzer.name!r}; build the index again"
            )
        self._snapshot, self._analyzer = snapshot, analyzer

    @classmethod
    def from_snapshot(cls, path: str | Path, snapshot: Snapshot) -> "Index":
        """One that is open already, or a part of one."""
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
        """Makes an index of documents, as one segment. A dict has the fields of a line of JSONL;
        what has no id, as a text, is called by its place among them, from 0 on. `language` is
        theirs, and that of queries: `de`, `fr`, `ja`, …, or `auto` where each has its own."""
        path = Path(path)
        analyzer = get_analyzer(language)
        check_target(path, overwrite=overwrite)
        with locate_duplicates(docs), open_writer(path, create=Manifest(analyzer.name)) as writer:
            if not writer.add(_docs_from(docs)):
                raise InputError("there are no documents to index; check the input")
        with _committed(path):
            return cls(path, verify=False)

    def add(self, docs: Iterable[Doc | Mapping[str, Any] | str], *, replace: bool = False) -> int:
        """Adds documents; with `replace`, those whose ids are there already take their place."""
        return self.change(add=docs, replace=replace).added

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Deletes documents by id. Scores are at once as if they had never been there."""
        return self.change(delete=doc_ids).deleted

    def merge(self) -> None:
        """Rewrites all segments as one, and gives back the room of deleted documents."""
        self.change(merge=True)

    def change(
        self,
        *,
        delete: Iterable[str] = (),
        add: Iterable[Doc | Mapping[str, Any] | str] | None = None,
        replace: bool = False,
        merge: bool = False,
    ) -> ChangeCounts:
        """First deletes, then adds, then merges, and all of it at once or nothing."""
        with locate_duplicates(add), open_writer(self.path) as writer:
            deleted = writer.delete(delete)
            added = 0 if add is None else writer.add(_docs_from(add), replace_existing=replace)
            if merge:
                writer.merge()
            elif add is not None:
                writer.merge_small()
        with _committed(self.path):
            self._move_to(Snapshot.open(self.path, verify=False))
        return ChangeCounts(added, deleted)

    def refresh(self, *, verify: bool = False) -> bool:
        """Moves on to the newest state, and says whether there was one. New segments' numbers are
        looked at, and with `verify` all checksums.

        Searches that are running finish on the state they began with.
        """
        with wrap_os_errors(f"read the index {self.path}"):
            if read_manifest(self.path).state == self._snapshot.manifest.state:
                return False
        self._move_to(Snapshot.open(self.path, verify=verify, seen=self._snapshot.records))
        return True

    def search(
        self,
        query: str,
        k: int = 10,
        method: str | Method = "bm25",
        *,
        where: FilterSpec | None = None,
    ) -> Ranking:
        """One query. `method` is `bm25`, `ql`, `bm25+rm3` or `ql+rm3`, with parameters if need be:
        `bm25(k1=1.2,b=0.75)`. With `where`, among the documents that fit it:
        `{"year": {">=": 2019}, "lang": ["en", "de"]}`."""
        started = time.perf_counter()
        snapshot = self._snapshot
        top = self._run([query], k, method, snapshot, threads=1, where=where)[0]
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
        """Many queries at once, on all cores unless `threads` says otherwise; `where` as in
        `search`."""
        snapshot = self._snapshot
        texts = [query.text for query in queries]
        tops = self._run(texts, depth, method, snapshot, threads, where=where)
        # Many queries find the same documents: each id is read once.
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
        """The same as numbers: what the second stage starts from. See `Snapshot.doc`."""
        return self._run(queries, k, method, self._snapshot, threads, deadline, where)

    def terms(self, query: str) -> list[str]:
        """What is looked for: words without endings, and without those that are in every text."""
        return self._analyzer(query)

    def dropped_terms(self, query: str) -> list[str]:
        """The terms of a query that are too common to be looked for by a deadline, if any."""
        terms = dict.fromkeys(self._analyzer(query), 1.0)
        kept = drop_high_df_terms(self._snapshot, terms)
        return [term for term in terms if term not in kept]

    def _run(
        self,
        queries: Sequence[str],
        k: int,
        method: str | Method,
        snapshot: Snapshot,
        threads: int | None,
        deadline: Deadline = NEVER,
        where: FilterSpec | None = None,
    ) -> list[TopK]:
        if k < 1:
            raise InputError(f"at least one result must be asked for, not {k}")
        if where is not None and (conditions := parse_filter(where)):
            snapshot = snapshot.with_filter(conditions)
        parsed = parse_method(method) if isinstance(method, str) else method
        with span("tokenize"):
            terms = [self._analyzer(text) for text in queries]
        return self._search(snapshot, terms, k, parsed, threads, deadline)

    def _search(
        self,
        snapshot: Snapshot,
        queries: Sequence[Sequence[str]],
        k: int,
        method: Method,
        threads: int | None,
        deadline: Deadline,
    ) -> list[TopK]:
        return run_method(snapshot, queries, k, method, threads, deadline)

    def doc(self, doc_id: str, characters: int | None = None) -> Doc:
        """A stored document, with all of its text or its first so many characters."""
        snapshot = self._snapshot
        number = snapshot.find(doc_id)
        if number < 0:
            raise InputError(f"no document of {self.path} has the id {doc_id!r}")
        return snapshot.doc(number, characters)

    def docs(self) -> Iterator[Doc]:
        """All documents that are not deleted."""
        return self._snapshot.docs()

    def snippets(self, query: str) -> SnippetMaker:
        """Makes of texts the parts that show best why they were found."""
        return SnippetMaker(query, self._analyzer)

    def snippet_function(self, query: str) -> Callable[[str, tuple[int, int] | None], str]:
        """What makes a hit's snippet of its text and passage."""
        return partial(make_snippet, query, self._analyzer)

    def pin(self) -> "Index":
        """The index as it is now, and stays: all that is read from it belongs together."""
        return copy.copy(self)

    @property
    def language(self) -> str:
        """Of its documents: `en`, `de`, …, or `auto` where each has its own."""
        return self._analyzer.language

    @property
    def analyzer(self) -> Analyzer:
        """Makes terms of queries."""
        return self._analyzer

    @property
    def snapshot(self) -> Snapshot:
        """The index as it was read last."""
        return self._snapshot

    @property
    def state(self) -> tuple[str, int]:
        """Differs between any two states of this index or any other."""
        return self._snapshot.manifest.state

    @property
    def generation(self) -> int:
        """Counts the changes to the index."""
        return self._snapshot.manifest.generation

    def __len__(self) -> int:
        return self._snapshot.collection.docs

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self._snapshot.find(doc_id) >= 0

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}: {len(self)} documents)"


def _docs_from(given: Iterable[Doc | Mapping[str, Any] | str]) -> Iterator[Doc]:
    from glassrank.corpus.records import to_docs  # who only searches does not wait for it

    return to_docs(given)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Whether an index may be built here: nothing else is there, or it may be overwritten."""
    with wrap_os_errors(f"write the index {path}", UNCHANGED):
        there = _names(path)
    if MANIFEST_FILE in there and not overwrite:
        raise InputError(
            f"{path} holds an index already; add to it, or overwrite it, or choose another name"
        )
    check_is_index(path, there)


def _names(path: Path) -> list[str]:
    """What lies in a folder, which need not be there yet."""
    try:
        with Folder.open(path) as folder:
            return folder.names()
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if not path.exists():  # what should hold it is a file
            raise
        raise InputError(f"{path} is something else than an index; choose another name") from None


@contextmanager
def _committed(path: Path) -> Iterator[None]:
    """What fails from here on does not undo the change, and the error says so."""
    try:
        yield
    except GlassrankError as error:
        raise GlassrankError(f"the change to {path} is in, but then: {error}") from error


@contextmanager
def locate_duplicates(docs: Iterable[Any] | None) -> Iterator[None]:
    """Names the lines of a duplicate id, if the documents come from somewhere that can tell."""
    try:
        yield
    except DuplicateIdError as error:
        locate = getattr(docs, "locate", None)
        where = locate(error.doc_id) if locate else ""
        raise DuplicateIdError(error.doc_id, where, indexed=error.indexed) from None
