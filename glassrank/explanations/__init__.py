"""What each word, query term and kernel added to the score."""

from glassrank.explanations.changes import Change, WhatIf, what_if
from glassrank.explanations.explainers import EXPLAINERS, explain_text
from glassrank.explanations.explanation import Explanation, ExplanationPair, compare, html_page
from glassrank.explanations.hits import (
    compare_if_two,
    explain,
    explain_docs,
    explain_hits,
    what_if_doc,
)
from glassrank.explanations.structure import ScorePart

__all__ = [
    "EXPLAINERS",
    "Change",
    "Explanation",
    "ExplanationPair",
    "ScorePart",
    "WhatIf",
    "compare",
    "compare_if_two",
    "explain",
    "explain_docs",
    "explain_hits",
    "explain_text",
    "html_page",
    "what_if",
    "what_if_doc",
]
