"""Haystack: a ranker component."""

from dataclasses import replace

from glassrank.adapters import extra
from glassrank.errors import InputError
from glassrank.ranking import load, rank

with extra("haystack"):
    from haystack import Document, component


@component
class GlassrankRanker:
    """The best of the documents that a retriever has found, best first, with the model's scores."""

    def __init__(
        self, model: str = "default", top_k: int | None = 10, budget_ms: float | None = None
    ) -> None:
        """`model` is a folder, or `default` or `fast`; all of it can be written as YAML."""
        self.model = model
        self.top_k = top_k
        self.budget_ms = budget_ms

    def warm_up(self) -> None:
        """Loads and compiles, before the first query."""
        load(self.model, warm=True)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The documents in the model's order."""
        if not documents:
            return {"documents": []}
        texts = [document.content for document in documents]
        if None in texts:
            raise InputError("a document has no text in its content; only texts are ranked")
        ranking = rank(
            query, texts, model=self.model, k=top_k or self.top_k, budget_ms=self.budget_ms
        )
        return {"documents": [replace(documents[hit.doc_id], score=hit.score) for hit in ranking]}
