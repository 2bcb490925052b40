"""ir_datasets by name: the real package, on a collection made here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassrank.corpus import read_docs, read_qrels, read_queries
from glassrank.corpus.irds import resolve_source
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.types import Doc, Query

NAME = "glassrank-owls/v1.5"


@pytest.fixture
def owls(tmp_path: Path) -> Iterator[str]:
    ir_datasets = pytest.importorskip("ir_datasets")
    (tmp_path / "docs.tsv").write_text("d1\tThey hoot.\nd2\tThey purr.\n")
    (tmp_path / "queries.tsv").write_text("1\towls\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 2\n")
    dataset = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "docs.tsv"),
        queries_tsv=str(tmp_path / "queries.tsv"),
        qrels_trec=str(tmp_path / "qrels.txt"),
    )
    ir_datasets.registry.register(NAME, dataset)
    yield NAME
    del ir_datasets.registry._registered[NAME]


@pytest.mark.parametrize("prefix", ["", "irds:"])
def test_documents_queries_and_judgments(owls: str, prefix: str) -> None:
    docs = read_docs(prefix + owls)
    assert list(docs) == [Doc("d1", "They hoot."), Doc("d2", "They purr.")]
    assert docs.locate("d2") == f"{prefix}{owls}:2"
    assert docs.n_bytes is None
    assert read_queries(prefix + owls) == [Query("1", "owls")]
    assert read_qrels(prefix + owls) == {"1": {"d1": 2}}


def test_a_path_that_exists_wins_over_a_name(
    owls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / owls).mkdir(parents=True)
    (tmp_path / owls / "a.txt").write_text("x")
    assert [doc.doc_id for doc in read_docs(owls)] == ["a.txt"]
    assert [doc.doc_id for doc in read_docs(f"irds:{owls}")] == ["d1", "d2"]


def test_a_field_the_queries_lack_is_named(owls: str) -> None:
    with pytest.raises(InputError, match="no field 'desc', only query_id, text"):
        read_queries(owls, field="desc")


def test_an_unknown_name_is_an_error() -> None:
    pytest.importorskip("ir_datasets")
    with pytest.raises(InputError, match="nosuch/name is neither a file or folder nor the name"):
        read_docs("nosuch/name")
    with pytest.raises(InputError, match="irds:nosuch/name is not the name of an ir_datasets"):
        read_queries("irds:nosuch/name")


@pytest.mark.parametrize("name", ["nosuch/name", "irds:nosuch/name"])
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(InputError, match=r"pip install 'glassrank\[hub\]'"):
        read_docs(name)


def test_a_missing_file_is_not_taken_for_a_name() -> None:
    with pytest.raises(InputError, match=r"missing\.qrels does not exist"):
        read_qrels("missing.qrels")


def test_a_name_in_a_file_of_another_folder_stays_a_name(owls: str, tmp_path: Path) -> None:
    folder = tmp_path / "configs"
    for name in (owls, f"irds:{owls}", "irds:with/a.suffix"):
        assert resolve_source(folder, name) == name
    assert resolve_source(folder, "docs.tsv") == str(folder / "docs.tsv")
    (folder / owls).mkdir(parents=True)
    assert resolve_source(folder, owls) == str(folder / owls)


class Failing:
    """A collection whose files cannot be had."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def has_docs(self) -> bool:
        return True

    def docs_iter(self) -> Iterator[object]:
        raise self._error
        yield


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("requests", "could not be downloaded or read: no route to host; check the connection"),
        ("mirrors", "could not be downloaded or read: .*All download sources failed"),
        ("by hand", "put its files where ir_datasets looks for them, /home/x/disk45"),
        ("package", r"not installed: .*trec-car-tools.* pip install 'glassrank\[hub\]'"),
    ],
)
def test_what_a_collection_lacks_is_said_and_not_that_the_disk_is_full(
    kind: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ir_datasets = pytest.importorskip("ir_datasets")
    requests = pytest.importorskip("requests")
    errors = {
        "requests": requests.exceptions.ConnectionError("no route\nto host"),
        "mirrors": RuntimeError("All download sources failed", []),
        "by hand": FileNotFoundError(Path("/home/x/disk45")),
        "package": ImportError("This dataset requires trec-car-tools."),
    }
    monkeypatch.setitem(ir_datasets.registry._registered, "failing", Failing(errors[kind]))
    with pytest.raises(InputError, match=said) as caught:
        Index.build(read_docs("irds:failing"), tmp_path / "index")
    assert "make room" not in str(caught.value) and "\n" not in str(caught.value)
