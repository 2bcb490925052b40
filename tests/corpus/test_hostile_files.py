"""Files made to hurt: no pattern takes more than linear time, nothing fills the memory, and what is
wrong is said in one sentence."""

import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reliability import Recorder

from glassrank.corpus import read_docs, read_folds, read_qrels, read_queries, read_run
from glassrank.corpus.trec import _DOCNO, _NOT_TEXT, _TITLE, _elements, _strip_markup
from glassrank.errors import GlassrankError, InputError
from glassrank.storage import files

LINEAR = "files made to keep a pattern busy", "read or refused in linear time"
LARGE = 400_000
"""Characters. What is quadratic takes minutes here, what is linear milliseconds."""
SECONDS = 3.0


def doc(body: str) -> str:
    return f"<DOC>\n<DOCNO>d</DOCNO>\n{body}\nwords\n</DOC>\n"


def many(text: str) -> str:
    return text * (LARGE // len(text))


def page(body: str, head: str = "HTTP/1.1 200 OK\n\n") -> str:
    fields = "WARC-Type: response\nWARC-TREC-ID: d\nContent-Type: application/http"
    return f"WARC/1.0\n{fields}\nContent-Length: {len(head + body)}\n\n{head}{body}"


SLOW_DOCS = {
    "blanks in DOCNO": ("d.trec", "<DOC>\n<DOCNO>" + many(" ") + "\n</DOC>"),
    "blanks in DOCNO, closed": ("d.trec", "<DOC><DOCNO>" + many(" ") + "d</DOCNO>words</DOC>"),
    "DOCNO again and again": ("d.trec", "<DOC>" + many("<DOCNO>") + "</DOC>"),
    "comments": ("d.trec", doc(many("<!--"))),
    "comments, almost closed": ("d.trec", doc(many("<!-- --") + ">")),
    "titles": ("d.trec", doc(many("<TI>"))),
    "titles without brackets": ("d.trec", doc(many("<TI "))),
    "titles and one bracket": ("d.trec", doc(many("<TI ") + ">")),
    "titles of another name": ("d.trec", doc(many("<TI>") + "</HL>" + many("<HL>"))),
    "scripts": ("d.trec", doc(many("<SCRIPT>"))),
    "scripts in turn": ("d.trec", doc(many("<SCRIPT><STYLE><DOCHDR><DOCID>"))),
    "tags": ("d.trec", doc(many("<a "))),
    "DOC tags": ("d.trec", doc(many("<DOC\t"))),
    "closing DOC tags": ("d.trec", doc(many("</DOC "))),
    "entities": ("d.trec", doc(many("&#"))),
    "digits of an entity": ("d.trec", doc("&#" + many("1") + ";")),
    "names of entities": ("d.trec", doc(many("&am"))),
    "Markdown heading": ("d.md", "# " + many("#") + "x"),
    "Markdown blanks": ("d.md", "#" + many(" ") + "\n" + many("\n#")),
    "Markdown blanks and hashes": ("d.md", "# x" + many(" #") + "x\n" + many("# \n") + "y"),
    "one token": ("d.txt", many("a")),
    "lines of no record": ("d.warc", many("x\n")),
    "records without a header": ("d.warc", many("WARC/1.0\n")),
    "records without a length": ("d.warc", many("WARC/1.0\n\nHTTP/\n")),
    "fields of a record": ("d.warc", "WARC/1.0\n" + many("a: b\n")),
    "blanks in a charset": ("d.warc", page("<p charset" + many(" ") + "x")),
    "comments of a page": ("d.warc", page(many("<!--"))),
    "carriage returns": ("d.warc", page(many("\r"), head="")),
    "lists in lists": ("d.cbor", many("\x81")),
    "strings of no piece": ("d.cbor", "\x83\x00" + many("\x7f")),
    "quotes": ("d.csv", "id,text\n1," + many('"')),
    "commas": ("d.csv", "id,text\n1," + many(",")),
    "tabs": ("d.tsv", "1\t" + many("\t")),
    "brackets": ("d.jsonl", many("[")),
    "braces": ("d.jsonl", many('{"a":')),
    "digits": ("d.jsonl", '{"id": ' + many("1") + ', "text": "x"}'),
    "digits and a point": ("d.jsonl", '{"id": 1, "text": "x", "n": 0.' + many("1") + "}"),
    "fields": ("d.jsonl", "{" + ",".join(f'"{n}": 1' for n in range(50_000)) + "}"),
}


@pytest.mark.parametrize("case", SLOW_DOCS)
def test_documents_take_linear_time(tmp_path: Path, case: str, reliability: Recorder) -> None:
    name, content = SLOW_DOCS[case]
    (tmp_path / name).write_text(content, "latin-1", newline="")
    in_time(lambda: list(read_docs(tmp_path / name, skip_bad=True)))
    in_time(lambda: list(read_docs(tmp_path / name)))
    reliability("Readers", *LINEAR)


def topic(body: str) -> str:
    return f"<top>\n<num> Number: 1\n<title> words\n{body}\n</top>\n"


SLOW_QUERIES = {
    "tops": many("<top "),
    "tops and one bracket": many("<top ") + ">",
    "tops, all open": many("<top>"),
    "blanks behind num": "<top><num>" + many(" ") + "<title>x</top>",
    "blanks behind Number": "<top><num>Number:" + many(" ") + "<title>x</top>",
    "number without a value": "<top>" + many("number ") + "<title>x</top>",
    "blanks behind number": "<top>number" + many(" ") + "<title>x</top>",
    "open tags in a title": "<top><num>1<title>" + many("<a ") + "</top",
    "long tag in a title": "<top><num>1<title><" + many("a") + "</top",
    "tags without brackets": "<top><num>1<title>x" + many("<a") + "</top>",
    "labels": topic("<title>" + many("Topic:")),
    "ends": topic("") + many("</top>"),
    "digits of an entity": "<top><num>1<title>&#" + many("1") + "</top>",
    "tabs": "1" + many("\t"),
    "braces": many('{"a":'),
}


@pytest.mark.parametrize("field", ["title", "desc"])
@pytest.mark.parametrize("case", SLOW_QUERIES)
def test_queries_take_linear_time(
    tmp_path: Path, case: str, field: str, reliability: Recorder
) -> None:
    (tmp_path / "q").write_text(SLOW_QUERIES[case])
    in_time(lambda: read_queries(tmp_path / "q", field))
    reliability("Readers", *LINEAR)


@pytest.mark.parametrize("read", [read_qrels, read_run])
@pytest.mark.parametrize("content", ["1 " + many("0 "), "1 0 d " + many("1"), many(" "), many("1")])
def test_columns_take_linear_time(
    tmp_path: Path, read: Callable[[Path], object], content: str
) -> None:
    (tmp_path / "rows").write_text(content)
    in_time(lambda: read(tmp_path / "rows"))


def in_time(read: Callable[[], object]) -> None:
    """Read, or refused in one sentence, within seconds of processor time."""
    began = time.process_time()
    try:
        read()
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 2200
    assert time.process_time() - began < SECONDS


OLD = {
    _TITLE: r"<(TITLE|HEADLINE|DOCTITLE|HL|TI)\b[^>]*>(.*?)</\1>",
    _DOCNO: r"<(DOCNO)>(.*?)</DOCNO>",
    _NOT_TEXT: r"<!--.*?-->|<(DOCNO|DOCID|DOCOLDNO|DOCHDR|SCRIPT|STYLE)\b[^>]*>.*?</\1>",
}
"""The same elements in patterns that can be read, and that take the square of a text's length."""
markup = st.lists(
    st.sampled_from(
        "<|>|</TI>|<ti>|<TI a>|<title |</TITLE>|<!--|-->|-|<script>|</SCRIPT>|<STYLE x|</style>|"
        "<DOCNO>|</DOCNO>|a| |\n|&amp;|/".split("|")
    ),
    max_size=30,
).map("".join)


@given(markup)
def test_elements_are_those_of_the_plain_patterns(text: str) -> None:
    for begins, pattern in OLD.items():
        plain = re.compile(pattern, re.IGNORECASE | re.DOTALL)
        expected = [match.span() for match in plain.finditer(text)]
        assert [(found.start, found.stop) for found in _elements(text, begins)] == expected
    old = re.sub(OLD[_NOT_TEXT], " ", text, flags=re.IGNORECASE | re.DOTALL)
    old = re.sub(r"<[/!?]?[a-zA-Z][^>]*>", " ", old).replace("&amp;", "&")
    lines = "\n".join(" ".join(line.split()) for line in old.split("\n") if line.strip())
    assert _strip_markup(text) == lines


def bomb(byte: bytes, megabytes: int) -> bytes:
    """Members of a gzip file stand one behind the other; all unfold."""
    return gzip.compress(byte * (1 << 20)) * megabytes


CHILD = """
import resource, sys
limit = int(sys.argv[3]) << 20
from glassrank.corpus import read_docs, read_folds, read_qrels, read_queries, read_run
from glassrank.errors import InputError
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
try:
    for _ in getattr(sys.modules["glassrank.corpus"], sys.argv[1])(sys.argv[2]):
        pass
except InputError as error:
    print(error)
"""


READERS = [
    ("read_docs", "d.jsonl.gz"),
    ("read_docs", "d.tsv.gz"),
    ("read_docs", "d.csv.gz"),
    ("read_docs", "d.trec.gz"),
    ("read_docs", "d.md.gz"),
    ("read_queries", "q.tsv.gz"),
    ("read_qrels", "q.txt.gz"),
    ("read_run", "r.run.gz"),
    ("read_folds", "f.json.gz"),
]
# Lines are many steps: seconds for each reader, and all take them from one place.
BOMBS = [
    *(pytest.param(*reader, b"\0", id=f"zeros-{reader[1]}") for reader in READERS),
    pytest.param(*READERS[0], b"\n", id="line ends"),
    *(
        pytest.param(*reader, b"\n", id=f"line ends-{reader[1]}", marks=pytest.mark.slow)
        for reader in READERS[1:]
    ),
]


@pytest.mark.parametrize(("read", "name", "byte"), BOMBS)
@pytest.mark.long
def test_a_gzip_bomb_is_refused_in_little_memory(
    tmp_path: Path, read: str, name: str, byte: bytes, reliability: Recorder
) -> None:
    path = tmp_path / name
    path.write_bytes(bomb(byte, 4096))  # 4 GB in 4 MB
    done = subprocess.run(
        [sys.executable, "-c", CHILD, read, str(path), "1500"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any(
        word in done.stdout for word in ("decompresses to more than", "longer than", "larger")
    )
    assert done.stdout.count("\n") == 1
    reliability("Readers", "gzip files that unfold a thousandfold", "refused, in little memory")


def test_what_people_compress_is_read(tmp_path: Path) -> None:
    """A run of one query compresses about as well as anything real."""
    rows = "".join(f"1 Q0 doc{n} {n} {1 / n:.6f} tag\n" for n in range(1, 200_001))
    (tmp_path / "r.run.gz").write_bytes(gzip.compress(rows.encode()))
    assert [len(docs) for _, docs, _ in read_run(tmp_path / "r.run.gz").items()] == [200_000]
    assert len(rows) / (tmp_path / "r.run.gz").stat().st_size < files.MAX_EXPANSION / 5


@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.csv", "d.trec", "d.txt"])
def test_a_line_without_an_end_is_refused(tmp_path: Path, name: str, reliability: Recorder) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(50 * files.MAX_LINE_BYTES)  # a hole: 3 GB of zeros
    with pytest.raises(InputError, match=rf"{name}:1: a line is longer than"):
        list(read_docs(path))
    reliability("Readers", "a line of 3 GB", "refused")


@pytest.mark.parametrize("name", ["d.txt", "d.trec", "d.csv"])
def test_a_text_of_many_lines_is_bounded_too(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassrank.corpus.records.MAX_LINE_BYTES", 1 << 18)
    begin = {"d.trec": "<DOC>\n<DOCNO>1</DOCNO>\n", "d.csv": 'id,text\n1,"'}.get(name, "")
    (tmp_path / name).write_text(begin + "some words\n" * 30_000)
    with pytest.raises(InputError, match=r"d\.\w+:\d+: .*(longer than|larger than)"):
        list(read_docs(tmp_path / name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.csv", "d.trec", "d.txt", "d.txt.gz"])
def test_a_document_of_50_megabytes_is_read(tmp_path: Path, name: str) -> None:
    words = "".join(f"word{n} " for n in range(4_600_000))
    content = {
        "d.jsonl": json.dumps({"id": "1", "text": words}),
        "d.tsv": f"1\t{words}",
        "d.csv": f'id,text\n1,"{words}"\n',
        "d.trec": f"<DOC>\n<DOCNO>1</DOCNO>\n{words}\n</DOC>",
    }.get(name, words)
    assert len(words) > 50_000_000
    raw = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    (found,) = read_docs(tmp_path / name)
    assert found.text.strip() == words.strip()


@pytest.mark.parametrize("content", ["<", "<b>", "<TOPICS>\n", "<topper>1</topper>", "< top >"])
def test_queries_that_begin_like_topics_and_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "q.txt").write_text(content)
    with pytest.raises(InputError, match=r"q\.txt .*has no <top>"):
        read_queries(tmp_path / "q.txt")


@pytest.mark.parametrize("grade", [f"{2**63}", f"{-(2**64)}", "1" * 5000, "1_0", "+-1", "0x1"])
def test_grades_are_numbers_that_measures_can_hold(tmp_path: Path, grade: str) -> None:
    (tmp_path / "q").write_text(f"1 0 d {grade}\n")
    with pytest.raises(InputError, match="expected an integer relevance label"):
        read_qrels(tmp_path / "q")


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "[[1.5]]", "[[[1]]]", "[{}]", "[null]", "{}"],
)
def test_folds_that_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "folds.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=r"folds\.json"):
        read_folds(tmp_path / "folds.json")


def test_a_folder_does_not_reach_outside(tmp_path: Path, reliability: Recorder) -> None:
    """Whoever filled it would have another's files indexed and shown."""
    (tmp_path / "secret.txt").write_text("The password is swordfish.")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("words")
    (folder / "b.txt").symlink_to("a.txt")
    os.mkfifo(folder / "pipe.txt")
    (folder / "zero.txt").symlink_to("/dev/zero")
    assert [found.doc_id for found in read_docs(folder)] == ["a.txt", "b.txt"]
    for target in ("../secret.txt", str(tmp_path / "secret.txt")):
        (folder / "c.txt").symlink_to(target)
        with pytest.raises(InputError, match=r"c\.txt is a link to a file outside"):
            list(read_docs(folder))
        (folder / "c.txt").unlink()
    reliability("Readers", "links out of a folder of documents", "refused", tries=2)


@pytest.mark.parametrize("read", [read_docs, read_queries, read_qrels, read_run, read_folds])
@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/dev/null/x.tsv", "/proc/self/mem"])
def test_names_that_no_file_can_have(read: Callable[[str], object], name: str) -> None:
    with pytest.raises(GlassrankError) as error:
        list(read(name))  # type: ignore[call-overload]
    assert "\n" not in str(error.value)


def test_an_error_quotes_no_megabytes(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("1 0 d " + "x" * 500_000)
    with pytest.raises(InputError) as error:
        read_qrels(tmp_path / "q")
    assert len(str(error.value)) < 2200
