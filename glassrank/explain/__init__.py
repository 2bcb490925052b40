"""What each word, query term and kernel added to the score."""

from glassrank.explain.changes import Change, WhatIf, what_if
from glassrank.explain.differences import Comparison, compare
from glassrank.explain.explainers import EXPLAINERS, explain
from glassrank.explain.page import html_page
from glassrank.explain.structure import Explanation, Part

__all__ = [
    "EXPLAINERS",
    "Change",
    "Comparison",
    "Explanation",
    "Part",
    "WhatIf",
    "compare",
    "explain",
    "html_page",
    "what_if",
]
