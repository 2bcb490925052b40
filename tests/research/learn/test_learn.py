"""Learning on stored embeddings: gradients, logs, clicks, and what is saved."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassrank.backends.configs import FLOOR, Kernels
from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.learn import learn as learning
from glassrank.research.learn.clicks import estimate_examination
from glassrank.research.learn.learn import Learner, Outcome
from glassrank.research.learn.logs import Log, LoggedQuery, read_log
from glassrank.research.learn.saving import describe, render, save_learned
from glassrank.research.learn.stored_scores import (
    Example,
    LearnedWeights,
    PassageRows,
    loss_gradient,
    whiten,
)
from glassrank.storage.files import MAX_ROW_BYTES
from glassrank.types import Doc

KERNELS = Kernels.rising()


def unit(rng: np.random.Generator, *shape: int) -> Any:
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def problem() -> tuple[Example, PassageRows, LearnedWeights]:
    rng = np.random.default_rng(0)
    lengths = np.array([3, 5, 4])
    example = Example(
        "a query",
        unit(rng, 4, 8),
        rng.random(4).astype(np.float32),
        np.arange(3),
        rng.random(3).astype(np.float32),
        np.array([1.0, 0.0, 0.5]),
    )
    weights = LearnedWeights(
        (np.eye(8) + 0.1 * rng.normal(size=(8, 8))).astype(np.float32),
        0.1 * rng.random(len(KERNELS)).astype(np.float32),
        rng.random(len(KERNELS)).astype(np.float32),
        0.3,
    )
    return example, PassageRows(unit(rng, 12, 8), lengths, np.arange(3)), weights


def test_gradients_are_those_of_autograd(
    problem: tuple[Example, PassageRows, LearnedWeights],
) -> None:
    example, passages, weights = problem
    loss, gradient = loss_gradient(example, passages, weights, KERNELS)
    projection = torch.tensor(weights.projection, dtype=torch.float64, requires_grad=True)
    logarithms = torch.tensor(
        np.log([*weights.log, *weights.length, weights.first_stage]), requires_grad=True
    )
    heads = logarithms.exp()
    query, doc = (
        torch.nn.functional.normalize(torch.from_numpy(rows).double() @ projection.T, dim=1)
        for rows in (example.vectors, passages.rows)
    )
    scores = []
    for place, rows in enumerate(torch.split(doc, passages.lengths.tolist())):
        score = heads[-1] * float(example.first_scores[place])
        for number, center in enumerate(KERNELS.centers):
            distances = (query @ rows.T - center).clamp(max=0) / KERNELS.widths[number]
            counts = torch.exp(-0.5 * distances**2).sum(1)
            summands = heads[number] * counts.clamp(min=FLOOR).log()
            summands = summands + heads[len(KERNELS) + number] * counts / (len(rows) + 1)
            score = score + torch.from_numpy(example.weights).double() @ summands
        scores.append(score)
    expected = -torch.from_numpy(example.gains) @ torch.stack(scores).log_softmax(0)
    expected.backward()
    assert loss == pytest.approx(expected.item())
    assert np.allclose(gradient.projection, projection.grad, atol=1e-5)
    found = [*gradient.log, *gradient.length, gradient.first_stage]
    assert np.allclose(found, logarithms.grad, atol=1e-5)


def test_whitening_evens_out_directions() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(500, 6)) * [5, 3, 1, 1, 1, 0.5]
    before, after = (
        np.linalg.eigvalsh(each.T @ each) for each in (rows, rows @ whiten(rows.T @ rows).T)
    )
    assert after.max() / after.min() == pytest.approx((before.max() / before.min()) ** 0.5)


def simulate(examined: Sequence[float], searches: int) -> tuple[Any, Any]:
    """Clicks on what is looked at and liked; a higher score is liked more often."""
    rng = np.random.default_rng(2)
    scores = -np.sort(-rng.normal(size=(searches, len(examined))), axis=1)
    scores += 0.5 * rng.normal(size=scores.shape)  # a ranking follows its scores only partly
    liked = rng.random(scores.shape) < 1 / (1 + np.exp(1 - 1.5 * scores))
    return liked & (rng.random(scores.shape) < examined), scores


def test_examination_is_estimated_from_clicks_alone() -> None:
    truth = np.array([1.0, 0.7, 0.5, 0.35, 0.25])
    clicks, scores = simulate(truth, 6_000)
    estimated = estimate_examination(clicks, scores)
    rates = clicks.mean(0) / clicks.mean(0)[0]
    assert np.abs(estimated - truth).mean() < 0.5 * np.abs(rates - truth).mean()


def write_lines(path: Path, *lines: Any) -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_text(text, "utf-8")
    return path


def test_logs_of_the_service_and_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    search = {"action": "search", "query_id": "1", "query": "cats", "shown": ["a", "b"]}
    write_lines(tmp_path / "log.jsonl.1", search)  # rotated: clicks are in the next file
    write_lines(
        path,
        {"action": "click", "query_id": "1", "doc_id": "b"},
        {"action": "up", "query_id": "1", "doc_id": "a"},
        {"action": "down", "query_id": "1", "doc_id": "a"},
        {"query": "dogs", "shown": ["c"], "clicked": ["c"]},
        "a plain query",
    )
    log = read_log(path)
    assert log.queries == [
        LoggedQuery("cats", ["a", "b"], {"b"}),
        LoggedQuery("dogs", ["c"], {"c"}),
        LoggedQuery("a plain query"),
    ]
    assert not log.skipped


def test_hostile_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "log.jsonl",
        "{" * 5_000,
        '{"query": ["not", "a", "text"]}',
        '{"query": "x", "shown": [["a"]]}',
        {"query": "x" * 5_000},
        {"action": "click", "query_id": "unknown", "doc_id": "a"},
        {"action": "click", "query_id": ["1"], "doc_id": {}},
        "y" * (3 * MAX_ROW_BYTES),
        {"query": "cats", "shown": ["a"], "clicked": ["a", "never shown"]},
    )
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x00 not text\n[1, 2]\n")
    log = read_log(path)
    assert [query.text for query in log.queries] == ["cats", "[1, 2]"]
    assert log.queries[0].clicked == {"a"}
    assert log.skipped == {
        "not readable": 3,
        "without a query": 2,
        "a click on what was not shown": 2,
        "too long": 1,
    }
    with pytest.raises(InputError, match="no query"):
        read_log(write_lines(tmp_path / "empty.jsonl", "", "{"))


TOPICS = ("glacier ice cave", "insurance claim policy", "jet engine wing", "bread oven flour")
WORDS = "small large old new cold warm north first common rare deep open".split()


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Reranker]:
    rng = np.random.default_rng(3)
    docs = []
    for number in range(160):
        topic = TOPICS[number % len(TOPICS)].split()
        sentences = [
            " ".join(rng.permutation([*rng.choice(WORDS, 4), *rng.choice(topic, 3)])) + "."
            for _ in range(4)
        ]
        docs.append(Doc(f"d{number}", " ".join(s.capitalize() for s in sentences)))
    index = Index.build(docs, tmp_path_factory.mktemp("learn") / "index")
    reranker = Reranker.load("fast")
    encode_index(index, reranker.saved)
    return index, reranker


@pytest.mark.long
def test_documents_teach_or_nothing_is_changed(
    collection: tuple[Index, Reranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "_MOST_FROM_DOCS", 60)
    monkeypatch.setattr(learning, "FEWEST", 12)
    index, reranker = collection
    outcome = Learner(index, reranker, lambda line: None).learn(60)
    low, high = outcome.interval
    assert low <= outcome.after - outcome.before <= high
    assert outcome.helps == (low > 0) and 0 < outcome.before <= 1
    assert outcome.share in learning._SHARES_OF_DOCS
    for report in (describe(outcome, index.snapshot.doc), render(outcome, index.snapshot.doc)):
        assert ("Nothing is changed" in report) != outcome.helps


def click_log(index: Index, reranker: Reranker) -> Log:
    """Users who like the oldest document best, wherever it stands."""
    pipeline = Pipeline(index, reranker)
    queries = []
    for text in (f"{one} {two} {topic}" for topic in TOPICS for one in WORDS for two in WORDS[:2]):
        shown = [hit.doc_id for hit in pipeline(text, 10)]
        queries.append(LoggedQuery(text, shown, {min(shown, key=lambda i: int(i[1:]))}))
    return Log(queries, Counter())


@pytest.mark.long
def test_a_saved_model_scores_as_it_was_learned(
    collection: tuple[Index, Reranker], tmp_path: Path
) -> None:
    index, reranker = collection
    learner = Learner(index, reranker, lambda line: None)
    outcome: Outcome = learner.learn(20, click_log(index, reranker))
    assert outcome.queries + 2 * outcome.held_out >= 90
    save_learned(tmp_path / "learned", reranker, outcome, "report")
    learned = Reranker.load(tmp_path / "learned")
    example = learner._maker.make("cold glacier ice")
    assert example is not None
    texts = [index.snapshot.doc(int(number)) for number in example.docs]
    expected = learned.scores(example.text, texts, example.first_scores.tolist()).values
    found = learner._score(example, outcome.weights)
    assert np.corrcoef(expected, found)[0, 1] > 0.999  # stored in int8
    assert np.abs(expected - found).max() < 0.05 * np.abs(expected).max()
    assert Store.find(index, learned.model) is None  # its documents are encoded anew


def test_what_cannot_learn_is_refused(collection: tuple[Index, Reranker], tmp_path: Path) -> None:
    index, reranker = collection
    with pytest.raises(InputError, match="glassrank encode"):
        Learner(index, Reranker.load("default"), lambda line: None)
    learner = Learner(index, reranker, lambda line: None)
    with pytest.raises(InputError, match="no click"):
        learner.learn(1, Log([LoggedQuery("ice", ["unknown"], {"unknown"})], Counter()))
