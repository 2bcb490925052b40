"""LlamaIndex: a node postprocessor that re-ranks."""

from typing import Any

from glassrank.errors import InputError
from glassrank.integrations import extra, scores_if_all
from glassrank.rerank import rank

with extra("integrations"):
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle


class GlassrankPostprocessor(BaseNodePostprocessor):
    """The best of the nodes that a retriever has found, best first, with the model's scores."""

    model: Any = None
    """As in `glassrank.rank`."""
    top_n: int | None = None
    """How many are kept; all, unless it is given."""
    budget_ms: float | None = None

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex writes it down."""
        return "GlassrankPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("nodes are re-ranked for a query; give query_str or query_bundle")
        if not nodes:
            return []
        ranking = rank(
            query_bundle.query_str,
            [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes],
            model=self.model,
            scores=scores_if_all([node.score for node in nodes]),
            k=self.top_n,
            budget_ms=self.budget_ms,
        )
        return [NodeWithScore(node=nodes[hit.doc_id].node, score=hit.score) for hit in ranking]
