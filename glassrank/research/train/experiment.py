"""Train several models with several seeds, evaluate them on the same queries, and test them against
a baseline with a correction for multiple comparisons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassrank.corpus.irds import is_dataset_name, resolve_source
from glassrank.errors import InputError
from glassrank.research.evaluate import (
    Comparison,
    Evaluation,
    compare_all,
    evaluate,
    evaluate_at_depths,
)
from glassrank.research.train.batches import SplitTensors
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.config_files import (
    expand_search,
    preparation_settings,
    read_config,
    settings_hash,
)
from glassrank.research.train.loop import TrainingResult, train, validation_precision
from glassrank.research.train.prepared import Prepared, make_fold, queries_by_fold
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.research.train.validate import make_runs, score_candidates

FIRST_STAGE = "first stage"


@dataclass(frozen=True)
class SeedResult:
    """A model, or one for each fold, evaluated at the depth chosen on dev queries."""

    seed: int
    depths: tuple[int, ...]
    evaluation: Evaluation
    by_depth: Mapping[str, list[float]]
    """Each measure at depth 1, 2, …"""


@dataclass(frozen=True)
class Experiment:
    """All results."""

    split: str
    """The queries: test, dev if a config has no test queries, or cross-validated."""
    first_stage: Evaluation
    systems: dict[str, list[SeedResult]]
    baseline: str
    comparisons: list[Comparison] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    """For configs with a `search`: the chosen setting, and the values of all on dev queries."""
    settings: dict[str, str] = field(default_factory=dict)
    """The hash of each config's settings, to tell whether its file has changed since."""

    def spread(self, name: str, measure: str) -> tuple[float, float]:
        """Mean and standard deviation of a measure over seeds."""
        values = [result.evaluation.mean[measure] for result in self.systems[name]]
        return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def experiment(
    paths: Sequence[Path],
    seeds: Sequence[int] = (),
    measures: Sequence[str] = ("RR@10", "nDCG@10", "AP"),
    baseline: str = FIRST_STAGE,
    device: str = "cpu",
    say: Say = lambda _: None,
) -> Experiment:
    """Train each config with each seed (default: its own) into `seed-N` of its `out`; resume what
    was stopped. With a `search`, the first seed tries all settings, and the others take the best on
    dev queries. With `folds`, each query is evaluated by the model of its fold. Missing arrays are
    prepared first."""
    configs = _read_configs(paths)
    if baseline != FIRST_STAGE and baseline not in configs:
        raise InputError(f"unknown baseline {baseline!r}; expected one of {', '.join(configs)}")
    systems: dict[str, list[SeedResult]] = {}
    chosen: dict[str, str] = {}
    first_stage: Evaluation | None = None
    split = ""
    for name, (path, config) in configs.items():
        runs = _Runs(path.parent, device, measures, say)
        prepared = runs.load_or_prepare(config)
        folded = prepared.train.folds is not None
        split = "cross-validated" if folded else "dev" if prepared.test is None else "test"
        seeds_to_run = seeds or (config.seed,)
        trained: TrainingResult | None = None
        if config.search:
            config = replace(config, seed=seeds_to_run[0])
            config, trained, chosen[name] = runs.choose_setting(config, prepared)
        systems[name] = []
        for seed in seeds_to_run:
            say(f"{name}, seed {seed}")
            config = replace(config, seed=seed)
            if folded:
                result, first = runs.evaluate_folds(config, prepared)
            else:
                trained = trained or runs.train(config, prepared)
                result, first = runs.evaluate(config, trained, prepared)
                trained = None
            first_stage = first_stage or first
            systems[name].append(result)
    assert first_stage is not None
    means = {}  # of each query over seeds: significance tests are over queries
    for name, results in systems.items():
        evaluations = [result.evaluation for result in results]
        means[name] = _combine(evaluations[0].query_ids, evaluations, partial(np.mean, axis=0))
    against = first_stage if baseline == FIRST_STAGE else means[baseline]
    compared = {name: mean for name, mean in means.items() if name != baseline}
    rows = compare_all(compared, against) if compared else []
    hashes = {name: settings_hash(path) for name, (path, _) in configs.items()}
    return Experiment(split, first_stage, systems, baseline, rows, chosen, hashes)


def _read_configs(paths: Sequence[Path]) -> dict[str, tuple[Path, TrainConfig]]:
    """Read configs by file name; all must have the same queries."""
    configs: dict[str, tuple[Path, TrainConfig]] = {}
    for path in paths:
        name = path.stem if path.stem not in configs else f"{path.parent.name}/{path.stem}"
        if name in configs or path in [other for other, _ in configs.values()]:
            raise InputError(f"{path} was given twice; give each config once")
        configs[name] = path, read_config(path)
        _check_search(path, configs[name][1])
    if not configs:
        raise InputError("give one config or more")
    (first_path, first), *others = configs.values()
    for path, config in others:
        if _comparison_key(path, config) != _comparison_key(first_path, first):
            raise InputError(
                f"{path} and {first_path} differ in collections or candidates; run them separately"
            )
    return configs


def _check_search(path: Path, config: TrainConfig) -> None:
    """A search may not change the prepared arrays, the seed or folders, and does not go with folds:
    what one fold validates on, another tests."""
    if config.search and config.folds is not None:
        raise InputError(
            f"{path} has folds and a search, which chooses on test queries; leave out one"
        )

    def fixed(tried: TrainConfig) -> object:
        return preparation_settings(tried), tried.seed, tried.out, tried.prepared

    for number, tried in enumerate(expand_search(config)):
        if fixed(tried) != fixed(config):
            raise InputError(
                f"{path}: setting {number} of its search changes the seed, folders or the prepared "
                "arrays; make it a config of its own"
            )


def _comparison_key(path: Path, config: TrainConfig) -> object:
    """Everything that must be equal for results to be comparable."""
    candidates, folds = config.candidates, config.folds
    names = ["docs", "dev_queries", "dev_qrels", "test_queries", "test_qrels"]
    wanted: list[object] = [candidates.method, candidates.run]
    wanted += [candidates.dev_depth, candidates.dev_queries]
    if folds is not None:
        names += ["train_queries", "train_qrels"]
        wanted += [candidates.train_depth, candidates.train_queries, candidates.train_kept]
    collections = [
        [collection.name, *(_resolve_source(path.parent, getattr(collection, n)) for n in names)]
        for collection in config.collections
    ]
    return collections, wanted, folds


def _resolve_source(folder: Path, name: str | None) -> str | None:
    source = None if name is None else resolve_source(folder, name)
    return source if source is None or is_dataset_name(source) else str(Path(source).resolve())


@dataclass(frozen=True)
class _Runs:
    """Trains and evaluates the models of a config in the folder `base`."""

    base: Path
    device: str
    measures: Sequence[str]
    say: Say

    def load_or_prepare(self, config: TrainConfig) -> Prepared:
        folder = self.base / config.prepared
        if not folder.exists():
            from glassrank.research.train.prepare import prepare
            from glassrank.research.train.training_texts import read_collections

            texts = read_collections(config, self.base, self.say)
            save_prepared(folder, prepare(config, texts, self.base, self.say, self.device))
        return load_prepared(folder, config)

    def train(self, config: TrainConfig, prepared: Prepared) -> TrainingResult:
        """Train without the test queries."""
        out = self.base / config.out / f"seed-{config.seed}"
        untested = replace(prepared, test=None)
        return train(config, untested, out, self.device, self.say, base=self.base)

    def choose_setting(
        self, config: TrainConfig, prepared: Prepared
    ) -> tuple[TrainConfig, TrainingResult | None, str]:
        """Train all settings of a search, each in its folder. Returns the best on dev queries, its
        result unless trials are short, and a description."""
        short = config.search_steps
        if short:  # validate on as few queries as during training
            looked_at = np.arange(len(prepared.dev.queries))[: config.validation.queries]
            prepared = replace(prepared, dev=prepared.dev.select(looked_at))
        settings = expand_search(config)
        tried = []
        for number, setting in enumerate(settings):
            self.say(f"setting {number} of {len(settings) - 1}")
            if number or short:
                setting = replace(setting, out=f"{config.out}/setting-{number}")
            if short:
                setting = replace(setting, optimizer=replace(setting.optimizer, steps=short))
            tried.append((setting, self.train(setting, prepared)))
        # At the best depth all settings below the first stage would tie with it, at depth 1.
        values = [trained.final.at_all for _, trained in tried]
        best = int(np.argmax(values))
        changed = config.search[best - 1] if best else "as it is"
        after = f" after {short:,} steps" if short else ""
        measure = f"dev {config.validation.measure}, all candidates re-ranked"
        of_each = ", ".join(f"{value:.4f}" for value in values)
        description = f"{changed} ({measure}, of each{after}: {of_each})"
        if short:
            return settings[best], None, description
        return *tried[best], description

    def evaluate(
        self, config: TrainConfig, trained: TrainingResult, prepared: Prepared
    ) -> tuple[SeedResult, Evaluation]:
        """The result of one model, and the first stage's evaluation."""
        split = prepared.dev if prepared.test is None else prepared.test
        data = SplitTensors.read(split, prepared.docs, config.lengths, self.device)
        queries = np.arange(len(split.queries))
        precision = validation_precision(config, trained.model)
        scores = score_candidates(trained.model, data, queries, precision)
        first_run, second_run, qrels = make_runs(split, queries, scores)
        depth = min(trained.final.depth, split.depths[-1])
        curves = evaluate_at_depths(
            first_run, second_run, qrels, self.measures, split.depths, per_query=True
        )
        per_query = {name: curve.per_query[depth - 1] for name, curve in curves.items()}
        evaluation = Evaluation.of(tuple(qrels), per_query)
        by_depth = {name: curve.mean.tolist() for name, curve in curves.items()}
        result = SeedResult(config.seed, (depth,), evaluation, by_depth)
        return result, evaluate(first_run, qrels, self.measures)

    def evaluate_folds(
        self, config: TrainConfig, prepared: Prepared
    ) -> tuple[SeedResult, Evaluation]:
        """The same of one model for each fold."""
        results, firsts, tested = [], [], queries_by_fold(prepared)
        for fold in range(len(tested)):
            self.say(f"fold {fold + 1} of {len(tested)}")
            wanted = replace(config, out=f"{config.out}/fold-{fold}")
            part = make_fold(prepared, fold)
            result, first = self.evaluate(wanted, self.train(wanted, part), part)
            results.append(result)
            firsts.append(first)
        ids = tuple(str(query) for queries in tested for query in queries)
        evaluation = _combine(ids, [result.evaluation for result in results], np.concatenate)
        by_depth = {}  # means over the queries of all folds, to the smallest depth of them
        for name in results[0].by_depth:
            rows = [result.by_depth[name] for result in results]
            shared = [row[: min(map(len, rows))] for row in rows]
            by_depth[name] = np.average(shared, axis=0, weights=list(map(len, tested))).tolist()
        depths = tuple(result.depths[0] for result in results)
        first_stage = _combine(ids, firsts, np.concatenate)
        return SeedResult(config.seed, depths, evaluation, by_depth), first_stage


def _combine(
    ids: Sequence[str], parts: Sequence[Evaluation], how: Callable[[list[Any]], Any]
) -> Evaluation:
    names = parts[0].per_query
    per_query = {name: how([part.per_query[name] for part in parts]) for name in names}
    return Evaluation.of(ids, per_query)
