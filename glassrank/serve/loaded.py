"""The index with its models, at one moment; and the one that is served now.

A changed index is loaded beside the one that is served, and then takes its place: a request that
is running ends on what it began with, and none ever sees half of a change.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassrank.cluster import ShardedIndex, ShardedPipeline, Shards
from glassrank.embeddings.manifest import FILE_NAME as STORE_FILE
from glassrank.embeddings.manifest import stores_of
from glassrank.errors import DiskError, GlassrankError, InputError, wrap_os_errors
from glassrank.index import Index
from glassrank.index.segment import SegmentRecord
from glassrank.index.snapshot import read_manifest
from glassrank.rerank import Pipeline, Reranker, warm_up
from glassrank.rerank.cascade_plan import CascadePlan
from glassrank.rerank.text_pipeline import LIST_MODELS
from glassrank.serve.options import Options

METHODS = ("bm25", "ql", "bm25+rm3", "ql+rm3")
NO_MODEL = "none"
"""What a request says instead of a model's name to have the first stage alone."""

_log = logging.getLogger("glassrank.serve")


@dataclass(frozen=True)
class LoadedIndex:
    """One state of index, models and stores; a request keeps to the one that it began with."""

    index: Index
    pipelines: Mapping[str, Pipeline]
    """By the models' names; the first is used unless a request names another."""
    alone: Pipeline
    """The first stage, where there is no model."""

    @classmethod
    def open(
        cls,
        options: Options,
        rerankers: Mapping[str, Reranker],
        *,
        verify: bool,
        shards: Shards | None = None,
    ) -> "LoadedIndex":
        """With each model's documents where they are stored; `shards` have these models, too."""
        index = _index(options.index, shards, verify=verify, seen=())
        plan = None if options.plan is None else CascadePlan.read(options.plan)
        pipelines = {
            name: _pipeline(
                index,
                {number: rerankers[model] for number, model in _numbered(rerankers, models)},
                method=options.method,
                candidates=options.candidates,
                plan=plan if len(models) > 1 else None,
                verify=verify,
            )
            for name, models in options.pipelines.items()
        }
        loaded = cls(index, pipelines, _pipeline(index, {}, method=options.method))
        for reranker in rerankers.values():
            warm_up(reranker)  # for texts that are sent to be ranked
        return loaded.compiled()

    def follow(self) -> "LoadedIndex":
        """The same, as index and stores are now."""
        seen = self.index.snapshot.records
        shards = self.index.shards if isinstance(self.index, ShardedIndex) else None
        index = _index(self.index.path, shards, verify=False, seen=seen)
        pipelines = {name: pipeline.follow(index) for name, pipeline in self.pipelines.items()}
        return LoadedIndex(index, pipelines, self.alone.follow(index)).compiled()

    def compiled(self) -> "LoadedIndex":
        """With all code compiled, and fields in columns: the first request takes as long as later
        ones."""
        self.index.snapshot.prepare_filters()
        for doc in islice(self.index.docs(), 1):
            for method in METHODS:
                self.index.top_k([" ".join(doc.text.split()[:5])], 10, method)
        return self

    def lacking(self) -> list[str]:
        """Stores that lack documents, which are encoded when they are found, in sentences."""
        stages = {stage for pipeline in self.pipelines.values() for stage in pipeline.stages}
        return sorted(
            {
                f"{stage.store.path} lacks {stage.num_missing:,} documents, which take longer to "
                "rank; run glassrank encode again"
                for stage in stages
                if stage.store is not None and stage.num_missing
            }
        )

    def unencoded(self) -> bool:
        """Whether any model encodes documents when they are found."""
        stages = (stage for pipeline in self.pipelines.values() for stage in pipeline.stages)
        return any(stage.store is None or stage.num_missing for stage in stages)

    def choose(self, model: str | None) -> tuple[str, Pipeline]:
        """By name; the first if none is named, and none at all where that was asked for."""
        if model == NO_MODEL or (model is None and not self.pipelines):
            return NO_MODEL, self.alone
        return self.need(model)

    def need(self, model: str | None) -> tuple[str, Pipeline]:
        """The model of this name, or the first, and its pipeline; an error that names those there
        are."""
        if not self.pipelines:
            raise InputError("this service was started without a model, so it can only search")
        name = next(iter(self.pipelines)) if model is None else model
        if name not in self.pipelines:
            known = ", ".join(self.pipelines)
            raise InputError(f"there is no model {name!r} here; there is {known}")
        return name, self.pipelines[name]

    def for_texts(self, name: str) -> list[Reranker]:
        """The models of a pipeline, for texts that come with a request: of the package's, those
        that are served of the ones that rank any list."""
        if name == LIST_MODELS[-1]:
            served = [self.pipelines.get(model) for model in LIST_MODELS]
            return [pipeline.reranker for pipeline in served if pipeline is not None]
        return [stage.reranker for stage in self.pipelines[name].models]


def _index(
    path: Path, shards: Shards | None, *, verify: bool, seen: Sequence[SegmentRecord]
) -> Index:
    if shards is None:
        return Index(path, verify=verify, seen=seen)
    return ShardedIndex(path.absolute(), shards, seen=seen)  # they verify what is theirs


def _pipeline(index: Index, models: Mapping[int, Reranker], **settings: Any) -> Pipeline:
    rerankers = list(models.values())
    if isinstance(index, ShardedIndex):
        settings["verify"] = False
        return ShardedPipeline(index, rerankers, numbers=list(models), **settings)
    return Pipeline(index, rerankers, **settings)


def _numbered(rerankers: Mapping[str, Reranker], models: Sequence[str]) -> list[tuple[int, str]]:
    """Models with their numbers among all."""
    return [(list(rerankers).index(model), model) for model in models]


def _on_cluster(options: Options) -> Shards:
    from glassrank.cluster.cluster import RayShards, processors

    segments = max(1, len(read_manifest(options.index).segments))
    folders = [folder for _, folder in options.models]
    return RayShards(min(options.shards or processors(), segments), folders)


class IndexReloader:
    """What is served now. Reading `current` is all that a request does with it."""

    def __init__(self, options: Options, *, verify: bool = True, wait: bool = False) -> None:
        """With `wait`, until it can be loaded: a worker that takes the place of another may begin
        when the index cannot be read for a moment."""
        self._options = options
        rerankers = {
            name: Reranker.load(folder, options.device, name=name)
            for name, folder in options.models
        }
        shards = None if options.ray is None else _on_cluster(options)
        said = ""
        while True:
            try:
                self._state = self._tried = _state(options.index)
                self.current = LoadedIndex.open(options, rerankers, verify=verify, shards=shards)
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
        cannot be done, what is served stays."""
        try:
            state = _state(self._options.index)
            if state == self._state:
                self.behind = ""
                return False
            if state == self._tried:  # in vain; something must be written first
                return False
            self._tried = state
            self.current = self.current.follow()
        except (GlassrankError, OSError) as error:
            if isinstance(error, OSError | DiskError):
                self._tried = ()  # which may go by itself
            if str(error) != self.behind:
                _log.warning("the changed index is not served yet: %s", error)
            self.behind = str(error)
            return False
        self._state, self.behind = state, ""
        for sentence in () if self._options.reports_pending else self.current.lacking():
            _log.warning("%s", sentence)
        _log.info("serving generation %d of the index", self.current.index.generation)
        return True


def _state(index: Path) -> tuple[object, ...]:
    """Differs whenever the index, or one of the stores inside, has been written."""
    with wrap_os_errors(f"read the index {index}"):
        stores = [path / STORE_FILE for path in stores_of(index)]
        return read_manifest(index).state, *(path.stat().st_mtime_ns for path in stores)
