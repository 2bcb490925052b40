"""Bad documents, passed over and counted, in every format."""

from pathlib import Path

import pytest

from glassrank.corpus import read_docs
from glassrank.errors import InputError

GOOD = '{"id": "a", "text": "one"}\n'
FILES = {
    "d.jsonl": (GOOD + "{broken\n" + '{"id": "b", "text": " "}\n{"id": "c", "text": "three"}\n'),
    "d.tsv": "a\tone\nb\t\nx\tone\ttoo many\nc\tthree\n",
    "d.csv": 'id,text\na,one\nb,\n"c",three\nx,too,many\n',
    "d.trec": (
        "<DOC><DOCNO>a</DOCNO>one</DOC>\n<DOC>no number</DOC>\n<DOC><DOCNO>b</DOCNO></DOC>\n"
        "<DOC><DOCNO>c</DOCNO>three</DOC>\n"
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_good_ones_are_read_and_the_bad_ones_counted(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    with pytest.raises(InputError, match=rf"{name}:[23]: "):
        list(read_docs(path))
    reader = read_docs(path, skip_bad=True)
    for _ in range(2):  # each time anew
        assert [doc.doc_id for doc in reader] == ["a", "c"]
        assert reader.skipped == 2
        assert reader.first_skipped.startswith(f"{path}:")
    assert reader.locate("c").startswith(str(path))


def test_files_of_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "d.txt").write_text("four")
    reader = read_docs(tmp_path, skip_bad=True)
    assert [doc.doc_id for doc in reader] == ["a.txt", "d.txt"]
    assert reader.skipped == 2


def test_where_all_are_bad_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("{}\n")
    with pytest.raises(
        InputError, match=r"has no documents; all were skipped, the first: .*jsonl:1"
    ):
        list(read_docs(tmp_path / "d.jsonl", skip_bad=True))


def test_a_file_that_cannot_be_read_on_is_still_an_error(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text('id,text\na,one\nb,"never closed\n')
    with pytest.raises(InputError, match="damaged"):
        list(read_docs(tmp_path / "d.csv", skip_bad=True))
