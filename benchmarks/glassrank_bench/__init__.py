"""Speed on this machine, as ratios within one run: against plain code, and against peers.

`glassrank bench` runs the cases here; the scripts in `benchmarks/` share what they measure on.
"""

from pathlib import Path

from glassrank_bench.measuring import Case, Result, Skipped, machine, run_cases

__all__ = ["Case", "Result", "Skipped", "all_cases", "machine", "run_cases"]


def all_cases(device: str = "cpu", passages: Path | None = None) -> list[Case]:
    """By name. `passages` are for live encoding: the Python documentation unless given."""
    if device != "cpu":
        from glassrank_bench import gpu

        return gpu.cases()
    from glassrank_bench import live, queries, stored

    return [
        Case("fused", stored.fused_against_plain),
        Case("stored", stored.stored_against_live),
        Case("live", lambda: live.against_the_authors(passages)),
        Case("sizes", queries.small_stores),
        Case("late-interaction", stored.against_late_interaction),
        Case("query", queries.against_cross_encoder),
        Case("noise", queries.machine_noise),
        Case("budget-stored", lambda: queries.budget_kept(stored=True)),
        Case("budget-live", lambda: queries.budget_kept(stored=False)),
    ]
