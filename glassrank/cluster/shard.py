"""A shard: some segments of an index with their parts of its stores, searched and re-ranked there;
and how shards are called, all at once, within a deadline.

A shard is stateless but for what it has open: each call names a state of the index, and the shard
opens it if needed. So a restarted shard responds as before, and all shards respond from one state.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import use_compiled_code
from glassrank.cluster.mirror import Mirror
from glassrank.deadline import NEVER, Deadline, now
from glassrank.embeddings import Store
from glassrank.embeddings.manifest import FILE_NAME as STORE_FILE
from glassrank.embeddings.manifest import list_stores
from glassrank.errors import wrap_os_errors
from glassrank.index import Index
from glassrank.index.scoring import BM25, QL, CollectionStatistics, TermStatistics
from glassrank.index.search import TopK, WeightedQuery, search
from glassrank.index.segment import Segment
from glassrank.index.snapshot import Manifest, Snapshot, open_index
from glassrank.models.model import TokenEmbeddings
from glassrank.rerank.candidates import ScoredDocs
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.stages import Candidates, IndexStage

_KEPT = 2  # states that stay open: the newest, and the one before, for whoever began with that

Masks = list[tuple[NDArray[np.uint8], int]]
"""Of each segment, which documents may be found: bits, and how many there are."""


@dataclass(frozen=True)
class View:
    """A shard at one moment: what is asked is answered from exactly this."""

    path: Path
    manifest: Manifest
    """With this shard's segments alone."""
    others: frozenset[str]
    """Segments that other shards have."""
    stores: tuple[int, ...]
    """When each store was written last."""
    base: int
    """The number, in the whole index, of its first document."""
    docs: int
    """Documents, deleted ones included."""
    url: str | None = None
    """Where the index is, if it is not on this machine: the shard copies what it needs."""

    @property
    def name(self) -> str:
        """By its first segment."""
        first, *further = (record.name for record in self.manifest.segments)
        return f"{first} and {len(further)} more" if further else first

    @property
    def key(self) -> tuple[object, ...]:
        """Differs between any two states."""
        return self.manifest.state, self.base, self.docs, self.stores


def split_index(
    path: Path, snapshot: Snapshot, count: int, mirror: Mirror | None = None
) -> tuple[View, ...]:
    """Divides an index into shards of neighbouring segments with about as many documents."""
    if mirror is not None:
        stores, url = mirror.stores(), mirror.url
    else:
        with wrap_os_errors(f"read the stores of {path}"):
            stores = tuple((folder / STORE_FILE).stat().st_mtime_ns for folder in list_stores(path))
        url = None
    manifest, bases = snapshot.manifest, snapshot.bases
    names = frozenset(record.name for record in manifest.segments)
    parts = []
    for first, last in _split_evenly([len(segment) for segment in snapshot.segments], count):
        mine = manifest.segments[first:last]
        others = names - {record.name for record in mine}
        base, end = bases[first], bases[last]
        shard = replace(manifest, segments=mine)
        parts.append(View(path, shard, others, stores, base, end - base, url))
    return tuple(parts)


def _split_evenly(sizes: Sequence[int], count: int) -> list[tuple[int, int]]:
    """
    >>> _split_evenly([100, 100, 100, 5], 4), _split_evenly([7], 4)
    ([(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1)])
    >>> _split_evenly([100, 100, 100, 5], 3)
    [(0, 1), (1, 2), (2, 4)]
    """
    runs: list[tuple[int, int]] = []
    first = 0
    for left in range(min(count, len(sizes)), 0, -1):
        share = sum(sizes[first:]) / left
        last, total = first + 1, sizes[first]
        while len(sizes) - last > left - 1 and (left == 1 or total + sizes[last] / 2 < share):
            total += sizes[last]
            last += 1
        runs.append((first, last))
        first = last
    return runs


class _OpenView:
    """A view, open: its documents, and a stage for each model."""

    def __init__(self, view: View, models: Sequence[Reranker], *, verify: bool) -> None:
        records = view.manifest.segments
        path = view.path
        if view.url is not None:
            path = Mirror(view.url, records[0].name).part(records, view.others)
        with wrap_os_errors(f"read the index {path}"), open_index(path) as folder:
            segments = [
                Segment(folder, record, verify=verify, checked=None if verify else ())
                for record in records
            ]
        self.snapshot = Snapshot(view.manifest, segments)
        index = Index.from_snapshot(path, self.snapshot)
        self.stages = [
            IndexStage(
                model,
                self.snapshot,
                Store.find(index, model.model, verify=verify, without=view.others, graph=False),
                is_own_store=True,
            )
            for model in models
        ]


def _with_masks(snapshot: Snapshot, masks: Masks | None) -> Snapshot:
    if masks is None:
        return snapshot
    return snapshot.with_masks(
        [np.unpackbits(bits, count=count).view(np.bool_) for bits, count in masks]
    )


class ShardScores(NamedTuple):
    """Which of its candidates a shard has scored, and the milliseconds that took there."""

    scored: ScoredDocs
    took: float


class Shard:
    """Answers for one shard at a time, from any number of threads."""

    def __init__(self, models: Sequence[Reranker] = (), *, verify: bool = True) -> None:
        """`verify` reads every byte of what is opened once."""
        self._models = models
        self._verify = verify
        self._scheduler = Scheduler()
        self._opened: dict[tuple[object, ...], _OpenView] = {}
        self._lock = threading.Lock()
        use_compiled_code()

    def prepare(self, view: View, calibrate: bool) -> None:
        """Opens a view before the first query; with `calibrate`, compiles code and learns costs."""
        opened = self._open(view)
        for stage in opened.stages if calibrate else ():
            stage.calibrate(now)

    def search(
        self,
        view: View,
        queries: Sequence[WeightedQuery],
        k: int,
        method: BM25 | QL,
        collection: CollectionStatistics,
        terms: Mapping[str, TermStatistics],
        masks: Masks | None,
    ) -> list[TopK]:
        """The best k of this shard for each query, with the statistics of the whole index."""
        snapshot = self._open(view).snapshot.with_statistics(collection, terms)
        tops = search(_with_masks(snapshot, masks), queries, k, method, threads=1)
        return [top._replace(docs=top.docs + view.base) for top in tops]

    def nearest(
        self, view: View, model: int, query: TokenEmbeddings, k: int, masks: Masks | None
    ) -> TopK:
        """The best k of this shard by vectors, by numbers of the whole index."""
        opened = self._open(view)
        top = opened.stages[model].nearest(query, k, _with_masks(opened.snapshot, masks))
        return top._replace(docs=top.docs + view.base)

    def doc_vectors(self, view: View, model: int, docs: NDArray[np.int64]) -> NDArray[np.float32]:
        """Of documents by their numbers in the whole index."""
        return self._open(view).stages[model].read_doc_vectors(docs - view.base)

    def score(
        self,
        view: View,
        model: int,
        query: TokenEmbeddings,
        docs: NDArray[np.int64],
        first_stage: NDArray[np.float32],
        within_ms: float | None,
    ) -> ShardScores:
        """As many of these documents, by their numbers in the whole index, as the time allows."""
        began = self._scheduler.clock()
        deadline = Deadline.after(within_ms, self._scheduler.clock)
        stage = self._open(view).stages[model]
        candidates = stage.prepare_candidates(Candidates(query, docs - view.base, first_stage))
        scored = stage.score(candidates, self._scheduler, deadline)
        return ShardScores(scored, self._scheduler.clock() - began)

    def _open(self, view: View) -> _OpenView:
        with self._lock:
            opened = self._opened.pop(view.key, None)
            if opened is None:
                opened = _OpenView(view, self._models, verify=self._verify)
                while len(self._opened) >= _KEPT:
                    self._opened.pop(next(iter(self._opened)))
            self._opened[view.key] = opened
            return opened


Requests = Mapping[int, tuple[Any, ...]]
"""The arguments of a call, by the number of the shard."""


class Shards(ABC):
    """The shards of an index, wherever they run."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are; an index with fewer segments does not use them all."""

    @abstractmethod
    def call(self, method: str, requests: Requests, deadline: Deadline = NEVER) -> dict[int, Any]:
        """Calls a method of `Shard` on some shards. The responses that came in time; without a
        deadline, all of them, or an error that names the missing shard."""

    def prepare(self, views: Sequence[View], *, calibrate: bool) -> None:
        """Opens all views before the first query."""
        self.call("prepare", {number: (view, calibrate) for number, view in enumerate(views)})

    @abstractmethod
    def close(self) -> None:
        """Releases them."""


class LocalShards(Shards):
    """All shards in this process: the reference that a cluster must equal."""

    def __init__(self, count: int, models: Sequence[Reranker] = ()) -> None:
        self.shards = [Shard(models, verify=False) for _ in range(count)]
        self._threads = ThreadPoolExecutor(max_workers=count)

    def __len__(self) -> int:
        return len(self.shards)

    def call(self, method: str, requests: Requests, deadline: Deadline = NEVER) -> dict[int, Any]:
        """Each in a thread, which is abandoned if no response comes in time."""
        futures = {
            self._threads.submit(getattr(self.shards[number], method), *request): number
            for number, request in requests.items()
        }
        left = None if isinf(deadline.at) else max(0.0, deadline.remaining() / 1e3)
        done, _ = wait(futures, left)
        return {futures[future]: future.result() for future in done}

    def close(self) -> None:
        """Waits for what runs."""
        self._threads.shutdown()
