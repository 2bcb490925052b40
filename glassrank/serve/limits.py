"""Every limit of the service. Whatever a client can make grow has a bound here.

`glassrank serve --help` and docs/reference/http.md list them; `--limit NAME=VALUE` changes one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from glassrank.errors import InputError


def _limit(default: float, about: str) -> Any:
    """A field with the text that `--help` prints."""
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Limits:
    """Each holds for one process; `--workers 4` has four times as many connections."""

    # Requests
    body_bytes: int = _limit(8 << 20, "body of a request to re-rank texts")
    small_body_bytes: int = _limit(1 << 20, "body of any other request")
    body_values: int = _limit(100_000, "JSON values in a body of texts to re-rank")
    small_body_values: int = _limit(1_000, "JSON values in any other body")
    body_chunks: int = _limit(10_000, "chunks of a body with Transfer-Encoding: chunked")
    unfinished_body_bytes: int = _limit(128 << 20, "bodies that are still arriving, together")
    query_string_bytes: int = _limit(16 << 10, "query string")
    query_characters: int = _limit(2_000, "query")
    queries: int = _limit(64, "queries of a request")
    k: int = _limit(1_000, "hits of a query")
    results: int = _limit(10_000, "hits of all queries of a request")
    documents: int = _limit(10_000, "texts to re-rank")
    changed_documents: int = _limit(100, "documents among which a change is ranked")
    text_characters: int = _limit(200_000, "text to re-rank or to explain")
    name_characters: int = _limit(200, "names of models, methods and fields")
    id_characters: int = _limit(2_000, "document id")
    rank_fields: int = _limit(32, "fields of a document to re-rank")
    feedback: int = _limit(100, "RM3's documents and terms")
    budget_ms: float = _limit(10_000.0, "budget of a request, milliseconds")

    # Responses
    response_bytes: int = _limit(8 << 20, "response; hits beyond it have no title or snippet")
    title_characters: int = _limit(500, "title of a hit")
    metadata_bytes: int = _limit(16 << 10, "metadata of a hit")
    doc_characters: int = _limit(1_000_000, "text of a document in /doc")
    unread_bytes: int = _limit(64 << 20, "responses that clients have not read, together")

    # Connections
    connections: int = _limit(256, "open connections")
    connections_per_address: int = _limit(
        256, "open connections of one address that have not sent the key"
    )
    pipelined_requests: int = _limit(32, "pipelined requests of a client")
    keyless_requests_per_second: int = _limit(
        50, "requests of one address without the key, if there is a key"
    )
    addresses: int = _limit(4_096, "addresses whose requests are counted")
    header_seconds: float = _limit(10.0, "time for the headers of a first request")
    idle_seconds: float = _limit(30.0, "time from a response to the next request's headers")
    body_seconds: float = _limit(20.0, "time for a body")
    response_seconds: float = _limit(60.0, "time from the headers to the end of the response")
    unread_seconds: float = _limit(10.0, "time in which a client reads nothing of a response")
    log_lines_per_minute: int = _limit(100, "lines in the log")
    query_log_bytes: int = _limit(64 << 20, "file of the query log; eight files are kept")
    open_interleavings: int = _limit(10_000, "interleaved searches that wait for a click")


def change_limits(limits: Limits, settings: Iterable[str]) -> Limits:
    """Limits with `NAME=VALUE` settings applied.

    >>> change_limits(Limits(), ["connections=512"]).connections
    512
    """
    kinds = {each.name: type(getattr(limits, each.name)) for each in fields(limits)}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in kinds:
            raise InputError(
                f"--limit {setting!r}: unknown limit; `glassrank serve --help` lists them"
            )
        try:
            value = kinds[name](text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise InputError(f"--limit {setting!r}: expected NAME=VALUE with a positive number")
        limits = replace(limits, **{name: value})
    return limits


def describe_limits() -> list[tuple[str, str, str]]:
    """(name, default value, meaning) of each."""
    return [
        (
            each.name,
            f"{each.default:,g}" if isinstance(each.default, float) else f"{each.default:,}",
            each.metadata["about"],
        )
        for each in fields(Limits)
    ]
