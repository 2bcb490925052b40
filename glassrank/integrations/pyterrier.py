"""PyTerrier: transformers that retrieve and re-rank, without its Java parts.

PtRetriever(gr.open("my.index")) % 100 >> PtReranker("default")
"""

from typing import Any

from glassrank.errors import needs_extra
from glassrank.rerank import rank

with needs_extra("integrations"):
    import pandas as pd
    import pyterrier as pt


class PtRetriever(pt.Transformer):
    """A pipeline as a retriever: queries in, ranked documents and texts out."""

    def __init__(self, pipeline: Any, k: int = 1000, budget_ms: float | None = None) -> None:
        """`pipeline` is a `Pipeline` or a `TextPipeline`, as `glassrank.open` returns it."""
        super().__init__()
        self.pipeline = pipeline
        self.k = k
        self.budget_ms = budget_ms

    def transform(self, queries: pd.DataFrame) -> pd.DataFrame:
        """Reads `qid`, `query` and other columns; adds `docno`, `text`, `score` and `rank`."""
        pt.validate.query_frame(queries, extra_columns=["query"])
        rows = [
            {**query, "docno": str(hit.doc_id), "text": hit.text, "score": hit.score}
            for query in queries.to_dict(orient="records")
            for hit in self.pipeline(query["query"], self.k, budget_ms=self.budget_ms)
        ]
        return _sort(pd.DataFrame(rows, columns=[*queries.columns, "docno", "text", "score"]))


class PtReranker(pt.Transformer):
    """Re-ranks each query's documents."""

    def __init__(
        self, model: Any = None, budget_ms: float | None = None, text_field: str = "text"
    ) -> None:
        """`model` as in `glassrank.rank`; `text_field` is the column of the texts."""
        super().__init__()
        self.model = model
        self.budget_ms = budget_ms
        self.text_field = text_field

    def transform(self, results: pd.DataFrame) -> pd.DataFrame:
        """Reads `qid`, `query`, `docno` and the text; sets `score` and `rank`, best first."""
        pt.validate.result_frame(results, extra_columns=["query", self.text_field])
        results = results.drop(columns="rank", errors="ignore").reset_index(drop=True)
        scores = pd.Series(0.0, index=results.index)
        for _, docs in results.groupby("qid", sort=False):
            ranking = rank(
                docs["query"].iloc[0],
                docs[self.text_field],
                ids=docs.index,
                scores=docs.get("score"),
                model=self.model,
                budget_ms=self.budget_ms,
            )
            scores[[hit.doc_id for hit in ranking]] = [hit.score for hit in ranking]
        return _sort(results.assign(score=scores))


def _sort(results: pd.DataFrame) -> pd.DataFrame:
    """Keeps the order of queries, sorts documents by score; ranks count from 0, as in PyTerrier."""
    order = {qid: place for place, qid in enumerate(results["qid"].drop_duplicates())}
    results = (
        results.assign(_query=results["qid"].map(order))
        .sort_values(["_query", "score"], ascending=[True, False], kind="stable")
        .drop(columns="_query")
        .reset_index(drop=True)
    )
    return results.assign(rank=results.groupby("qid").cumcount())
