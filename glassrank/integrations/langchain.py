"""LangChain: a document compressor that re-ranks, and a retriever that searches."""

from collections.abc import Sequence
from typing import Any

from glassrank.errors import needs_extra
from glassrank.integrations import rank_items
from glassrank.rerank.relevance import relevance_scores
from glassrank.types import Hit

with needs_extra("integrations"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever


class GlassrankCompressor(BaseDocumentCompressor):
    """Re-ranks the documents of a retriever. Their metadata get a `relevance_score` between 0 and
    1, as in `/v1/rerank`, and the model's `score`."""

    model: Any = None
    """As in `glassrank.rank`."""
    top_n: int | None = None
    """How many to keep; by default all."""
    budget_ms: float | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> list[Document]:
        """The documents in the model's order."""
        texts = [document.page_content for document in documents]
        options = {"model": self.model, "k": self.top_n, "budget_ms": self.budget_ms}
        ranked = rank_items(query, documents, texts, **options)
        scores = _score_metadata([hit for _, hit in ranked])
        return [
            document.model_copy(update={"metadata": {**document.metadata, **own}})
            for (document, _), own in zip(ranked, scores, strict=True)
        ]


class GlassrankRetriever(BaseRetriever):
    """A pipeline, with our first stage or another, as a retriever."""

    pipeline: Any
    """A `Pipeline` or a `TextPipeline`, as `glassrank.open` returns it."""
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
            for hit, scores in zip(ranking, _score_metadata(ranking.hits), strict=True)
        ]


def _score_metadata(hits: Sequence[Hit]) -> list[dict[str, float]]:
    return [
        {"relevance_score": value, "score": hit.score}
        for hit, value in zip(hits, relevance_scores(hits), strict=True)
    ]
