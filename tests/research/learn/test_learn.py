"""Learning from documents and clicks: logs, position bias, what is learned and what is saved."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.research.learn import learn as learning
from glassrank.research.learn.clicks import estimate_examination
from glassrank.research.learn.encoder import EncoderLearner
from glassrank.research.learn.examples import Example, ExampleMaker
from glassrank.research.learn.learn import Learner, Outcome
from glassrank.research.learn.logs import Log, LoggedQuery, read_log
from glassrank.research.learn.outcome_report import describe, render
from glassrank.research.learn.whitening import Whitening, whiten
from glassrank.storage.files import MAX_ROW_BYTES
from glassrank.types import Doc


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


def mean_rank(learner: EncoderLearner, examples: Sequence[Example], share: float) -> float:
    """Of what was clicked."""
    ranks = []
    for example in examples:
        scores = learner.score(example, share)
        (clicked,) = scores[example.gains > 0].tolist()
        ranks.append(int((scores > clicked).sum()))
    return float(np.mean(ranks))


@pytest.mark.long
def test_clicks_teach_the_encoder_and_a_saved_model_scores_as_it_was_learned(
    collection: tuple[Index, Reranker], tmp_path: Path
) -> None:
    index, reranker = collection
    log = click_log(index, reranker)
    outcome: Outcome = Learner(index, reranker, lambda line: None, layers=1).learn(10, log)
    assert outcome.queries + outcome.held_out >= 60 and outcome.share in learning._SHARES

    examples = ExampleMaker(index, reranker).from_log(log)
    learner = EncoderLearner(index, reranker, 1)
    before = mean_rank(learner, examples, 0.0)
    learner.learn(examples, time.monotonic() + 15, np.random.default_rng(0))
    assert mean_rank(learner, examples, 1.0) < before - 0.5
    assert mean_rank(learner, examples, 0.0) == before

    learner.save(tmp_path / "learned", 0.5, reranker.usage, "a card")
    learned = Reranker.load(tmp_path / "learned")
    assert_scores_are_equal(learned, index, examples[0], learner.score(examples[0], 0.5))
    assert Store.find(index, learned.model) is None  # its documents are encoded anew


def assert_scores_are_equal(
    learned: Reranker, index: Index, example: Example, expected: Any
) -> None:
    """But for int8."""
    texts = [index.snapshot.doc(int(number)) for number in example.docs]
    found = learned.scores(example.text, texts, example.first_scores.tolist()).values
    assert np.corrcoef(expected, found)[0, 1] > 0.999
    assert np.abs(expected - found).max() < 0.05 * np.abs(expected).max()


def test_whitened_embeddings_are_saved_as_they_were_scored(
    collection: tuple[Index, Reranker], tmp_path: Path
) -> None:
    index, reranker = collection
    learned = Whitening(index, reranker)
    learned.learn()
    learned.save(tmp_path / "learned", 0.5, reranker.usage, "a card")
    example = ExampleMaker(index, reranker).make("cold glacier ice")
    assert example is not None
    saved = Reranker.load(tmp_path / "learned")
    assert_scores_are_equal(saved, index, example, learned.score(example, 0.5))


def test_a_shown_document_that_the_first_stage_lacks_is_learned_from(
    collection: tuple[Index, Reranker],
) -> None:
    index, reranker = collection
    maker = ExampleMaker(index, reranker)
    found = maker.make("glacier ice cave")
    assert found is not None
    numbers = found.docs.tolist()
    other = next(number for number in range(len(index)) if number not in numbers)
    shown = [index.snapshot.doc_id(number) for number in (numbers[3], other)]
    log = Log([LoggedQuery("glacier ice cave", [*shown, "unknown"], {shown[1]})], Counter())
    (example,) = maker.from_log(log)
    assert example.docs.tolist() == [numbers[3], other, *numbers[:3], *numbers[4:]]
    assert example.first_scores[:2].tolist() == [found.first_scores[3], 0.0]
    assert example.gains.tolist() == [0.0, 1.0] + [0.0] * (len(example.docs) - 2)
    assert example.shown == 2
    assert log.skipped == {"documents that are not in the index": 1}


def test_what_cannot_learn_is_refused(
    collection: tuple[Index, Reranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, reranker = collection
    with pytest.raises(InputError, match="glassrank encode"):
        Learner(index, Reranker.load("default"), lambda line: None).learn(1)
    with pytest.raises(InputError, match="has 2 layers; 3 cannot learn"):
        EncoderLearner(index, reranker, 3)
    learner = Learner(index, reranker, lambda line: None)
    log = Log([LoggedQuery("ice", ["unknown"], {"unknown"})], Counter())
    with pytest.raises(InputError, match="no click"):
        learner.learn(1, log)
    monkeypatch.setattr(learning, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs PyTorch: pip install 'glassrank\[torch\]'"):
        learner.learn(1, log)
