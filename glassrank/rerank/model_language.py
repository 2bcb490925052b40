"""Warns once when texts are in another language than the model."""

import warnings
from collections.abc import Sequence

from glassrank.rerank.reranker import Reranker
from glassrank.text.detection import looks_foreign
from glassrank.types import Doc

_LOOKED_AT = 3
"""Texts of a list that are looked at."""
_warned = False


class LanguageWarning(UserWarning):
    """An English model on texts that are not English."""


def warn_if_texts_are_foreign(model: Reranker, docs: Sequence[Doc]) -> None:
    """For a list of texts."""
    if model.is_english and not _warned:
        texts = [f"{doc.title} {doc.text}" for doc in docs[:_LOOKED_AT]]
        if looks_foreign(texts):
            _warn("the texts do not look English")


def warn_if_index_is_foreign(models: Sequence[Reranker], languages: Sequence[str]) -> None:
    """For an index that holds documents in these languages."""
    foreign = [language for language in languages if language != "en"]
    if foreign and any(model.is_english for model in models):
        _warn(f"the index has documents in other languages ({', '.join(foreign)})")


def _warn(reason: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the package's models are English, and {reason}; give a multilingual model, or use "
            "the first stage alone",
            LanguageWarning,
            stacklevel=4,
        )
