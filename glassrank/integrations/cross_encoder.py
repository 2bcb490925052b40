"""A drop-in replacement for `CrossEncoder.rank` of sentence-transformers: same signature, same
result, our models.
"""

from collections.abc import Callable, Sequence
from typing import Any

from glassrank.errors import InputError
from glassrank.rerank import load, rank


class CrossEncoder:
    """A model that ranks documents for a query."""

    def __init__(self, model_name_or_path: str = "default", device: str | None = None) -> None:
        """A model folder, or a name of the package."""
        self._reranker = load(model_name_or_path, device or "cpu")

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Callable[[Any], Any] | None = None,
        device: str | list[Any] | None = None,
        pool: dict[str, Any] | None = None,
        chunk_size: int | None = None,
    ) -> list[dict[str, int | float | str]]:
        """Dicts, best first, of `corpus_id` (the document's place), `score`, and `text` with
        `return_documents`. Ignores `batch_size`, `chunk_size`, `pool` and `show_progress_bar`."""
        unsupported = {
            "prompt_name": prompt_name,
            "prompt": prompt,
            "activation_fn": activation_fn,
            "device": device,
        }
        if given := [name for name, value in unsupported.items() if value is not None]:
            raise InputError(f"{given[0]} is not supported; leave it out")
        if not documents:
            return []
        ranking = rank(query, documents, model=self._reranker, k=top_k)
        return [
            {
                "corpus_id": hit.doc_id,
                "score": hit.score,
                **({"text": documents[hit.doc_id]} if return_documents else {}),
            }
            for hit in ranking
        ]
