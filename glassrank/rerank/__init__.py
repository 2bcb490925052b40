"""Re-ranking: candidates in the first stage's order in, a better order out, within a budget."""

from glassrank.deadline import Deadline as Deadline
from glassrank.rerank.inputs import BudgetWarning as BudgetWarning
from glassrank.rerank.inputs import LanguageWarning as LanguageWarning
from glassrank.rerank.pipeline import Pipeline as Pipeline
from glassrank.rerank.pipeline import rerank_run as rerank_run
from glassrank.rerank.reranker import Reranker as Reranker
from glassrank.rerank.scheduler import CostModel as CostModel
from glassrank.rerank.stages import warm_up as warm_up
from glassrank.rerank.text_pipeline import TextPipeline as TextPipeline
from glassrank.rerank.text_pipeline import arank as arank
from glassrank.rerank.text_pipeline import load as load
from glassrank.rerank.text_pipeline import rank as rank
