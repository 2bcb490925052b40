"""Runs: reading, and writing so that every evaluator sees our order."""

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.corpus import read_run, runs, write_run
from glassrank.errors import GlassrankError, InputError
from glassrank.types import Run


def as_lists(run: Run) -> list[tuple[str, list[str], list[float]]]:
    return [(query_id, docs, scores.tolist()) for query_id, docs, scores in run.items()]


def test_trec_run(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.write_text("1 Q0 a 1 2.5 tag\n\n1\tQ0\tb\t2\t-1e-3\ttag\r\n  2 Q0  a 1 7 tag  ")
    assert as_lists(read_run(path)) == [("1", ["a", "b"], [2.5, -0.001]), ("2", ["a"], [7.0])]


def test_ms_marco_run_scores_by_rank(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("1\ta\t1\n1\tb\t2\n")
    assert as_lists(read_run(path)) == [("1", ["a", "b"], [-1.0, -2.0])]


def test_rows_of_queries_may_be_interleaved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_BLOCK", 20)  # so that queries span blocks
    path = tmp_path / "a.run"
    path.write_text("2 Q0 a 1 9 t\n1 Q0 b 1 8 t\n2 Q0 c 2 7 t\n1 Q0 a 2 6 t\n2 Q0 d 3 5 t\n")
    run = read_run(path)
    assert as_lists(run) == [("2", ["a", "c", "d"], [9.0, 7.0, 5.0]), ("1", ["b", "a"], [8.0, 6.0])]


def test_a_byte_order_mark_is_no_part_of_the_first_query(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_bytes(b"\xef\xbb\xbf1 Q0 a 1 9 t\n")
    assert read_run(tmp_path / "a.run").query_ids == ("1",)


def test_repeated_document_ids_share_one_string(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.write_text("".join(f"{q} Q0 document{d} 1 9 t\n" for q in range(5) for d in range(3)))
    assert len({id(doc_id) for doc_id in read_run(path).doc_ids}) == 3


GOOD = "1 Q0 a 1 9 t\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 Q0 a 1 9\n", 1, r"expected 6 columns \(query, .*\) or 3 columns \(.*\), found 5"),
        (GOOD + "\n1 Q0 b 2 8\n", 3, "expected 6 columns .* found 5"),
        (GOOD + "1 Q0 b 2 8\n1 Q0 c 2 8 t t\n", 2, "expected 6 columns .* found 5"),
        (GOOD + "1 Q0 b 2 8\nt 1 Q0 c 2 8 t\n", 2, "expected 6 columns .* found 5"),
        (GOOD + "1 Q0 b 2 high t\n", 2, "expected a finite score, found 'high'"),
        (GOOD + "1 Q0 b 2 nan t\n", 2, "expected a finite score, found 'nan'"),
        (GOOD + "1 Q0 b 2 -inf t\n", 2, "expected a finite score, found '-inf'"),
        (GOOD + "1 Q0 a 2 8 t\n", 2, r".* query '1', found 'a' again \(first at line 1\)"),
        ("1\ta\t1\n1\tb\t1.5\n", 2, "expected an integer rank, found '1.5'"),
        ("1\ta\t1\n1\tb\t" + "9" * 400, 2, "expected an integer rank, found '999"),
        ("1\ta\t1\n1\tb\n", 2, r"expected 3 columns \(query, document, rank\), found 2"),
        ("1\ta\t1\n2\ta\t1\n1\ta\t2\n", 3, r".* query '1', found 'a' again \(first at line 1\)"),
        (GOOD + "1 Q0 b\u00a0c 2 8 t\n", 2, "expected 6 columns .* found 7"),
    ],
)
def test_bad_rows_name_file_and_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "a.run"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}:{line}: {message}"):
        read_run(path)


def test_invalid_utf_8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_bytes(GOOD.encode() + b"1 Q0 \xe9 2 8 t\n")
    with pytest.raises(InputError, match=r"a\.run:2: invalid UTF-8 at byte 6"):
        read_run(tmp_path / "a.run")


def test_control_characters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_bytes(b"1 Q0 a\x00b 2 8 t\n")
    with pytest.raises(InputError, match=r"a\.run has control characters"):
        read_run(tmp_path / "a.run")


def test_an_empty_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("\n")
    with pytest.raises(InputError, match="has no rows"):
        read_run(tmp_path / "a.run")


def test_rows_are_written_by_score_and_ties_in_their_order(tmp_path: Path) -> None:
    run = Run.from_dict({"1": {"low": 1.0, "tie1": 2.0, "tie2": 2.0, "top": 6.5455}})
    write_run(run, tmp_path / "a.run", tag="mine")
    assert (tmp_path / "a.run").read_text() == (
        "1 Q0 top 1 6.5455 mine\n"
        "1 Q0 tie1 2 2.0 mine\n"
        "1 Q0 tie2 3 1.9999999 mine\n"
        "1 Q0 low 4 1.0 mine\n"
    )


@pytest.mark.parametrize("name", ["a b", "", "a\u2003b"])
def test_an_id_with_a_space_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is empty or has a space"):
        write_run(Run.from_dict({"1": {"a": 2.0, name: 1.0}}), tmp_path / "a.run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 1e300])
def test_a_score_that_is_no_32_bit_number_is_not_written(tmp_path: Path, score: float) -> None:
    with pytest.raises(InputError, match="do not all fit in 32-bit floats"):
        write_run(Run.from_dict({"1": {"a": score}}), tmp_path / "a.run")
    assert not list(tmp_path.iterdir())


ids = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
scores = st.floats(-1e30, 1e30) | st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, -1e-45])


@settings(max_examples=30)  # each writes a file
@given(st.dictionaries(ids, st.dictionaries(ids, scores, min_size=1), min_size=1))
def test_our_order_survives_every_evaluator(
    tmp_path_factory: pytest.TempPathFactory, rankings: dict[str, dict[str, float]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "a.run.gz"
    write_run(Run.from_dict(rankings), path)
    back = read_run(path)
    assert back.query_ids == tuple(rankings)
    for query_id, docs, scores in back.items():
        given = rankings[query_id]
        assert docs == sorted(given, key=lambda doc_id: -given[doc_id])  # sorted() is stable
        as_trec_eval_reads = scores.astype(np.float32)
        assert (np.diff(as_trec_eval_reads) < 0).all()
        assert (np.diff(scores) < 0).all()
        wanted = np.array([given[doc_id] for doc_id in docs], np.float32)
        # Lowered only by as many steps as there are rows before it.
        steps = np.abs(as_trec_eval_reads - wanted)
        assert (steps <= len(docs) * np.maximum(np.spacing(np.abs(wanted)), 1e-44)).all()


@settings(max_examples=30)  # each writes a file
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, unique=True))
def test_distinct_scores_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float]
) -> None:
    path = tmp_path_factory.mktemp("run") / "a.run"
    write_run(Run.from_dict({"1": {f"d{i}": score for i, score in enumerate(scores)}}), path)
    assert read_run(path).scores.astype(np.float32).tolist() == sorted(scores, reverse=True)


RUN = Run.from_dict({"1": {"a": 2.0, "b": 1.0}})


@pytest.mark.parametrize("name", ["a.run", "a.run.gz"])
def test_a_run_is_durable(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()
    sync = os.fsync

    def noted(handle: int) -> None:
        status = os.fstat(handle)
        synced.add((status.st_ino, status.st_size if status.st_ino != folder else 0))
        sync(handle)

    folder = tmp_path.stat().st_ino
    monkeypatch.setattr(os, "fsync", noted)
    write_run(RUN, tmp_path / name)
    status = (tmp_path / name).stat()
    assert synced == {(status.st_ino, status.st_size), (folder, 0)}  # all of it, and its name


def test_a_run_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.run").symlink_to("precious")
    write_run(RUN, tmp_path / "a.run")
    assert (tmp_path / "precious").read_text() == "precious"
    assert read_run(tmp_path / "a.run").query_ids == ("1",)


def test_a_device_is_not_replaced_by_a_run(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(InputError, match="null: it is a device; name a file"):
        write_run(RUN, tmp_path / "null")
    assert (tmp_path / "null").is_symlink()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["open", "fsync", "write"])
def test_a_disk_that_refuses_is_one_sentence(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "a.run").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "open") if call == "write" else (os, call)), refuse)
        with pytest.raises(GlassrankError, match=os.strerror(code)) as caught:
            write_run(RUN, tmp_path / "a.run")
    assert "\n" not in str(caught.value) and "a.run" in str(caught.value)
    assert (tmp_path / "a.run").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.run"]


def test_candidates_with_their_texts_rank_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "top1000.dev.tsv"
    path.write_text("7\t10\twhat is it\tIt is a cat .\n8\t10\twho\tx\n7\t3\twhat is it\ty z\n")
    run = read_run(path)
    assert [(q, docs, scores.tolist()) for q, docs, scores in run.items()] == [
        ("7", ["10", "3"], [-1.0, -2.0]),
        ("8", ["10"], [-1.0]),
    ]
    path.write_text("7\t10\twhat\tx\n7\t10\twhat\tx\n")
    with pytest.raises(InputError, match="document '10' twice for query '7'"):
        read_run(path)
    path.write_text("7\t10\twhat\tx\n7\t10\twhat\n")
    with pytest.raises(InputError, match=r"top1000.dev.tsv:2: expected query id, document id"):
        read_run(path)
