"""What calls `CrossEncoder.rank` of sentence-transformers may call this instead.

Nothing of that package is needed: the signature and the answer are the same, the model is ours.
"""

from collections.abc import Callable, Sequence
from typing import Any

from glassrank.errors import InputError
from glassrank.rerank import load, rank


class CrossEncoder:
    """A model that ranks documents for a query."""

    def __init__(self, model_name_or_path: str = "default", device: str | None = None) -> None:
        """A model folder, or `default` or `fast`."""
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
        """The best first: `corpus_id`, the document's place, `score`, and `text` if it is asked
        for. How many are scored at once is decided here, whatever `batch_size`, `chunk_size` and
        `pool` say, and there is no progress to show."""
        given = {
            "prompt_name": prompt_name,
            "prompt": prompt,
            "activation_fn": activation_fn,
            "device": device,
        }
        if meant := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{meant[0]} would change the scores, and is not known here")
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
