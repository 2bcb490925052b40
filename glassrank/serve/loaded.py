"""The index with its models at one moment, and what reloads it when it changes.

A changed index is loaded beside the current one, and then replaces it: a running request ends with
the state that it began with, and no request sees half of a change.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassrank.cluster import ShardedIndex, ShardedPipeline, Shards
from glassrank.cluster.cluster import RayShards, processors
from glassrank.embeddings.manifest import FILE_NAME as STORE_FILE
from glassrank.embeddings.manifest import list_stores
from glassrank.errors import DiskError, GlassrankError, InputError, wrap_os_errors
from glassrank.index import Index
from glassrank.index.methods import METHODS
from glassrank.index.segment import SegmentRecord
from glassrank.index.snapshot import read_manifest
from glassrank.rerank import Pipeline, Reranker, warm_up
from glassrank.rerank.cascade_plan import CascadePlan
from glassrank.rerank.stages import IndexStage
from glassrank.rerank.text_pipeline import LIST_MODELS
from glassrank.serve.options import Options

NO_MODEL = "none"
"""The model name of a request that asks for the first stage alone."""

_log = logging.getLogger("glassrank.serve")


@dataclass(frozen=True)
class LoadedIndex:
    """One state of index, models and stores; a request keeps the state that it began with."""

    index: Index
    pipelines: Mapping[str, Pipeline]
    """By name; the first is the default."""
    first_stage: Pipeline
    """A pipeline without a model."""

    @classmethod
    def open(
        cls,
        options: Options,
        rerankers: Mapping[str, Reranker],
        *,
        verify: bool,
        shards: Shards | None = None,
    ) -> "LoadedIndex":
        """Uses each model's store where there is one; `shards` have the same models."""
        index = _open_index(options.index, shards, verify=verify, checked=())
        plan = None if options.plan is None else CascadePlan.read(options.plan)
        numbers = {name: number for number, name in enumerate(rerankers)}
        pipelines = {
            name: _make_pipeline(
                index,
                {numbers[model]: rerankers[model] for model in models},
                method=options.method,
                first_stage=options.first_stage,
                regularization=options.regularization,
                candidates=options.candidates,
                plan=plan if len(models) > 1 else None,
                verify=verify,
            )
            for name, models in options.pipelines.items()
        }
        for reranker in rerankers.values():
            warm_up(reranker)  # for texts that come with a request
        return cls(index, pipelines, _make_pipeline(index, {}, method=options.method))._warm_up()

    def follow(self) -> "LoadedIndex":
        """The same, as index and stores are now."""
        seen = self.index.snapshot.records
        shards = self.index.shards if isinstance(self.index, ShardedIndex) else None
        index = _open_index(self.index.path, shards, verify=False, checked=seen)
        pipelines = {name: pipeline.follow(index) for name, pipeline in self.pipelines.items()}
        return LoadedIndex(index, pipelines, self.first_stage.follow(index))._warm_up()

    def _warm_up(self) -> "LoadedIndex":
        """Compiles all code and reads the filters' columns before the first request."""
        self.index.snapshot.prepare_filters()
        for doc in islice(self.index.docs(), 1):
            for method in METHODS:
                self.index.top_k([" ".join(doc.text.split()[:5])], 10, method)
        return self

    def list_warnings(self) -> list[str]:
        """One for each store that lacks documents, which are encoded on the fly."""
        lacking = {
            f"{stage.store.path} lacks {stage.num_missing:,} documents, which take longer to rank; "
            "run glassrank encode again"
            for stage in self._stages()
            if stage.store is not None and stage.num_missing
        }
        return sorted(lacking)

    def encodes_on_the_fly(self) -> bool:
        """Whether a model has to encode documents while a query waits."""
        return any(stage.store is None or stage.num_missing for stage in self._stages())

    def _stages(self) -> Iterator[IndexStage]:
        return (stage for pipeline in self.pipelines.values() for stage in pipeline.stages)

    def choose(self, model: str | None) -> tuple[str, Pipeline]:
        """By name; by default the first model, or the first stage if there is no model."""
        if model == NO_MODEL or (model is None and not self.pipelines):
            return NO_MODEL, self.first_stage
        return self.choose_model(model)

    def choose_model(self, model: str | None) -> tuple[str, Pipeline]:
        """The model of this name, or the first, and its pipeline."""
        if not self.pipelines:
            raise InputError("this service has no model, so it can only search")
        name = next(iter(self.pipelines)) if model is None else model
        if name not in self.pipelines:
            known = ", ".join(self.pipelines)
            raise InputError(f"there is no model {name!r} here; the models are: {known}")
        return name, self.pipelines[name]

    def list_rerankers(self, name: str) -> list[Reranker]:
        """The models for texts of a request; for `default`, all packaged ones that are loaded."""
        if name == LIST_MODELS[-1]:
            known = [self.pipelines.get(model) for model in LIST_MODELS]
            return [pipeline.reranker for pipeline in known if pipeline is not None]
        return [stage.reranker for stage in self.pipelines[name].stages]


def _open_index(
    path: Path, shards: Shards | None, *, verify: bool, checked: Sequence[SegmentRecord]
) -> Index:
    if shards is None:
        return Index(path, verify=verify, checked=checked)
    # Each shard verifies its own segments.
    return ShardedIndex(path.absolute(), shards, checked=checked)


def _make_pipeline(index: Index, models: Mapping[int, Reranker], **settings: Any) -> Pipeline:
    """`models` by their numbers among all models of the service."""
    rerankers = list(models.values())
    if isinstance(index, ShardedIndex):
        return ShardedPipeline(index, rerankers, numbers=list(models), **settings)
    return Pipeline(index, rerankers, **settings)


def _start_shards(options: Options) -> Shards:
    segments = max(1, len(read_manifest(options.index).segments))
    folders = [folder for _, folder in options.models]
    return RayShards(min(options.shards or processors(), segments), folders)


class IndexReloader:
    """Holds the loaded index, and replaces it when it changes. Requests only read `current`."""

    def __init__(self, options: Options, *, verify: bool = True, wait: bool = False) -> None:
        """With `wait`, tries until the index can be loaded: it may be unreadable for a moment when
        a worker replaces another."""
        self._options = options
        rerankers = {
            name: Reranker.load(folder, options.device, name=name)
            for name, folder in options.models
        }
        shards = None if options.ray is None else _start_shards(options)
        said = ""
        while True:
            try:
                self._state = self._tried = _read_state(options.index)
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
        """Why a newer index is not loaded; empty if there is none."""

    def refresh(self) -> bool:
        """Loads a changed index or new stores; True if there were any. Errors change nothing."""
        try:
            state = _read_state(self._options.index)
            if state == self._state:
                self.behind = ""
                return False
            if state == self._tried:  # it failed, and nothing has been written since
                return False
            self._tried = state
            self.current = self.current.follow()
        except (GlassrankError, OSError) as error:
            if isinstance(error, OSError | DiskError):
                self._tried = ()  # a disk error may pass
            if str(error) != self.behind:
                _log.warning("the changed index is not served yet: %s", error)
            self.behind = str(error)
            return False
        self._state, self.behind = state, ""
        for warning in () if self._options.reports_pending else self.current.list_warnings():
            _log.warning("%s", warning)
        _log.info("serving generation %d of the index", self.current.index.generation)
        return True


def _read_state(index: Path) -> tuple[object, ...]:
    """Changes whenever the index, or one of its stores, is written."""
    with wrap_os_errors(f"read the index {index}"):
        state = read_manifest(index).state
        stores = [path / STORE_FILE for path in list_stores(index)]
        return state, *(path.stat().st_mtime_ns for path in stores)
