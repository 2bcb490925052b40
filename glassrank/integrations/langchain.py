"""LangChain: a document compressor that re-ranks, and a retriever that searches."""

from collections.abc import Sequence
from typing import Any

from glassrank.integrations import extra
from glassrank.rerank import rank
from glassrank.rerank.relevance import relevance_scores
from glassrank.types import Ranking

with extra("integrations"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever


class GlassrankCompressor(BaseDocumentCompressor):
    """The best of the documents that a retriever has found, best first. Their metadata have a
    `relevance_score`, between 0 and 1 as in `/v1/rerank`, and the model's own `score`."""

    model: Any = None
    """As in `glassrank.rank`."""
    top_n: int | None = None
    """How many are kept; all, unless it is given."""
    budget_ms: float | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> list[Document]:
        """The documents in the model's order."""
        if not documents:
            return []
        texts = [document.page_content for document in documents]
        ranking = rank(query, texts, model=self.model, k=self.top_n, budget_ms=self.budget_ms)
        return [
            document.model_copy(update={"metadata": {**document.metadata, **scores}})
            for hit, scores in zip(ranking, _scores(ranking), strict=True)
            for document in [documents[hit.doc_id]]
        ]


class GlassrankRetriever(BaseRetriever):
    """A pipeline, with our first stage or another, as a retriever."""

    pipeline: Any
    """What `glassrank.open` gives, a `Pipeline` or a `TextPipeline`."""
    k: int = 10
    budget_ms: float | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        ranking = self.pipeline(query, self.k, budget_ms=self.budget_ms)
        return [
            Document(
                hit.text,
                id=str(hit.doc_id),
                metadata={
                    **hit.metadata,
                    "title": hit.title,
                    "source": hit.source or str(hit.doc_id),
                    **scores,
                },
            )
            for hit, scores in zip(ranking, _scores(ranking), strict=True)
        ]


def _scores(ranking: Ranking) -> list[dict[str, float]]:
    relevance = relevance_scores(ranking)
    return [
        {"relevance_score": value, "score": hit.score}
        for hit, value in zip(ranking, relevance, strict=True)
    ]
