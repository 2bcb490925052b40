"""Judging by hand: pooled, blind, resumable, and never lost."""

import io
import sys
from pathlib import Path

import pytest
from command_line import Call

from glassrank.corpus import read_qrels
from glassrank.index import Index
from glassrank.rerank import Pipeline
from glassrank.research.judge import PooledDoc, judge, pool_docs
from glassrank.types import Query

QUERIES = [Query("q1", "cheese for mice cats"), Query("q2", "cold sea dogs")]


def test_keys_become_qrels_and_a_second_run_goes_on(
    index: Path, files: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("judge", "my.index", "queries.tsv", "--out", "mine.txt", "--model", "fast")

    def press(keys: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
        done = call(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = press("x3q")  # an unknown key is not an answer
    assert "cheese for mice" in first and "1 judgments added" in first
    assert [list(labels.values()) for labels in read_qrels(files / "mine.txt").values()] == [[3]]
    press("0" * 50)
    judged = read_qrels(files / "mine.txt")
    assert set(judged) == {"q1", "q2"} and sorted(judged["q1"].values())[-1] == 3
    assert "0 judgments added" in press("0")


def test_pools_hold_every_ranker_s_best_in_an_order_of_their_own(index: Path) -> None:
    opened = Index(index)
    pipelines = [Pipeline(opened), Pipeline(opened, method="ql")]
    pooled = [hit.doc_id for hit in pool_docs(pipelines, QUERIES[0], 2)]
    best = {hit.doc_id for each in pipelines for hit in each(QUERIES[0].text, 2)}
    assert set(pooled) == best and len(pooled) == len(best)
    assert pooled == [hit.doc_id for hit in pool_docs(pipelines[::-1], QUERIES[0], 2)]


def test_a_label_can_be_taken_back_and_a_pair_skipped(index: Path, tmp_path: Path) -> None:
    keys = iter("b1s2bb30q")  # back at the start; then 1, skip, 2; back twice: 3, 0
    shown: list[PooledDoc] = []

    def ask(pair: PooledDoc) -> str:
        shown.append(pair)
        return next(keys)

    judge([Pipeline(Index(index))], QUERIES, tmp_path / "mine.txt", ask, depth=4)
    ids = [(pair.query.query_id, pair.hit.doc_id) for pair in shown]
    first, second, third, fourth = list(dict.fromkeys(ids))
    assert ids[:2] == [first, first]
    assert ids[2:] == [second, third, fourth, third, second, third, fourth]
    labels = read_qrels(tmp_path / "mine.txt")
    found = {(query, doc): label for query, docs in labels.items() for doc, label in docs.items()}
    assert found == {first: 1, second: 3, third: 0}


def test_a_label_from_before_a_step_back_is_counted(index: Path, tmp_path: Path) -> None:
    keys = iter("12bq")
    out = tmp_path / "mine.txt"
    count = judge([Pipeline(Index(index))], QUERIES, out, lambda _: next(keys), depth=4)
    assert count == sum(map(len, read_qrels(out).values())) == 2
