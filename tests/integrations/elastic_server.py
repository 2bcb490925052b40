"""A small HTTP server that answers `_search` and `_mget` in the form that Elasticsearch and
OpenSearch document. It is none of theirs: it ranks by the number of words that agree."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def searched(docs: dict[str, str], body: dict[str, Any], failed: int) -> dict[str, Any]:
    query = words(body["query"]["multi_match"]["query"])
    assert body["query"]["multi_match"]["fields"] == ["text"] and body["_source"] is False
    scores = {doc_id: float(len(query & words(text))) for doc_id, text in docs.items()}
    best = sorted((doc_id for doc_id in docs if scores[doc_id]), key=lambda d: -scores[d])
    return {
        "took": 1,
        "timed_out": False,
        "_shards": {"total": 5, "successful": 5 - failed, "skipped": 0, "failed": failed},
        "hits": {
            "total": {"value": len(best), "relation": "eq"},
            "max_score": scores[best[0]] if best else None,
            "hits": [
                {"_index": "docs", "_id": doc_id, "_score": scores[doc_id]}
                for doc_id in best[: body["size"]]
            ],
        },
    }


def fetched(docs: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
    return {
        "docs": [
            {
                "_index": "docs",
                "_id": doc["_id"],
                "_version": 1,
                "found": True,
                "_source": {
                    name: value
                    for name, value in (("text", docs[doc["_id"]]), ("name", "A page"))
                    if name in doc["_source"]
                },
            }
            if doc["_id"] in docs
            else {"_index": "docs", "_id": doc["_id"], "found": False}
            for doc in body["docs"]
        ]
    }


@contextmanager
def elastic_server(docs: dict[str, str], failed: int = 0) -> Iterator[str]:
    """Its address, on this machine alone; `failed` shards say that they could not answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.startswith("/docs/_search"):
                self._answer(200, searched(docs, body, failed))
            elif self.path.startswith("/docs/_mget"):
                self._answer(200, fetched(docs, body))
            else:
                error = {"type": "index_not_found_exception", "reason": "no such index [others]"}
                self._answer(404, {"error": {"root_cause": [error], **error}, "status": 404})

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            asked = self.headers.get("Accept", "")
            is_elastic = "elasticsearch" in asked
            self.send_response(status)
            self.send_header("Content-Type", asked if is_elastic else "application/json")
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:  # of a test that fails or is skipped, too: its thread would look for ever
            server.shutdown()
