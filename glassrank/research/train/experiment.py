"""Several models, several seeds, one table: trained, measured on the same queries, and tested
against a baseline with a correction for all comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from glassrank.backends.gpu import get_device
from glassrank.corpus.irds import is_dataset_name, resolve_source
from glassrank.errors import InputError
from glassrank.research.evaluate import (
    Comparison,
    Evaluation,
    compare_all,
    evaluate,
    evaluate_at_depths,
)
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.config_files import preparation, read_config, settings_to_try
from glassrank.research.train.loop import Trained, train, validation_precision
from glassrank.research.train.prepared import Prepared, of_fold, queries_by_fold
from glassrank.research.train.prepared_folders import load_prepared
from glassrank.research.train.validate import both_runs, score_candidates

FIRST_STAGE = "first stage"


@dataclass(frozen=True)
class SeedResult:
    """One trained model, measured at the depth that its dev queries chose; or one for each fold."""

    seed: int
    depths: tuple[int, ...]
    evaluation: Evaluation
    by_depth: Mapping[str, list[float]]
    """Each measure when 1, 2, … candidates are re-ranked: with a speed, quality by time."""


@dataclass(frozen=True)
class Experiment:
    """All that was trained, and what it is worth."""

    split: str
    """Which queries these are: test, or dev where a config has no test queries; cross-validated
    where it has folds."""
    first_stage: Evaluation
    systems: dict[str, list[SeedResult]]
    baseline: str
    comparisons: list[Comparison] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    """Of systems whose config has a `search`: what was tried, and what it gave on dev queries."""

    def spread(self, name: str, measure: str) -> tuple[float, float]:
        """Mean and deviation of a measure over seeds; the deviation of one seed is 0."""
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
    """Trains each config with each seed (its own, unless some are given) into `seed-N` of its
    `out`, and goes on where it was stopped. Of a config with a `search`, the first seed tries all
    settings, and the others have those that were best on dev queries. Of a config with `folds`,
    each query is measured by the model of its fold. Arrays that are missing are prepared first,
    once for all that share them."""
    configs = _read(paths)
    if baseline != FIRST_STAGE and baseline not in configs:
        raise InputError(
            f"there is no {baseline!r} to compare with; known are {', '.join(configs)}"
        )
    systems: dict[str, list[SeedResult]] = {}
    chosen: dict[str, str] = {}
    first_stage: Evaluation | None = None
    split = ""
    for name, (path, config) in configs.items():
        prepared = _prepared(path, config, device, say)
        split = _split_name(prepared)
        asked = seeds or (config.seed,)
        trained: Trained | None = None
        if config.search:
            config, trained, chosen[name] = _best_setting(
                path, replace(config, seed=asked[0]), prepared, device, say
            )
        for seed in asked:
            say(f"{name}, seed {seed}")
            config = replace(config, seed=seed)
            if prepared.train.folds is None:
                trained = trained or _trained(path, config, prepared, device, say)
                result, first = _measured(config, trained, prepared, measures, device)
                trained = None
            else:
                result, first = _measured_by_folds(path, config, prepared, measures, device, say)
            first_stage = first_stage or first
            systems.setdefault(name, []).append(result)
    assert first_stage is not None
    means = {name: _mean_of([r.evaluation for r in results]) for name, results in systems.items()}
    against = first_stage if baseline == FIRST_STAGE else means[baseline]
    compared = {name: mean for name, mean in means.items() if name != baseline}
    rows = compare_all(compared, against) if compared else []
    return Experiment(split, first_stage, systems, baseline, rows, chosen)


def _read(paths: Sequence[Path]) -> dict[str, tuple[Path, TrainConfig]]:
    """By the names of their files; all of the same queries, or nothing could be compared."""
    configs: dict[str, tuple[Path, TrainConfig]] = {}
    for path in paths:
        name = path.stem if path.stem not in configs else f"{path.parent.name}/{path.stem}"
        if name in configs or path in [other for other, _ in configs.values()]:
            raise InputError(f"{path} was named twice; name each config once")
        configs[name] = path, read_config(path)
        _check_search(path, configs[name][1])
    if not configs:
        raise InputError("name one config or more")
    (first_path, first), *others = configs.values()
    for path, config in others:
        if _queries(path, config) != _queries(first_path, first):
            raise InputError(
                f"{path} has other collections or candidates than {first_path}, so that their "
                "figures cannot stand in one table; give them an experiment each"
            )
    return configs


def _check_search(path: Path, config: TrainConfig) -> None:
    """All settings are trained on the same arrays, so that none may change what those are made of;
    seeds and folders are the experiment's own. What one fold chooses on, another one tests."""
    if config.search and config.folds is not None:
        raise InputError(
            f"{path} has folds and a search, which would choose on queries that it tests; "
            "leave one of them out"
        )
    wanted = preparation(config), config.seed, config.out, config.prepared
    for number, tried in enumerate(settings_to_try(config)):
        if (preparation(tried), tried.seed, tried.out, tried.prepared) != wanted:
            raise InputError(
                f"{path}: setting {number} of its search changes the seed, a folder, or what "
                "arrays are prepared from; give it a config of its own"
            )


def _queries(path: Path, config: TrainConfig) -> object:
    """What has to be the same for figures to be of the same lists."""
    collections = [
        [collection.name, *(_place(path.parent, name) for name in _files(collection))]
        for collection in config.collections
    ]
    given = config.candidates
    same: list[object] = [collections, given.method, given.run, given.dev_depth, given.dev_queries]
    if config.folds is not None:
        asked = [(c.train_queries, c.train_qrels) for c in config.collections]
        same += [[_place(path.parent, name) for name in names] for names in asked]
        same += [config.folds, given.train_depth, given.train_queries, given.train_kept]
    return same


def _place(folder: Path, name: str | None) -> str | None:
    source = None if name is None else resolve_source(folder, name)
    return source if source is None or is_dataset_name(source) else str(Path(source).resolve())


def _files(collection: object) -> list[str | None]:
    names = ("docs", "dev_queries", "dev_qrels", "test_queries", "test_qrels")
    return [getattr(collection, name) for name in names]


def _split_name(prepared: Prepared) -> str:
    if prepared.train.folds is not None:
        return "cross-validated"
    return "dev" if prepared.test is None else "test"


def _prepared(path: Path, config: TrainConfig, device: str, say: Say) -> Prepared:
    folder = path.parent / config.prepared
    if not folder.exists():
        from glassrank.research.train.gather import gather
        from glassrank.research.train.prepare import prepare
        from glassrank.research.train.prepared_folders import save_prepared

        gathered = gather(config, path.parent, say)
        save_prepared(folder, prepare(config, gathered, path.parent, say, device))
    return load_prepared(folder, config)


def _best_setting(
    path: Path, config: TrainConfig, prepared: Prepared, device: str, say: Say
) -> tuple[TrainConfig, Trained | None, str]:
    """All settings of a config's search, each in a folder of its own; the best on dev queries, and
    what was trained by it, unless that was a short try."""
    short = config.search_steps
    if short:  # as quick to look at as at a step of a run
        looked_at = np.arange(len(prepared.dev.queries))[: config.validation.queries]
        prepared = replace(prepared, dev=prepared.dev.only(looked_at))
    settings = settings_to_try(config)
    tried = []
    for number, setting in enumerate(settings):
        say(f"setting {number} of {len(settings) - 1}")
        if number or short:
            setting = replace(setting, out=f"{config.out}/setting-{number}")
        if short:
            setting = replace(setting, optimizer=replace(setting.optimizer, steps=short))
        tried.append((setting, _trained(path, setting, prepared, device, say)))
    values = [trained.final.value for _, trained in tried]
    best = int(np.argmax(values))
    changed = config.search[best - 1] if best else "as it is"
    told = ", ".join(f"{value:.4f}" for value in values)
    after = f" after {short:,} steps" if short else ""
    told = f"{changed} (dev {config.validation.measure} of each{after}: {told})"
    if short:
        return settings[best], None, told
    return *tried[best], told


def _trained(path: Path, config: TrainConfig, prepared: Prepared, device: str, say: Say) -> Trained:
    """Without a look at test queries: only what dev queries chose is measured on them."""
    out = path.parent / config.out / f"seed-{config.seed}"
    return train(config, replace(prepared, test=None), out, device, say, base=path.parent)


def _measured(
    config: TrainConfig,
    trained: Trained,
    prepared: Prepared,
    measures: Sequence[str],
    device: str,
) -> tuple[SeedResult, Evaluation]:
    split = prepared.dev if prepared.test is None else prepared.test
    target = get_device(device)
    docs = Tokens.of(prepared.docs, config.doc_length, target)
    data = SplitTensors.of(split, docs, config.query_length, target)
    queries = np.arange(len(split.queries))
    scores = score_candidates(
        trained.model, data, queries, validation_precision(config, trained.model)
    )
    first_run, second_run, qrels = both_runs(split, queries, scores)
    deepest = max(int(split.ranks.max(initial=1)), 1)
    depth = min(trained.final.depth, deepest)
    curves = evaluate_at_depths(
        first_run, second_run, qrels, measures, range(1, deepest + 1), per_query=True
    )
    per_query = {name: curve.per_query[depth - 1] for name, curve in curves.items()}
    means = {name: float(values.mean()) for name, values in per_query.items()}
    evaluation = Evaluation(tuple(qrels), means, per_query)
    by_depth = {name: curve.mean.tolist() for name, curve in curves.items()}
    result = SeedResult(config.seed, (depth,), evaluation, by_depth)
    return result, evaluate(first_run, qrels, measures)


def _measured_by_folds(
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
        part = of_fold(prepared, fold)
        trained = _trained(path, wanted, part, device, say)
        result, first = _measured(wanted, trained, part, measures, device)
        results.append(result)
        firsts.append(first)
    ids = tuple(str(query) for queries in tested for query in queries)
    evaluation = _side_by_side(ids, [result.evaluation for result in results])
    depths = tuple(result.depths[0] for result in results)
    by_depth = _mean_by_depth([len(queries) for queries in tested], results)
    return SeedResult(config.seed, depths, evaluation, by_depth), _side_by_side(ids, firsts)


def _mean_by_depth(queries: Sequence[int], results: Sequence[SeedResult]) -> dict[str, list[float]]:
    """Over the queries of all folds, as deep as the one goes that goes least deep."""
    means = {}
    for name in results[0].by_depth:
        deepest = min(len(result.by_depth[name]) for result in results)
        rows = [result.by_depth[name][:deepest] for result in results]
        means[name] = np.average(rows, axis=0, weights=queries).tolist()
    return means


def _side_by_side(ids: tuple[str, ...], parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of queries that were measured in parts."""
    per_query = {
        name: np.concatenate([part.per_query[name] for part in parts])
        for name in parts[0].per_query
    }
    means = {name: float(values.mean()) for name, values in per_query.items()}
    return Evaluation(ids, means, per_query)


def _mean_of(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Each query's mean over seeds: tests are over queries, and seeds are no queries."""
    per_query = {
        name: np.mean([evaluation.per_query[name] for evaluation in evaluations], axis=0)
        for name in evaluations[0].per_query
    }
    means = {name: float(values.mean()) for name, values in per_query.items()}
    return Evaluation(evaluations[0].query_ids, means, per_query)
