"""Each format, read as it is documented."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.corpus import count_skipped_files, read_docs, write_docs
from glassrank.errors import InputError
from glassrank.types import Doc

OWL = Doc("d1", "They hoot.", "Owls")


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"_id": "d1", "title": "Owls", "text": "They hoot.", "metadata": {}},
        {"doc_id": "d1", "title": "Owls", "text": "They hoot."},
        {"id": "d1", "title": "Owls", "contents": "They hoot."},
        {"docid": "d1", "title": "Owls", "body": "They hoot."},
        {"pid": "d1", "title": "Owls", "text": "They hoot.", "metadata": None},
    ],
)
def test_jsonl_takes_the_names_of_the_field(tmp_path: Path, record: dict[str, object]) -> None:
    path = write(tmp_path / "docs.jsonl", json.dumps(record) + "\n")
    assert list(read_docs(path)) == [OWL]


def test_jsonl_keeps_source_metadata_and_other_fields(tmp_path: Path) -> None:
    record = {"id": 7, "text": "x", "url": "http://a", "metadata": {"year": 1999}, "lang": "en"}
    (doc,) = read_docs(write(tmp_path / "docs.jsonl", json.dumps(record)))
    assert doc == Doc("7", "x", "", "http://a", {"year": 1999, "lang": "en"})


@pytest.mark.parametrize(
    ("line", "doc"),
    [
        ("d1\tThey hoot.", Doc("d1", "They hoot.")),
        ("d1\tOwls\tThey hoot.", OWL),
        ("d1\thttp://a\tOwls\tThey hoot.", Doc("d1", "They hoot.", "Owls", "http://a")),
        ("id\ttext\ttitle\nd1\tThey hoot.\tOwls", OWL),
    ],
)
def test_tsv_columns_go_by_their_number_or_a_header(tmp_path: Path, line: str, doc: Doc) -> None:
    assert list(read_docs(write(tmp_path / "docs.tsv", line + "\n"))) == [doc]


def test_tsv_text_keeps_other_unicode_line_breaks(tmp_path: Path) -> None:
    (doc,) = read_docs(write(tmp_path / "docs.tsv", "d1\ta\u2028b\x0cc\r\n"))
    assert doc.text == "a\u2028b\x0cc"


def test_csv_goes_by_its_header_and_allows_quoted_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", 'title,doc_id,text\nOwls,d1,"They\nhoot, ""loudly""."\n')
    assert list(read_docs(path)) == [Doc("d1", 'They\nhoot, "loudly".', "Owls")]


def test_csv_holds_long_documents(tmp_path: Path) -> None:
    text = "owl " * 50_000
    assert len(text) > csv.field_size_limit() or csv.field_size_limit() > 131_072
    (doc,) = read_docs(write(tmp_path / "d.csv", f"id,text\n1,{text}\n"))
    assert doc.text == text


TREC = """<DOC>
<DOCNO> FT-1 </DOCNO>
<DOCHDR>HTTP/1.0 200 OK</DOCHDR>
<HEADLINE>
Fish &amp; chips
</HEADLINE>
<!-- a note -->
<TEXT>
<P>Served <B>hot</B>, if x < 3.</P>
</TEXT>
<PUB>The Times</PUB>
</DOC>
<doc><docno>FT-2</docno><text>Second.</text></doc>
"""


def test_trec_documents_lose_their_tags(tmp_path: Path) -> None:
    assert list(read_docs(write(tmp_path / "ft.trec", TREC))) == [
        Doc("FT-1", "Served hot , if x < 3.\nThe Times", "Fish & chips"),
        Doc("FT-2", "Second."),
    ]


def test_trec_files_may_be_latin_1(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sgml", "<DOC><DOCNO>1</DOCNO>café</DOC>", "latin-1")
    assert [doc.text for doc in read_docs(path, encoding="latin-1")] == ["café"]


def test_a_folder_gives_one_document_for_each_text_file(tmp_path: Path) -> None:
    write(tmp_path / "b.md", "intro\n\n## The *real* title ##\ntext\n")
    write(tmp_path / "a file.txt", "# not markdown")
    write(tmp_path / "sub" / "c.md.gz", "no heading\n")
    write(tmp_path / ".hidden.txt", "x")
    write(tmp_path / ".git" / "d.txt", "x")
    write(tmp_path / "picture.png", "\x00")
    assert [(doc.doc_id, doc.title) for doc in read_docs(tmp_path)] == [
        ("a%20file.txt", "a file"),
        ("b.md", "The *real* title"),
        ("sub/c.md.gz", "c"),
    ]


def test_files_that_are_passed_over_can_be_told(tmp_path: Path) -> None:
    for name in ("a.txt", "b.html", "c.HTML", "sub/d.pdf", "Makefile", ".hidden"):
        write(tmp_path / name, "x")
    assert count_skipped_files(tmp_path) == {".html": 2, ".pdf": 1, "Makefile": 1}
    assert count_skipped_files(tmp_path, "text").total() == 4
    assert not count_skipped_files(tmp_path / "a.txt")


def test_files_of_a_folder_have_their_own_readers(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl.gz", '{"id": "j", "text": "x"}\n')
    write(tmp_path / "2.trec", "<DOC><DOCNO>t</DOCNO>x</DOC>")
    write(tmp_path / "3.md", "x")
    assert [doc.doc_id for doc in read_docs(tmp_path)] == ["j", "t", "3.md"]
    assert [doc.doc_id for doc in read_docs(tmp_path, format="text")] == ["3.md"]


def test_a_format_reads_a_folder_of_odd_names_as_on_trec_disks(tmp_path: Path) -> None:
    write(tmp_path / "FR94" / "FR940104.0", "<DOC><DOCNO>t</DOCNO>x</DOC>")
    assert [doc.doc_id for doc in read_docs(tmp_path, format="trec")] == ["t"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.jsonl", '{"_id": "d1", "title": "Owls", "text": "They hoot."}'),
        ("d.tsv", "d1\tOwls\tThey hoot."),
        ("d.csv", "id,title,text\nd1,Owls,They hoot."),
        ("d.trec", "<DOC><DOCNO>d1</DOCNO><TITLE>Owls</TITLE>They hoot.</DOC>"),
    ],
)
def test_formats_agree_compressed_or_not(tmp_path: Path, name: str, text: str, suffix: str) -> None:
    assert list(read_docs(write(tmp_path / (name + suffix), text))) == [OWL]


def test_a_reader_can_be_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "docs.tsv", "d1\tx\nd2\ty\n")
    docs = read_docs(path)
    assert list(docs) == list(docs)
    assert docs.name == str(path)
    assert docs.n_bytes == 10


def test_locate_names_both_lines_of_a_repeated_id(tmp_path: Path) -> None:
    path = write(tmp_path / "docs.tsv", "d1\tx\nd2\ty\n\nd1\tz\n")
    docs = read_docs(path)
    assert docs.locate("d1") == f"{path}:4 (first at {path}:1)"
    assert docs.locate("d2") == f"{path}:2"
    assert docs.locate("d3") == ""


def test_a_title_alone_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path / "docs.tsv", "d1\tOwls\t\n")
    assert list(read_docs(path)) == [Doc("d1", "", "Owls")]


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
docs = st.builds(
    Doc,
    texts,
    texts,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.dictionaries(st.sampled_from(["year", "lang"]), st.integers() | texts),
)


@settings(max_examples=30)  # each writes a file
@given(st.lists(docs, min_size=1, max_size=5))
def test_writing_then_reading_is_identity(
    tmp_path_factory: pytest.TempPathFactory, docs: list[Doc]
) -> None:
    path = tmp_path_factory.mktemp("docs") / "docs.jsonl"
    write_docs(docs, path)
    assert list(read_docs(path)) == docs


PEAK = """
import sys, tracemalloc
from glassrank.corpus import read_docs
next(iter(read_docs(sys.argv[1])))  # what is imported on the way
for path in sys.argv[1:]:
    tracemalloc.start()
    print(sum(1 for _ in read_docs(path)), tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""
"""In a process of its own: what other tests left behind is not counted."""


@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.csv", "d.trec", "d.warc", "d.cbor"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    record, header = {
        "d.jsonl": ('{{"id": "{}", "text": "owls hoot at night"}}\n', ""),
        "d.tsv": ("{}\towls hoot at night\n", ""),
        "d.csv": ("{},owls hoot at night\n", "id,text\n"),
        "d.trec": ("<DOC>\n<DOCNO>{}</DOCNO>\nowls hoot at night\n</DOC>\n", ""),
        "d.warc": (
            "WARC/1.0\nWARC-Type: resource\nWARC-TREC-ID: {}\nContent-Length: 5\n\nowls!\n\n",
            "",
        ),
        "d.cbor": ("\x83\x00\x45{:05}\x81\x82\x00\x65owls!", ""),
    }[name]

    def file(count: int) -> Path:
        text = header + "".join(record.format(i) for i in range(count))
        return write(tmp_path / f"{count}-{name}", text, "latin-1")

    command = [sys.executable, "-c", PEAK, file(500), file(5_000)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (few, small), (many, large) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert (few, many) == (500, 5_000)
    # A set of the ids alone would take 250,000 more.
    assert large < small + 80_000


def test_the_error_for_a_missing_file_comes_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.jsonl does not exist"):
        read_docs(tmp_path / "missing.jsonl")
