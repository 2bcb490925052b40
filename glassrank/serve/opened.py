"""The index with its models, at one moment; and the one that is served now.

A changed index is opened beside the one that is served, and then takes its place: a request that
is running ends on what it began with, and none ever sees half of a change.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from glassrank.errors import DiskError, GlassrankError, InputError, explained
from glassrank.rank import Pipeline, Reranker
from glassrank.retrieve import Index
from glassrank.retrieve.manifest import read_manifest
from glassrank.retrieve.methods import method_name
from glassrank.retrieve.segment import SegmentRecord
from glassrank.serve.options import Options
from glassrank.store import Store
from glassrank.store.manifest import FILE_NAME as STORE_FILE
from glassrank.store.manifest import stores_of

METHODS = ("bm25", "ql", "bm25+rm3", "ql+rm3")
NO_MODEL = "none"
"""What a request says instead of a model's name to have the first stage alone."""

_log = logging.getLogger("glassrank.serve")


@dataclass(frozen=True)
class Opened:
    index: Index
    pipelines: Mapping[str, Pipeline]
    """By the models' names; the first is used unless a request names another."""
    alone: str = "bm25"
    """The first stage where there is no model."""

    @classmethod
    def open(
        cls,
        options: Options,
        rerankers: Mapping[str, Reranker],
        *,
        verify: bool,
        seen: Sequence[SegmentRecord] = (),
    ) -> "Opened":
        """With each model's documents where they are stored, and all code compiled: the first
        request takes as long as later ones."""
        index = Index(options.index, verify=verify, seen=seen)
        pipelines = {
            name: Pipeline(
                index,
                reranker,
                store=Store.find(index, reranker.model, verify=verify),
                method=options.method or reranker.usage.first_stage,
                candidates=options.candidates,
            )
            for name, reranker in rerankers.items()
        }
        for doc in islice(index.docs(), 1):
            for method in METHODS:
                index.top_k([" ".join(doc.text.split()[:5])], 10, method)
        return cls(index, pipelines, options.method or "bm25")

    def method(self, pipeline: Pipeline | None) -> str:
        """The first stage, unless a request names another."""
        method = self.alone if pipeline is None else pipeline.method
        return method if isinstance(method, str) else method_name(method)

    def choose(self, model: str | None) -> tuple[str, Pipeline | None]:
        """By name; the first if none is named, and none at all where that was asked for."""
        if model == NO_MODEL or (model is None and not self.pipelines):
            return NO_MODEL, None
        return self.need(model)

    def need(self, model: str | None) -> tuple[str, Pipeline]:
        if not self.pipelines:
            raise InputError("this service was started without a model, so it can only search")
        name = next(iter(self.pipelines)) if model is None else model
        if name not in self.pipelines:
            known = ", ".join(self.pipelines)
            raise InputError(f"there is no model {name!r} here; there is {known}")
        return name, self.pipelines[name]


class Served:
    """What is served now. Reading `now` is all that a request does with it."""

    def __init__(self, options: Options, *, verify: bool = True, wait: bool = False) -> None:
        """With `wait`, until it can be opened: a worker that takes the place of another may begin
        when the index has documents that its stores do not have yet."""
        self._options = options
        self._rerankers = {
            name: Reranker.load(folder, options.device) for name, folder in options.models
        }
        said = ""
        while True:
            try:
                self._state = self._tried = _state(options.index)
                self.now = Opened.open(options, self._rerankers, verify=verify)
                break
            except (GlassrankError, OSError) as error:
                if not wait:
                    raise
                if str(error) != said:
                    _log.warning("a worker waits to begin: %s", error)
                said = str(error)
            time.sleep(options.refresh_seconds)
        self.behind = ""
        """Why there is a newer index that cannot be served, or not yet; empty if there is none."""

    def refresh(self) -> bool:
        """Takes up a changed index, or stores that are new; True if there was anything. If it
        cannot be done, what is served stays: a store may lack new documents until it is updated."""
        try:
            state = _state(self._options.index)
            if state == self._state:
                self.behind = ""
                return False
            if state == self._tried:  # in vain; something must be written first
                return False
            self._tried = state
            seen = self.now.index.snapshot.records
            self.now = Opened.open(self._options, self._rerankers, verify=False, seen=seen)
        except (GlassrankError, OSError) as error:
            if isinstance(error, OSError | DiskError):
                self._tried = ()  # which may go by itself
            if str(error) != self.behind:
                _log.warning("the changed index is not served yet: %s", error)
            self.behind = str(error)
            return False
        self._state, self.behind = state, ""
        _log.info("serving generation %d of the index", self.now.index.generation)
        return True


def _state(index: Path) -> tuple[object, ...]:
    """Differs whenever the index, or one of the stores inside, has been written."""
    with explained(f"read the index {index}"):
        stores = [path / STORE_FILE for path in stores_of(index)]
        return read_manifest(index).state, *(path.stat().st_mtime_ns for path in stores)
