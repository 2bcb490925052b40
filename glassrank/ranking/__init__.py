"""The second stage: candidates in the first stage's order in, a better order out, in time."""

from glassrank.deadline import Deadline
from glassrank.ranking.cost_model import CostModel
from glassrank.ranking.inputs import BudgetWarning
from glassrank.ranking.live import Reranker
from glassrank.ranking.model_language import LanguageWarning
from glassrank.ranking.pipeline import Pipeline, rerank_run
from glassrank.ranking.stages import warm_up
from glassrank.ranking.text_pipeline import TextPipeline, arank, load, rank

__all__ = [
    "BudgetWarning",
    "CostModel",
    "Deadline",
    "LanguageWarning",
    "Pipeline",
    "Reranker",
    "TextPipeline",
    "arank",
    "load",
    "rank",
    "rerank_run",
    "warm_up",
]
