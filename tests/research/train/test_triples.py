"""Given triples: from a file to batches, with errors that name file and line."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import tiny_config, tiny_prepared

from glassrank.errors import InputError
from glassrank.research.train.batches import Sampler
from glassrank.research.train.config import SamplerConfig, TrainConfig
from glassrank.research.train.loop import train
from glassrank.research.train.precomputed import group_triples, read_triples
from glassrank.research.train.prepare import prepare
from glassrank.research.train.prepared import Split
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.research.train.training_texts import read_collections
from glassrank.settings import from_plain

triples = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30
)


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_ids_become_numbers(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name, "q2\td3\td1\nq1\td1\td2\n")
    found = read_triples(path, {"q1": 0, "q2": 1}, {"d1": 0, "d2": 1, "d3": 2})
    assert found.tolist() == [[1, 2, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("q9\td1\td2", "triples.tsv:2: query id 'q9' is not in train_queries"),
        ("q1\td9\td2", "triples.tsv:2: document id 'd9' is not in the collection"),
        ("q1\td1\td9", "triples.tsv:2: document id 'd9' is not in the collection"),
        ("q1\td1", "triples.tsv:2: expected query, relevant and other document, found 2 ids"),
        ("q1\td1\td1", "triples.tsv:2: document id 'd1' stands on both sides"),
    ],
)
def test_mistakes_name_file_and_line(line: str, sentence: str, tmp_path: Path) -> None:
    path = written(tmp_path / "triples.tsv", f"q1\td1\td2\n{line}\n")
    with pytest.raises(InputError) as caught:
        read_triples(path, {"q1": 0}, {"d1": 0, "d2": 1})
    assert str(caught.value).endswith(sentence)


def test_an_empty_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no triples"):
        read_triples(written(tmp_path / "triples.tsv", "\n"), {}, {})


@given(triples)
def test_places_lead_back_to_the_triples(rows: list[tuple[int, int, int]]) -> None:
    given_rows = np.array(rows, np.int32)
    grouped = group_triples(given_rows)
    back = np.column_stack(
        [grouped.queries[grouped.triples[:, 0]], grouped.docs.values[grouped.triples[:, 1:]]]
    )
    assert np.array_equal(back, given_rows)
    owner = np.repeat(np.arange(len(grouped.docs)), np.diff(grouped.docs.offsets))
    for column in (1, 2):  # a place belongs to the triple's own query
        assert np.array_equal(owner[grouped.triples[:, column]], grouped.triples[:, 0])
    positive = {(q, p) for q, p, _ in rows}
    pairs = zip(grouped.queries[owner].tolist(), grouped.docs.values.tolist(), strict=True)
    assert grouped.grades.tolist() == [1 if pair in positive else -1 for pair in pairs]


def split_with_triples(count: int) -> Split:
    base = tiny_prepared().train
    numbers = np.arange(count)
    places = base.docs.offsets[numbers]
    return replace(base, triples=np.column_stack([numbers, places, places + 1]).astype(np.int32))


def sampler(count: int, shuffle: bool = False) -> Sampler:
    config = SamplerConfig(kind="triples", batch=4, triples="file", shuffle=shuffle)
    return Sampler(split_with_triples(count), config, seed=3)


def test_batches_go_through_the_file_again_and_again() -> None:
    source = sampler(6)
    drawn = np.concatenate([source.batch(step).queries for step in range(3)])
    assert drawn.tolist() == [*range(6), *range(6)]
    batch = source.batch(0)
    assert np.array_equal(batch.candidates[:, 1], batch.candidates[:, 0] + 1)


def test_shuffled_passes_hold_every_triple_once_in_another_order() -> None:
    source = sampler(10, shuffle=True)
    drawn = np.concatenate([source.batch(step).queries for step in range(5)])
    first, second = drawn[:10].tolist(), drawn[10:].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    # A run that goes on from step 2, between two passes, has the same batch.
    assert np.array_equal(sampler(10, shuffle=True).batch(2).queries, drawn[8:12])


def test_arrays_without_triples_are_a_mistake() -> None:
    config = SamplerConfig(kind="triples", triples="file")
    with pytest.raises(InputError, match="prepare them again"):
        Sampler(tiny_prepared().train, config, seed=1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "triples"}, "and the other way round"),
        ({"triples": "file.tsv"}, "and the other way round"),
        ({"kind": "triples", "triples": "file.tsv", "negatives": 2}, "negatives = 1"),
    ],
)
def test_mistakes_in_the_config(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_plain(SamplerConfig, settings)


def collection(folder: Path, lines: str) -> TrainConfig:
    """Four documents and two queries, of which the triples name the second alone."""
    written(folder / "docs.tsv", "d1\tred cat\nd2\tblue dog\nd3\tred dog\nd4\tgreen bird\n")
    written(folder / "queries.tsv", "q1\tbird\nq2\tred dog\n")
    written(folder / "qrels.txt", "q1 0 d4 1\nq2 0 d3 1\n")
    written(folder / "triples.tsv", lines)
    files = {"queries": "queries.tsv", "qrels": "qrels.txt"}
    splits = {f"{split}_{kind}": name for split in ("train", "dev") for kind, name in files.items()}
    return tiny_config(
        collections=[{"name": "small", "docs": "docs.tsv", **splits}],
        sampler={"kind": "triples", "triples": "triples.tsv", "batch": 2},
        vectors={"size": 4, "min_count": 1},
        optimizer={"steps": 2},
    )


def test_a_run_learns_from_the_triples_it_was_given(tmp_path: Path) -> None:
    config = collection(tmp_path, "q2\td3\td4\nq2\td2\td1\n")
    texts = read_collections(config, tmp_path)
    assert texts.train.queries == [["red", "dog"]]
    docs = list(texts.docs)
    assert [" ".join(docs[n]) for n in texts.train.docs[0]] == [
        "red cat",
        "blue dog",
        "red dog",
        "green bird",
    ]
    assert texts.train.grades.tolist() == [-1, 1, 1, -1]
    assert texts.train.ranks[2] == 1  # the first stage's best
    assert texts.train.ranks[3] == 0  # it has no word of the query
    assert texts.train.first_stage[3] == texts.train.first_stage[:3].min()
    assert texts.train.triples is not None
    assert texts.train.triples.tolist() == [[0, 2, 3], [0, 1, 0]]
    assert texts.dev.triples is None
    save_prepared(tmp_path / "prepared", prepare(config, texts, tmp_path))
    prepared = load_prepared(tmp_path / "prepared")
    assert prepared.train.triples is not None
    assert np.array_equal(prepared.train.triples, texts.train.triples)
    assert train(config, prepared, tmp_path / "out").progress.step == 2


def test_triples_of_two_collections_are_a_mistake(tmp_path: Path) -> None:
    config = collection(tmp_path, "")
    with pytest.raises(InputError, match="needs a single collection, found 2"):
        read_collections(replace(config, collections=config.collections * 2), tmp_path)


def test_old_triples_do_not_outlive_a_new_preparation(tmp_path: Path) -> None:
    prepared = tiny_prepared()
    save_prepared(tmp_path, replace(prepared, train=split_with_triples(5)))
    save_prepared(tmp_path, prepared)
    assert load_prepared(tmp_path).train.triples is None


def test_candidates_are_the_first_stages_then_judged_ones_that_it_missed(tmp_path: Path) -> None:
    collection(tmp_path, "")
    written(tmp_path / "qrels.txt", "q1 0 d1 1\nq2 0 d3 1\n")  # "bird" is not in d1
    files = {"queries": "queries.tsv", "qrels": "qrels.txt"}
    splits = {f"{split}_{kind}": name for split in ("train", "dev") for kind, name in files.items()}
    config = tiny_config(collections=[{"name": "small", "docs": "docs.tsv", **splits}])
    dev = read_collections(config, tmp_path).dev
    docs, ranks = dev.docs[0].tolist(), dev.ranks[: len(dev.docs[0])].tolist()
    assert (docs, ranks) == ([3, 0], [1, 0])
    assert dev.grades[:2].tolist() == [-1, 1]
