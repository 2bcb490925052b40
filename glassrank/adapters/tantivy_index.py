"""An index of tantivy's as a first stage."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassrank.adapters import extra
from glassrank.errors import InputError
from glassrank.retrieve.first_stage import ScoredIds

with extra("tantivy"):
    import tantivy

_WORD = re.compile(r"\w+")
_OPERATORS = frozenset("AND OR NOT IN".split())


class Tantivy:
    """Documents that have any word of the query, by tantivy's BM25."""

    def __init__(
        self,
        index: "tantivy.Index | str | Path",
        fields: Sequence[str] = ("text",),
        *,
        id: str = "id",  # noqa: A002
        text: str = "text",
        title: str = "",
    ) -> None:
        """An open index, or its folder. `fields` are looked at for the words of the query; `id`,
        `text` and `title` must be stored fields, and ids found as they are (the tokenizer `raw`).
        It is searched as it was committed last, when it is asked."""
        self._index = index if isinstance(index, tantivy.Index) else tantivy.Index.open(str(index))
        self._index.reload()  # what was committed since it was opened can be fetched at once
        self._fields = list(fields)
        self._id = id
        self._shown = {"text": text, **({"title": title} if title else {})}

    def search(self, query: str, k: int) -> ScoredIds:
        """Of the query the words are taken, so that nothing in it is an operator."""
        words = [word for word in _WORD.findall(query) if word not in _OPERATORS]
        if not words:
            return ScoredIds([], [])
        self._index.reload()
        searcher = self._index.searcher()
        hits = searcher.search(self._index.parse_query(" ".join(words), self._fields), k).hits
        return ScoredIds(
            [searcher.doc(address).get_first(self._id) for _, address in hits],
            [score for score, _ in hits],
        )

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        searcher = self._index.searcher()
        query = tantivy.Query.term_set_query(self._index.schema, self._id, list(doc_ids))
        docs = {}
        for _, address in searcher.search(query, max(1, len(doc_ids))).hits:
            doc = searcher.doc(address)
            docs[doc.get_first(self._id)] = {
                name: doc.get_first(field) or "" for name, field in self._shown.items()
            }
        if lacking := [doc_id for doc_id in doc_ids if doc_id not in docs]:
            raise InputError(
                f"the index of tantivy's has no document {lacking[0]!r} by its field {self._id!r}; "
                "ids must be stored, and indexed by the tokenizer raw"
            )
        return [docs[doc_id] for doc_id in doc_ids]
