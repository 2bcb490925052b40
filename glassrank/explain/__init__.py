"""What each word, query term and kernel added to the score."""

from glassrank.explain.changes import Change, WhatIf, what_if
from glassrank.explain.explainers import EXPLAINERS, explain
from glassrank.explain.explanation import Explanation, ExplanationPair, compare
from glassrank.explain.hits import (
    explain_any,
    explain_docs,
    explain_hits,
    one_or_both,
    what_if_doc,
)
from glassrank.explain.page import html_page
from glassrank.explain.structure import ScorePart
from glassrank.modules import make_callable

__all__ = [
    "EXPLAINERS",
    "Change",
    "Explanation",
    "ExplanationPair",
    "ScorePart",
    "WhatIf",
    "compare",
    "explain",
    "explain_docs",
    "explain_hits",
    "html_page",
    "one_or_both",
    "what_if",
    "what_if_doc",
]

make_callable(__name__, explain_any)
