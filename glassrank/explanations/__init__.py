"""What each word, query term and kernel added to the score."""

from glassrank.explanations.changes import Change as Change
from glassrank.explanations.changes import WhatIf as WhatIf
from glassrank.explanations.changes import what_if as what_if
from glassrank.explanations.explainers import EXPLAINERS as EXPLAINERS
from glassrank.explanations.explainers import explain_text as explain_text
from glassrank.explanations.explanation import Explanation as Explanation
from glassrank.explanations.explanation import ExplanationPair as ExplanationPair
from glassrank.explanations.explanation import compare as compare
from glassrank.explanations.explanation import html_page as html_page
from glassrank.explanations.hits import compare_if_two as compare_if_two
from glassrank.explanations.hits import explain as explain
from glassrank.explanations.hits import explain_docs as explain_docs
from glassrank.explanations.hits import explain_hits as explain_hits
from glassrank.explanations.hits import what_if_doc as what_if_doc
from glassrank.explanations.structure import ScorePart as ScorePart
