"""LlamaIndex: a node postprocessor that re-ranks."""

from typing import Any

from glassrank.errors import InputError, needs_extra
from glassrank.integrations import rank_items

with needs_extra("integrations"):
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle


class GlassrankPostprocessor(BaseNodePostprocessor):
    """Re-ranks the nodes of a retriever, with the model's scores."""

    model: Any = None
    """As in `glassrank.rank`."""
    top_n: int | None = None
    """How many to keep; by default all."""
    budget_ms: float | None = None

    @classmethod
    def class_name(cls) -> str:
        """The name in LlamaIndex' files."""
        return "GlassrankPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("re-ranking needs a query; give query_str or query_bundle")
        ranked = rank_items(
            query_bundle.query_str,
            nodes,
            [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes],
            [node.score for node in nodes],
            model=self.model,
            k=self.top_n,
            budget_ms=self.budget_ms,
        )
        return [NodeWithScore(node=node.node, score=hit.score) for node, hit in ranked]
