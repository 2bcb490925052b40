"""An index of Elasticsearch or OpenSearch as a first stage, through the client of either.

Tested with both clients against a server of ours that answers in the form that theirs document; no
server of theirs was at hand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from glassrank.errors import GlassrankError, InputError
from glassrank.retrieve.first_stage import ScoredIds


class ElasticIndex:
    """Documents that have any word of the query, as the server ranks them."""

    def __init__(
        self,
        client: Any,
        index: str,
        fields: Sequence[str] = ("text",),
        *,
        text: str = "text",
        title: str = "",
    ) -> None:
        """`client` is an `elasticsearch.Elasticsearch` or an `opensearchpy.OpenSearch`, which knows
        addresses, keys and how long it waits. `fields` are looked at for the query, and may be
        weighted (`title^2`)."""
        self._client = client
        self._index = index
        self._fields = list(fields)
        self._shown = {"text": text, **({"title": title} if title else {})}

    def search(self, query: str, k: int) -> ScoredIds:
        """By a `multi_match`; an answer that lacks some shards is none."""
        body = {
            "query": {"multi_match": {"query": query, "fields": self._fields}},
            "size": k,
            "_source": False,
        }
        answer = self._client.search(index=self._index, body=body)
        if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
            raise GlassrankError(
                f"the server searched only some of the shards of {self._index}; see its health"
            )
        hits = answer["hits"]["hits"]
        return ScoredIds([hit["_id"] for hit in hits], [hit["_score"] for hit in hits])

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        fields = list(self._shown.values())
        body = {"docs": [{"_id": doc_id, "_source": fields} for doc_id in doc_ids]}
        docs = self._client.mget(index=self._index, body=body)["docs"]
        return [self._doc(doc) for doc in docs]

    def _doc(self, doc: Mapping[str, Any]) -> dict[str, Any]:
        if not doc.get("found"):
            raise InputError(f"{self._index} has no document {doc['_id']!r} any more; search again")
        return {name: doc["_source"].get(field) or "" for name, field in self._shown.items()}
