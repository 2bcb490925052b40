"""Re-ranking: candidates in the first stage's order in, a better order out, within a budget."""

from glassrank.deadline import Deadline
from glassrank.rerank.cost_model import CostModel
from glassrank.rerank.inputs import BudgetWarning
from glassrank.rerank.model_language import LanguageWarning
from glassrank.rerank.pipeline import Pipeline
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.run_candidates import rerank_run
from glassrank.rerank.stages import warm_up
from glassrank.rerank.text_pipeline import TextPipeline, arank, load, rank

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
