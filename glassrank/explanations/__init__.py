"""What each word, query term and kernel added to the score."""

from glassrank.explanations.changes import Change, WhatIf, what_if
from glassrank.explanations.explainers import EXPLAINERS, explain_text
from glassrank.explanations.explanation import Explanation, ExplanationPair, compare, html_page
from glassrank.explanations.hits import (
    explain,
    explain_docs,
    explain_hits,
    one_or_both,
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
    "explain",
    "explain_docs",
    "explain_hits",
    "explain_text",
    "html_page",
    "one_or_both",
    "what_if",
    "what_if_doc",
]
