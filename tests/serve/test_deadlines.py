"""Time is kept wherever work could grow: explanations, changes, feedback, snippets, long lists."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_service import in_process, make_folders, message, tiny_knrm, tiny_tk
from starlette.testclient import TestClient

from glassrank.deadline import Deadline, LateError
from glassrank.explanations import Change, explain, what_if
from glassrank.explanations.attribution import Attribution, ScoredPair
from glassrank.explanations.changes import apply_change
from glassrank.explanations.leave_one_out import explain_leave_one_out
from glassrank.explanations.reading import read, word_spans
from glassrank.index import Index
from glassrank.index.scoring import BM25
from glassrank.index.search import RM3, expand, search
from glassrank.index.snippets import MAX_CHARS_READ, SnippetMaker
from glassrank.rerank import Reranker
from glassrank.research.papers.ensemble import Ensemble
from glassrank.research.papers.explainers.members import explain_ensemble
from glassrank.serve import Options
from glassrank.text import EnglishAnalyzer
from glassrank.types import Doc


class Steps:
    """A clock that stands still until it has been read so many times, and then it is late."""

    def __init__(self, reads: int) -> None:
        self.left = reads

    def __call__(self) -> float:
        self.left -= 1
        return 0.0 if self.left >= 0 else 1e9


def late_after(reads: int) -> Deadline:
    return Deadline(Steps(reads), 60_000.0)


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_tk(), exact=True)


@contextmanager
def with_docs(folder: Path, characters: int) -> Iterator[TestClient]:
    """A service that has, beside the usual documents, three of so many characters."""
    options = make_folders(folder)
    text = "cat dog sat " * (characters // 12)
    Index(options.index).add([Doc(f"long{n}", text, "long") for n in range(3)])
    with in_process(replace(options, models=options.models[1:])) as client:  # KNRM scores live
        yield client


@pytest.fixture(scope="module")
def long_docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Beside the usual ones, documents of megabytes."""
    with with_docs(tmp_path_factory.mktemp("long"), 4_800_000) as client:
        yield client


def test_an_explanation_ends_when_it_is_late(reranker: Reranker, monkeypatch: Any) -> None:
    monkeypatch.setattr("glassrank.explanations.leave_one_out._TOKENS_AT_ONCE", 1)
    monkeypatch.setattr(
        "glassrank.explanations.explainers.EXPLAINERS", {"tk": explain_leave_one_out}
    )
    text = "the cat sat on the mat"
    assert explain(reranker, "the cat", text, deadline=late_after(50)).doc.words
    for reads in range(5):
        with pytest.raises(LateError, match="not enough time for this explanation"):
            explain(reranker, "the cat", text, deadline=late_after(reads))


def test_members_of_an_ensemble_share_the_deadline(reranker: Reranker) -> None:
    seen: list[Deadline] = []

    def note(case: ScoredPair) -> Attribution:
        seen.append(case.deadline)
        return explain_leave_one_out(case)

    ensemble = Ensemble([reranker.model, tiny_knrm().model], [(6, 12), (6, 12)])
    deadline = late_after(10_000)
    query = read(reranker, "the cat", "query")
    case = ScoredPair.of(
        ensemble, query.batch, query.batch, query.words, query.words, deadline=deadline
    )
    explain_ensemble(case, note)
    assert seen == [deadline, deadline]


@pytest.mark.parametrize("side", ["query", "document"])
def test_a_change_ends_when_it_is_late(reranker: Reranker, side: Any) -> None:
    texts = ["the cat sat"] * 40
    change = Change(side, "cat", "dog")
    assert len(what_if(reranker, "the cat", texts, change, deadline=late_after(500)).moved) == 40
    for reads in range(3):
        with pytest.raises(LateError, match="not enough time for this change"):
            what_if(reranker, "the cat", texts, change, deadline=late_after(reads))


def test_a_word_that_stands_often_is_changed_in_one_go() -> None:
    text = "cat, " * 100_000
    began = time.process_time()
    assert apply_change(text, Change("document", "cat", "a dog")) == "a dog, " * 100_000
    assert time.process_time() - began < 2


def test_a_text_does_not_grow_without_end(client: TestClient) -> None:
    change = {"side": "document", "word": "cat", "by": "d" * 2000}
    asked = {"query": "cat", "text": ["cat " * 6000] * 40, "change": change}
    answer = client.post("/explain", json=asked)
    assert answer.status_code == 400 and "use a shorter replacement" in message(answer)


def test_words_that_are_not_there_are_not_looked_for_to_the_end() -> None:
    text = "ab " * 100_000
    began = time.process_time()
    spans = word_spans(text, ["zz"] * 50_000 + ["ab"])
    assert spans[:-1] == [None] * 50_000 and spans[-1] == (0, 2)
    assert time.process_time() - began < 1


def test_feedback_takes_what_the_time_allows(tmp_path: Path) -> None:
    rare = [Doc(f"d{n}", f"cat rare{n} word{n}") for n in range(20)]
    index = Index.build(rare, tmp_path / "index")
    query, method = {"cat": 1.0}, RM3(BM25(), terms=20, docs=20)
    found = search(index.snapshot, [query], 20, BM25())[0]
    whole = expand(index.snapshot, query, found, method)
    assert expand(index.snapshot, query, found, method, late_after(10_000)) == whole
    assert expand(index.snapshot, query, found, method, late_after(0)) == query
    sizes = [len(expand(index.snapshot, query, found, method, late_after(n))) for n in range(40)]
    assert sizes == sorted(sizes) and len(set(sizes)) > 5
    assert sizes[0] == 1 and sizes[-1] <= len(whole) == 21


def test_a_late_search_is_answered_without_feedback(client: TestClient) -> None:
    asked = {"query": "cat", "method": "bm25+rm3(terms=100,docs=100)", "model": "none"}
    late = client.post("/search", json={**asked, "budget_ms": 0.01})
    plain = client.post("/search", json={"query": "cat", "model": "none"})
    if late.status_code == 200:  # it may also be refused
        ids = [[hit["doc_id"] for hit in answer.json()["hits"]] for answer in (late, plain)]
        assert ids[0] == ids[1]


def test_words_that_too_many_documents_have_are_left_out_and_named(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"query": "cat dog", "model": "none", "k": 40}
    assert "left_out" not in client.post("/search", json=asked).json()
    monkeypatch.setattr("glassrank.index.search.MAX_POSTINGS", 39)
    answer = client.post("/search", json=asked).json()
    assert answer["left_out"] == ["cat"]
    assert 0 < len(answer["hits"]) < 40


def test_a_snippet_reads_a_bounded_part() -> None:
    analyzer = EnglishAnalyzer()
    far = "word " * MAX_CHARS_READ + "cat"
    snippet = SnippetMaker("cat", analyzer)(far)
    assert snippet.matches == () and snippet.text.endswith(" …")
    near = "cat " + "word " * MAX_CHARS_READ
    assert SnippetMaker("cat", analyzer)(near).matches == ((0, 3),)


def test_a_word_that_stands_everywhere_costs_a_snippet_no_more() -> None:
    text, analyzer = "x " * (MAX_CHARS_READ // 2), EnglishAnalyzer()
    began = time.process_time()
    for _ in range(10):
        assert len(SnippetMaker("x", analyzer)(text).matches) > 50
    assert time.process_time() - began < 1.0


@pytest.mark.long
def test_long_documents_are_not_read_to_their_end(long_docs: TestClient, tmp_path: Path) -> None:
    """In all three ways: as hits with snippets, scored live, and explained. One of megabytes takes
    about as long as one of which a model reads a small part as well."""

    def took(client: TestClient) -> float:
        began = time.process_time()
        found = client.post("/search", json={"query": "cat dog", "budget_ms": 5000})
        assert {hit["doc_id"] for hit in found.json()["hits"]} >= {"long0", "long1", "long2"}
        asked = {"query": "cat", "doc_id": ["long0", "long1"]}
        assert client.post("/explain", json=asked).is_success
        change = {"side": "document", "word": 1, "by": "mat"}
        asked = {"query": "cat", "doc_id": "long0", "change": change}
        assert client.post("/explain", json=asked).is_success
        return time.process_time() - began

    with with_docs(tmp_path, 100_000) as shorter:
        times = np.array([[took(long_docs), took(shorter)] for _ in range(3)])  # (3, 2)
    of_long, of_shorter = times[1:].min(0)  # the first may open files
    assert of_long < 2 * of_shorter


def test_a_long_document_is_sent_in_part(long_docs: TestClient) -> None:
    answer = long_docs.get("/doc?id=long0").json()
    assert len(answer["text"]) == 1_000_000 and answer["cut"] is True
    assert "cut" not in long_docs.get("/doc?id=d1").json()


def test_late_hits_have_no_snippets_but_the_first_do(client: TestClient) -> None:
    answer = client.post("/search", json={"query": "cat", "k": 40, "budget_ms": 0.5})
    if answer.status_code == 200:
        hits = answer.json()["hits"]
        assert len(hits) == 40 and all("snippet" in hit for hit in hits[:10])
        assert not all("snippet" in hit for hit in hits)
    whole = client.post("/search", json={"query": "cat", "k": 40, "budget_ms": 5000}).json()
    assert all("snippet" in hit for hit in whole["hits"])


def test_one_request_computes_no_longer_than_it_may(options: Options) -> None:
    with in_process(replace(options, work_ms=30.0, texts_budget_ms=9000.0)) as client:
        asked: dict[str, Any] = {"query": "cat", "documents": ["the cat sat " * 9] * 9000}
        began = time.process_time()
        answer = client.post("/v1/rerank", json=asked)
        assert answer.status_code == 200 and len(answer.json()["results"]) == 9000
        assert "budget used up at depth" in answer.json()["meta"]["warnings"][-1]
        assert time.process_time() - began < 1.5


@pytest.mark.parametrize("asked", [{}, {"change": {"side": "query", "word": "cat", "by": "dog"}}])
def test_long_documents_are_explained_in_the_time_there_is(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    """Dozens of passages each, of which a store has none."""
    options = make_folders(tmp_path)
    index = Index(options.index)
    index.add([Doc(f"long{n}", "cat dog sat " * 2000) for n in range(200)])
    with in_process(replace(options, models=options.models[1:], work_ms=100.0)) as client:
        for _ in range(2):  # the first may open files
            began = time.process_time()
            answer = client.post("/explain", json={"query": "cat", "doc_id": "long0", **asked})
            took = time.process_time() - began
            assert answer.status_code == 200
        assert took < 1


def test_many_queries_of_one_request_compute_no_longer_than_it_may(options: Options) -> None:
    # No machine answers 64 queries in a millisecond.
    with in_process(replace(options, work_ms=1.0)) as client:
        answer = client.post("/search", json={"query": ["the cat sat"] * 64, "budget_ms": 9000})
        assert answer.status_code == 503 and "64 queries at once" in message(answer)
        assert "retry-after" in answer.headers


def test_time_in_which_others_compute_is_not_counted_as_work() -> None:
    deadline = Deadline.after(60_000).or_thread_time(50)
    assert 0 < deadline.remaining() <= 50
    time.sleep(0.1)
    assert not deadline.has_passed()
    began = time.thread_time()
    while time.thread_time() - began < 0.06:
        pass
    assert deadline.has_passed()
    short = Deadline.after(50).or_thread_time(60_000)
    time.sleep(0.06)
    assert short.has_passed()


def test_several_threads_share_one_pipeline(options: Options) -> None:
    """What several threads answer at once is what one answers alone."""
    queries = [f"the {word} cat" for word in ("cold", "warm", "sea", "dog", "bird", "mat")]

    def ask(client: TestClient, query: str, model: str) -> Any:
        asked = {"query": query, "model": model, "k": 40, "budget_ms": 9000}
        answer = client.post("/search", json=asked)
        assert answer.status_code == 200, answer.text
        hits = answer.json()["hits"]
        return [(hit["doc_id"], round(hit["score"], 4), hit["snippet"]["text"]) for hit in hits]

    jobs = [(query, model) for query in queries for model in ("tk", "knrm", "none")]
    with in_process(options) as client:
        alone = [ask(client, *job) for job in jobs]
    with in_process(replace(options, threads=4, queue=64)) as client, ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(lambda job: ask(client, *job), jobs)) == alone
