"""What each word, query term and kernel added to the score."""

from glassrank.explaining.changes import Change, WhatIf, what_if
from glassrank.explaining.explainers import EXPLAINERS, explain_text
from glassrank.explaining.explanation import Explanation, ExplanationPair, compare, html_page
from glassrank.explaining.hits import (
    explain,
    explain_docs,
    explain_hits,
    one_or_both,
    what_if_doc,
)
from glassrank.explaining.structure import ScorePart

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
