"""What others made is trained on: runs as a first stage, scores as a teacher, triples of texts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_run import tiny_config

from glassrank.errors import InputError
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.loop import train
from glassrank.research.train.prepare import prepare
from glassrank.research.train.training_texts import read_collections

DOCS = "d1\tred cat\nd2\tblue dog\nd3\tred dog\nd4\tgreen bird sings long after dark\n"
QUERIES, QRELS = "q1\tbird\nq2\tred dog\n", "q1 0 d4 1\nq2 0 d3 1\n"
RUN = "q1 Q0 d1 1 5 x\nq1 Q0 d4 2 3 x\nq2 Q0 d2 1 9 x\nq2 Q0 d3 2 8 x\nq2 Q0 d1 3 7 x\n"


def collection(folder: Path, docs: str = "docs.tsv", **changes: Any) -> TrainConfig:
    for name, text in (("docs.tsv", DOCS), ("queries.tsv", QUERIES), ("qrels.txt", QRELS)):
        (folder / name).write_text(text)
    (folder / "given.run").write_text(RUN)
    files = {"queries": "queries.tsv", "qrels": "qrels.txt"}
    splits = {f"{split}_{kind}": name for split in ("train", "dev") for kind, name in files.items()}
    settings = {"vectors": {"size": 4, "min_count": 1}, "optimizer": {"steps": 2}, **changes}
    return tiny_config(collections=[{"name": "small", "docs": docs, **splits}], **settings)


def test_a_run_stands_for_the_first_stage(tmp_path: Path) -> None:
    config = collection(tmp_path, candidates={"run": ["given.run"], "train_depth": 2})
    texts = read_collections(config, tmp_path)
    assert [rows.tolist() for rows in texts.train.docs] == [[0, 3], [1, 2]]
    assert texts.train.first_stage.tolist() == [5, 3, 9, 8]
    assert texts.dev.docs[1].tolist() == [1, 2, 0] and texts.dev.ranks.tolist()[2:] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("q1 Q0 d9 1 5 x\n", "has document 'd9' for query 'q1', which the collection lacks"),
        ("q7 Q0 d1 1 5 x\n", "has none of the queries"),
    ],
)
def test_a_run_of_something_else_is_refused(run: str, said: str, tmp_path: Path) -> None:
    config = collection(tmp_path, candidates={"run": ["given.run"]})
    (tmp_path / "given.run").write_text(run)
    with pytest.raises(InputError, match=said):
        read_collections(config, tmp_path)


def test_scores_of_a_file_are_a_teacher(tmp_path: Path) -> None:
    config = collection(
        tmp_path, candidates={"teacher_scores": ["given.run"]}, loss={"kind": "margin_mse"}
    )
    texts = read_collections(config, tmp_path)
    taught = dict(zip(texts.dev.docs[1].tolist(), texts.dev.teacher.tolist()[1:], strict=True))  # type: ignore[union-attr]
    assert taught == {0: 7, 1: 9, 2: 8}
    prepared = prepare(config, texts, tmp_path)
    assert train(config, prepared, tmp_path / "out").progress.step == 2
    (tmp_path / "given.run").write_text("q1 Q0 d4 1 5 x\n")
    with pytest.raises(InputError, match="lacks query 'q2'"):
        read_collections(config, tmp_path)


def test_triples_of_texts_bring_their_documents(tmp_path: Path) -> None:
    sampler = {"kind": "triples", "triples": "t.tsv", "triples_of": "texts", "batch": 2}
    config = collection(tmp_path, sampler=sampler)
    lines = ["red dog\ta red dog\ta cat", "red dog\ta cat\t", "cat\ta cat\ta red dog"]
    (tmp_path / "t.tsv").write_text("\n".join(lines))
    texts = read_collections(config, tmp_path)
    assert [" ".join(words) for words in list(texts.docs)[4:]] == ["a red dog", "a cat"]
    assert texts.train.queries == [["red", "dog"], ["cat"]]
    assert texts.train.triples is not None
    assert [texts.train.docs.values[row[1:]].tolist() for row in texts.train.triples] == [
        [4, 5],
        [5, 4],
    ]
    assert train(config, prepare(config, texts, tmp_path), tmp_path / "out").progress.step == 2
    (tmp_path / "t.tsv").write_text("one\ttwo\n")
    with pytest.raises(InputError, match=r"t\.tsv:1: expected query, relevant and other text"):
        read_collections(config, tmp_path)


def test_empty_documents_are_skipped_and_counted(tmp_path: Path) -> None:
    config = collection(tmp_path)
    (tmp_path / "docs.tsv").write_text(DOCS + "d5\t \n")
    lines: list[str] = []
    assert len(read_collections(config, tmp_path, lines.append).docs) == 4
    assert any("skipped 1 empty or bad documents; the first: " in line for line in lines)


def test_words_may_be_counted_in_whole_documents(tmp_path: Path) -> None:
    known = []
    for whole in (False, True):
        vectors = {"size": 4, "min_count": 1, "whole_documents": whole}
        config = collection(tmp_path, doc_length=2, vectors=vectors)
        prepared = prepare(config, read_collections(config, tmp_path), tmp_path)
        known.append("dark" in prepared.words)
        assert max(len(ids) for ids in prepared.docs) == 2
        place = prepared.words.index("dog")
        assert prepared.idf[place] == pytest.approx(0.6931, abs=1e-3)  # ln(4 / 2)
    assert known == [False, True]


@pytest.fixture
def owls(tmp_path: Path) -> Iterator[str]:
    ir_datasets = pytest.importorskip("ir_datasets")
    (tmp_path / "owls.tsv").write_text(DOCS)
    dataset = ir_datasets.create_dataset(docs_tsv=str(tmp_path / "owls.tsv"))
    ir_datasets.registry.register("glassrank-owls/v1.5", dataset)
    yield "irds:glassrank-owls/v1.5"
    del ir_datasets.registry._registered["glassrank-owls/v1.5"]


def test_a_collection_by_name_in_a_file_of_another_folder(owls: str, tmp_path: Path) -> None:
    assert len(read_collections(collection(tmp_path, docs=owls), tmp_path).docs) == 4
