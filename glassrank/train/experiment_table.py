"""An experiment as a table: Markdown to read, plain values for JSON."""

from collections.abc import Iterable, Mapping

from glassrank.train.experiment import FIRST_STAGE, Experiment


def as_markdown(result: Experiment, alpha: float = 0.05) -> str:
    """One row for each system, best values marked where they differ from the baseline."""
    measures = list(result.first_stage.mean)
    p_values = {(row.system_name, row.measure): row.corrected_p for row in result.comparisons}
    first = " | ".join(_shown(result.first_stage.mean[m], 0.0) for m in measures)
    lines = [
        f"| system | {' | '.join(measures)} | depth | seeds |",
        f"|---|{'---|' * (len(measures) + 2)}",
        f"| {FIRST_STAGE} | {first} | | |",
    ]
    for name, results in result.systems.items():
        cells = [
            _shown(*result.spread(name, m)) + ("*" if p_values.get((name, m), 1.0) < alpha else "")
            for m in measures
        ]
        depths = ", ".join("/".join(map(str, seed.depths)) for seed in results)
        seeds = ", ".join(str(seed.seed) for seed in results)
        lines.append(f"| {name} | {' | '.join(cells)} | {depths} | {seeds} |")
    told = (
        f"{len(result.first_stage.query_ids):,} {result.split} queries, each model at the depth "
        "that its dev queries chose; ± is the deviation over seeds. "
        f"* differs from {result.baseline}: p < {alpha} in a paired t-test over queries (their "
        "means over seeds), Holm's correction "
        f"for {len(result.comparisons)} comparisons."
    )
    settings = [f"- {name}: {setting}" for name, setting in result.chosen.items()]
    if settings:
        settings = ["", "Settings that were best on dev queries:", "", *settings]
    return "\n".join([*lines, "", told, *settings, ""])


def _shown(mean: float, deviation: float) -> str:
    return f"{mean:.4f}" + (f" ± {deviation:.4f}" if deviation else "")


def _plain(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values]


def as_plain(result: Experiment) -> Mapping[str, object]:
    """The same and more, for JSON: each query's measures, in the order of the file of queries (with
    folds, fold by fold), and means at every depth."""
    return {
        "split": result.split,
        "queries": len(result.first_stage.query_ids),
        "baseline": result.baseline,
        "first_stage": result.first_stage.mean,
        "first_stage_per_query": {
            m: _plain(values) for m, values in result.first_stage.per_query.items()
        },
        "chosen": result.chosen,
        "systems": {
            name: [
                {
                    "seed": seed.seed,
                    "depths": seed.depths,
                    "mean": seed.evaluation.mean,
                    "by_depth": {m: _plain(values) for m, values in seed.by_depth.items()},
                    "per_query": {
                        m: _plain(values) for m, values in seed.evaluation.per_query.items()
                    },
                }
                for seed in results
            ]
            for name, results in result.systems.items()
        },
        "comparisons": [
            {
                "system": row.system_name,
                "measure": row.measure,
                "mean": row.system,
                "baseline": row.baseline,
                "p": row.p_value,
                "p_corrected": row.corrected_p,
            }
            for row in result.comparisons
        ],
    }
