"""The second stage: candidates in the first stage's order in, a better order out, in time."""

from glassrank.deadline import Deadline
from glassrank.modules import make_callable
from glassrank.rank.live import Reranker
from glassrank.rank.pipeline import Pipeline, rerank_run
from glassrank.rank.planner import CostModel
from glassrank.rank.texts import load, rank

__all__ = ["CostModel", "Deadline", "Pipeline", "Reranker", "load", "rank", "rerank_run"]

make_callable(__name__, rank)
