"""Clients of other services, unchanged but for the address."""

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_service import on_a_socket

from glassrank.rerank import Reranker
from glassrank.serve import Options

cohere = pytest.importorskip("cohere", reason="the cohere package is not installed")

KEY = "a key of some length"
QUERY = "the cat sat"
TEXTS = ["dog", "the cat sat", "a cold sea", "cat cat cat", "the warm mat"]


@pytest.fixture(scope="module")
def guarded(options: Options) -> Any:
    with on_a_socket(replace(options, api_key=KEY)) as address:
        yield address


@pytest.fixture(scope="module")
def order(options: Options) -> list[int]:
    own = Reranker.load(dict(options.models)["tk"]).scores(QUERY, TEXTS).values
    return [int(place) for place in np.argsort(-own, kind="stable")]


def test_the_example_in_the_docs(guarded: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text("utf-8")
    [example] = re.findall("```python\n(.*?)```", page, re.DOTALL)
    langchain = pytest.importorskip("langchain_cohere", reason="langchain-cohere is not there")
    code = example.replace("http://localhost:8000", guarded).replace('"KEY"', repr(KEY))
    assert code.count(guarded) == 2
    with ExitStack() as closing:  # which an example need not show

        def client(*arguments: Any, **settings: Any) -> Any:
            return closing.enter_context(cohere.ClientV2(*arguments, **settings))

        given = {"cohere": SimpleNamespace(ClientV2=client), "langchain_cohere": langchain}
        exec(code, {**given, "texts": TEXTS})


def test_coheres_first_client(guarded: str, order: list[int]) -> None:
    with cohere.Client(KEY, base_url=guarded) as client:
        found = client.rerank(
            query=QUERY,
            documents=[{"text": text} for text in TEXTS],
            model="rerank-english-v3.0",
            top_n=3,
            return_documents=True,
            max_chunks_per_doc=10,
        )
    assert [result.index for result in found.results] == order[:3]
    assert [result.document.text for result in found.results] == [TEXTS[i] for i in order[:3]]
    assert all(0 < result.relevance_score < 1 for result in found.results)
    assert found.meta.api_version.version == "1"


def test_coheres_second_client(guarded: str, order: list[int]) -> None:
    with cohere.ClientV2(KEY, base_url=guarded) as client:
        found = client.rerank(
            query=QUERY, documents=TEXTS, model="rerank-v3.5", top_n=4, max_tokens_per_doc=512
        )
    assert [result.index for result in found.results] == order[:4]
    assert found.meta.api_version.version == "2"


def test_coheres_errors_carry_our_sentence(guarded: str) -> None:
    with (
        cohere.ClientV2("another key of some length", base_url=guarded) as client,
        pytest.raises(cohere.UnauthorizedError) as refused,
    ):
        client.rerank(query=QUERY, documents=TEXTS, model="rerank-v3.5")
    assert "Authorization: Bearer" in refused.value.body["message"]
    with (
        cohere.Client(KEY, base_url=guarded) as first,
        pytest.raises(cohere.BadRequestError) as bad,
    ):
        first.rerank(query=QUERY, documents=[])
    assert bad.value.body["message"] == "documents: expected at least one document"


def test_langchains_reranker(guarded: str, order: list[int]) -> None:
    langchain_cohere = pytest.importorskip(
        "langchain_cohere", reason="the langchain-cohere package is not installed"
    )
    from langchain_core.documents import Document

    reranker = langchain_cohere.CohereRerank(
        model="rerank-v3.5", cohere_api_key=KEY, base_url=guarded, top_n=2
    )
    documents = [Document(text, metadata={"n": number}) for number, text in enumerate(TEXTS)]
    found = reranker.compress_documents(documents, QUERY)
    assert [document.metadata["n"] for document in found] == order[:2]
    assert found[0].metadata["relevance_score"] > found[1].metadata["relevance_score"]
    reranker.client._client_wrapper.httpx_client.httpx_client.close()
