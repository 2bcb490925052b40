"""Spans of a query's hops, as OpenTelemetry's own package collects them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import glassrank as gr
from glassrank import tracing
from glassrank.errors import InputError
from glassrank.serve import Options
from glassrank.serve.app import make_app

DOCS = [gr.Doc(f"d{n}", f"The cat sat on mat {n}.") for n in range(5)]


@pytest.fixture
def exported() -> Iterator[Any]:
    reason = "opentelemetry-sdk is not there"
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=reason)
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=reason)
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    tracing.enable_tracing(provider)
    yield exporter
    tracing.disable_tracing()
    provider.shutdown()


def names(exporter: Any) -> list[str]:
    return [span.name for span in sorted(exporter.get_finished_spans(), key=lambda s: s.start_time)]


HOPS = ["query", "retrieve", "tokenize", "batch", "interact", "sort"]


def test_each_hop_is_a_span_inside_its_query(exported: Any, tmp_path: Path) -> None:
    search = gr.Pipeline(gr.Index.build(DOCS, tmp_path / "i"), gr.load("fast"))
    exported.clear()  # of what was measured before the first query
    search("the cat sat", k=3)
    assert names(exported) == HOPS
    by_name = {span.name: span for span in exported.get_finished_spans()}
    query = by_name["query"]
    assert query.parent is None and query.attributes == {"glassrank.k": 3}
    inside = {name: by_name[name].parent.span_id for name in HOPS[1:]}
    assert inside.pop("tokenize") == by_name["retrieve"].context.span_id
    assert set(inside.values()) == {query.context.span_id}
    assert by_name["interact"].attributes == {"glassrank.model": "tk", "glassrank.documents": 5}


def test_a_list_of_texts_is_a_query_too(exported: Any) -> None:
    gr.rank("the cat sat", [doc.text for doc in DOCS], model="fast")
    assert names(exported) == ["query", "batch", "interact"]


def test_the_service_has_one_for_each_query(exported: Any, tmp_path: Path) -> None:
    gr.Index.build(DOCS, tmp_path / "i")
    app = make_app(Options(tmp_path / "i", (("fast", "fast"),), budget_ms=2000.0))
    with TestClient(app, base_url="http://localhost") as client:
        exported.clear()
        assert client.post("/search", json={"query": ["the cat", "a mat"]}).status_code == 200
    assert names(exported) == HOPS * 2


def test_switched_off_there_is_nothing_and_nothing_is_imported() -> None:
    assert tracing.span("query", k=1) is tracing.span("sort")
    code = (
        "import sys, glassrank as gr; gr.rank('a cat', ['the cat', 'a dog'], model='fast'); "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_without_the_package_asking_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InputError, match=r"pip install 'glassrank\[tracing\]'"):
        tracing.enable_tracing()
