"""Both clients, as they are, against a server that answers in the documented form (see
`elastic_server.py`): what is asked and what is read, not how well a real one ranks."""

from collections.abc import Iterator
from typing import Any

import pytest
from elastic_server import elastic_server

import glassrank as gr
from glassrank.errors import GlassrankError, InputError
from glassrank.index.first_stage import retrieve
from glassrank.integrations.engines import ElasticIndex


def made(package: str, address: str) -> Any:
    """The client of one of them."""
    library = pytest.importorskip(package, reason=f"the package {package} is not installed")
    if package == "elasticsearch":
        return library.Elasticsearch(address, max_retries=0)
    return library.OpenSearch(address, max_retries=0)


@pytest.fixture(params=["elasticsearch", "opensearchpy"])
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(package: str, texts: dict[str, str]) -> Iterator[Any]:
    with elastic_server(texts) as address:
        opened = made(package, address)
        yield opened
        opened.close()


def test_what_the_server_ranks(client: Any, query: str, best: str) -> None:
    ids, scores = ElasticIndex(client, "docs").search(query, 3)
    assert ids[0] == best and len(ids) == 3 and scores[0] == 4.0  # a, csv, file, read


def test_a_pipeline_within_a_budget(
    client: Any, texts: dict[str, str], query: str, best: str
) -> None:
    stage = ElasticIndex(client, "docs", title="name")
    ranking = gr.TextPipeline(stage, "fast", budget_ms=60_000)(query, k=3)
    assert ranking[0].doc_id == best and ranking[0].title == "A page"
    assert ranking[0].text == texts[best] and ranking.depth > 3


def test_what_is_not_there(client: Any) -> None:
    assert retrieve(ElasticIndex(client, "docs"), "xylophone", 3) == ([], [])
    with pytest.raises(GlassrankError, match=r"ElasticIndex failed \(NotFoundError: .*others"):
        retrieve(ElasticIndex(client, "others"), "csv", 3)
    with pytest.raises(InputError, match="docs has no document 'none' any more"):
        ElasticIndex(client, "docs").fetch(["csv", "none"])


def test_an_answer_of_some_shards_is_none(package: str, texts: dict[str, str]) -> None:
    with elastic_server(texts, failed=2) as address:
        client = made(package, address)
        with pytest.raises(GlassrankError, match="only some of the shards of docs"):
            retrieve(ElasticIndex(client, "docs"), "csv", 3)
        client.close()


def test_a_server_that_is_gone_is_a_sentence(package: str, texts: dict[str, str]) -> None:
    with elastic_server(texts) as address:
        client = made(package, address)
    with pytest.raises(GlassrankError, match=r"the first stage ElasticIndex failed \(Connection"):
        retrieve(ElasticIndex(client, "docs"), "csv", 3)
    client.close()
