"""Haystack: a ranker component."""

from dataclasses import replace

from glassrank.errors import InputError, needs_extra
from glassrank.integrations import rank_items
from glassrank.rerank import warm_up
from glassrank.rerank.text_pipeline import load_rerankers

with needs_extra("integrations"):
    from haystack import Document, component


@component
class GlassrankRanker:
    """Re-ranks the documents of a retriever, with the model's scores."""

    def __init__(
        self,
        model: str | list[str] | None = None,
        top_k: int | None = 10,
        budget_ms: float | None = None,
    ) -> None:
        """`model` is a name, as in `glassrank.rank`, so that a pipeline can be written as YAML."""
        self.model = model
        self.top_k = top_k
        self.budget_ms = budget_ms

    def warm_up(self) -> None:
        """Loads and compiles the model before the first query."""
        for reranker in load_rerankers(self.model, self.budget_ms is not None):
            warm_up(reranker)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The documents in the model's order."""
        texts = [document.content for document in documents]
        if None in texts:
            raise InputError("a document has no text in its content; only texts can be ranked")
        ranked = rank_items(
            query,
            documents,
            texts,
            [document.score for document in documents],
            model=self.model,
            k=top_k or self.top_k,
            budget_ms=self.budget_ms,
        )
        return {"documents": [replace(document, score=hit.score) for document, hit in ranked]}
