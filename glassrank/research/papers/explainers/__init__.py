"""Explainers that only the papers' models need; `glassrank.explanations` finds them by name."""
