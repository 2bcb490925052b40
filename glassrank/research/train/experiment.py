"""Train several models with several seeds, evaluate them on the same queries, and test them against
a baseline with a correction for multiple comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from glassrank.research.train.prepared_folders import load_prepared
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
        prepared = _load_or_prepare(path, config, device, say)
        split = _split_name(prepared)
        seeds_to_run = seeds or (config.seed,)
        trained: TrainingResult | None = None
        if config.search:
            config, trained, chosen[name] = _choose_setting(
                path, replace(config, seed=seeds_to_run[0]), prepared, device, say
            )
        for seed in seeds_to_run:
            say(f"{name}, seed {seed}")
            config = replace(config, seed=seed)
            if prepared.train.folds is None:
                trained = trained or _train(path, config, prepared, device, say)
                result, first = _evaluate(config, trained, prepared, measures, device)
                trained = None
            else:
                result, first = _evaluate_folds(path, config, prepared, measures, device, say)
            first_stage = first_stage or first
            systems.setdefault(name, []).append(result)
    assert first_stage is not None
    means = {name: _average([r.evaluation for r in results]) for name, results in systems.items()}
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
    wanted = preparation_settings(config), config.seed, config.out, config.prepared
    for number, tried in enumerate(expand_search(config)):
        if (preparation_settings(tried), tried.seed, tried.out, tried.prepared) != wanted:
            raise InputError(
                f"{path}: setting {number} of its search changes the seed, folders or the prepared "
                "arrays; make it a config of its own"
            )


def _comparison_key(path: Path, config: TrainConfig) -> object:
    """Everything that must be equal for results to be comparable."""
    names = ("docs", "dev_queries", "dev_qrels", "test_queries", "test_qrels")
    collections = [
        [collection.name, *(_resolve_source(path.parent, getattr(collection, n)) for n in names)]
        for collection in config.collections
    ]
    candidates = config.candidates
    same: list[object] = [
        collections,
        candidates.method,
        candidates.run,
        candidates.dev_depth,
        candidates.dev_queries,
    ]
    if config.folds is not None:
        asked = [(c.train_queries, c.train_qrels) for c in config.collections]
        same += [[_resolve_source(path.parent, name) for name in names] for names in asked]
        same += [
            config.folds,
            candidates.train_depth,
            candidates.train_queries,
            candidates.train_kept,
        ]
    return same


def _resolve_source(folder: Path, name: str | None) -> str | None:
    source = None if name is None else resolve_source(folder, name)
    return source if source is None or is_dataset_name(source) else str(Path(source).resolve())


def _split_name(prepared: Prepared) -> str:
    if prepared.train.folds is not None:
        return "cross-validated"
    return "dev" if prepared.test is None else "test"


def _load_or_prepare(path: Path, config: TrainConfig, device: str, say: Say) -> Prepared:
    folder = path.parent / config.prepared
    if not folder.exists():
        from glassrank.research.train.prepare import prepare
        from glassrank.research.train.prepared_folders import save_prepared
        from glassrank.research.train.training_texts import read_collections

        texts = read_collections(config, path.parent, say)
        save_prepared(folder, prepare(config, texts, path.parent, say, device))
    return load_prepared(folder, config)


def _choose_setting(
    path: Path, config: TrainConfig, prepared: Prepared, device: str, say: Say
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
        say(f"setting {number} of {len(settings) - 1}")
        if number or short:
            setting = replace(setting, out=f"{config.out}/setting-{number}")
        if short:
            setting = replace(setting, optimizer=replace(setting.optimizer, steps=short))
        tried.append((setting, _train(path, setting, prepared, device, say)))
    # At the best depth all settings below the first stage would tie with it, at depth 1.
    values = [trained.final.at_all for _, trained in tried]
    best = int(np.argmax(values))
    changed = config.search[best - 1] if best else "as it is"
    description = ", ".join(f"{value:.4f}" for value in values)
    after = f" after {short:,} steps" if short else ""
    measure = f"dev {config.validation.measure}, all candidates re-ranked"
    description = f"{changed} ({measure}, of each{after}: {description})"
    if short:
        return settings[best], None, description
    return *tried[best], description


def _train(
    path: Path, config: TrainConfig, prepared: Prepared, device: str, say: Say
) -> TrainingResult:
    """Train without the test queries."""
    out = path.parent / config.out / f"seed-{config.seed}"
    return train(config, replace(prepared, test=None), out, device, say, base=path.parent)


def _evaluate(
    config: TrainConfig,
    trained: TrainingResult,
    prepared: Prepared,
    measures: Sequence[str],
    device: str,
) -> tuple[SeedResult, Evaluation]:
    split = prepared.dev if prepared.test is None else prepared.test
    data = SplitTensors.read(split, prepared.docs, config.lengths, device)
    queries = np.arange(len(split.queries))
    scores = score_candidates(
        trained.model, data, queries, validation_precision(config, trained.model)
    )
    first_run, second_run, qrels = make_runs(split, queries, scores)
    depth = min(trained.final.depth, split.depths[-1])
    curves = evaluate_at_depths(
        first_run, second_run, qrels, measures, split.depths, per_query=True
    )
    per_query = {name: curve.per_query[depth - 1] for name, curve in curves.items()}
    evaluation = Evaluation.of(tuple(qrels), per_query)
    by_depth = {name: curve.mean.tolist() for name, curve in curves.items()}
    result = SeedResult(config.seed, (depth,), evaluation, by_depth)
    return result, evaluate(first_run, qrels, measures)


def _evaluate_folds(
    path: Path,
    config: TrainConfig,
    prepared: Prepared,
    measures: Sequence[str],
    device: str,
    say: Say,
) -> tuple[SeedResult, Evaluation]:
    results, firsts = [], []
    tested = queries_by_fold(prepared)
    for fold in range(len(tested)):
        say(f"fold {fold + 1} of {len(tested)}")
        wanted = replace(config, out=f"{config.out}/fold-{fold}")
        part = make_fold(prepared, fold)
        trained = _train(path, wanted, part, device, say)
        result, first = _evaluate(wanted, trained, part, measures, device)
        results.append(result)
        firsts.append(first)
    ids = tuple(str(query) for queries in tested for query in queries)
    evaluation = _concatenate(ids, [result.evaluation for result in results])
    depths = tuple(result.depths[0] for result in results)
    by_depth = _average_by_depth([len(queries) for queries in tested], results)
    return SeedResult(config.seed, depths, evaluation, by_depth), _concatenate(ids, firsts)


def _average_by_depth(
    queries: Sequence[int], results: Sequence[SeedResult]
) -> dict[str, list[float]]:
    """Means over the queries of all folds, to the smallest depth of them."""
    means = {}
    for name in results[0].by_depth:
        deepest = min(len(result.by_depth[name]) for result in results)
        rows = [result.by_depth[name][:deepest] for result in results]
        means[name] = np.average(rows, axis=0, weights=queries).tolist()
    return means


def _concatenate(ids: tuple[str, ...], parts: Sequence[Evaluation]) -> Evaluation:
    """Join evaluations of disjoint queries."""
    per_query = {
        name: np.concatenate([part.per_query[name] for part in parts])
        for name in parts[0].per_query
    }
    return Evaluation.of(ids, per_query)


def _average(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Average each query over seeds: significance tests are over queries."""
    per_query = {
        name: np.mean([evaluation.per_query[name] for evaluation in evaluations], axis=0)
        for name in evaluations[0].per_query
    }
    return Evaluation.of(evaluations[0].query_ids, per_query)
