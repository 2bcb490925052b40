"""The second stage: candidates in the first stage's order in, a better order out."""

from glassrank.rank.live import Reranker, rerank_rows

__all__ = ["Reranker", "rerank_rows"]
