"""Speed on this machine, as ratios within one run: against plain code, and against peers."""

from glassrank.bench.results import Case, Result, Skipped, run_cases

__all__ = ["Case", "Result", "Skipped", "run_cases"]
