"""WARC files: the headers that crawlers write, pages to texts, and records that are broken."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.corpus import read_docs
from glassrank.errors import InputError
from glassrank.types import Doc

PAGE = b"<html><title>Owls &amp; mice</title><script>x</script><p>They hoot.</html>"
HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def record(
    content: bytes = HTTP + PAGE,
    kind: str = "response",
    content_type: str = "application/http; msgtype=response",
    end: str = "\r\n",
    **fields: str,
) -> bytes:
    named = fields or {"WARC-TREC-ID": "cw-1", "WARC-Target-URI": "http://a/b:c"}
    lines = ["WARC/1.0", f"WARC-Type: {kind}", *(f"{k}: {v}" for k, v in named.items())]
    lines += [f"Content-Type: {content_type}", f"Content-Length: {len(content)}", "", ""]
    return end.join(lines).encode() + content + 2 * end.encode()


def written(folder: Path, *records: bytes, name: str = "d.warc") -> Path:
    path = folder / name
    data = b"".join(gzip.compress(r) for r in records) if name.endswith("gz") else b"".join(records)
    path.write_bytes(data)
    return path


OWLS = Doc("cw-1", "They hoot.", "Owls & mice", "http://a/b:c")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["d.warc", "d.warc.gz"])
def test_pages_of_clueweb_are_read(tmp_path: Path, name: str, end: str) -> None:
    """With \\n in ClueWeb09 and \\r\\n in ClueWeb12; each record is a member of its gzip."""
    about = record(b"software: Nutch", "warcinfo", "application/warc-fields", end)
    other = record(end=end, **{"WARC-TREC-ID": "cw-2"})
    path = written(tmp_path, about, record(end=end), other, name=name)
    assert list(read_docs(path)) == [OWLS, Doc("cw-2", OWLS.text, OWLS.title)]


def test_common_crawls_texts_are_read_as_they_are(tmp_path: Path) -> None:
    named = {"WARC-Record-ID": "<urn:uuid:12-34>", "WARC-Target-URI": "http://a"}
    text = "a <b> c\nété".encode()
    path = written(
        tmp_path, record(text, "conversion", "text/plain", **named), name="d.warc.wet.gz"
    )
    assert list(read_docs(path)) == [Doc("12-34", "a <b> c\nété", "", "http://a")]


def test_what_is_no_text_is_no_document(tmp_path: Path) -> None:
    picture = HTTP.replace(b"text/html", b"image/png") + b"\x89PNG"
    path = written(
        tmp_path,
        record(picture),
        record(b"20190101 127.0.0.1", content_type="text/dns"),
        record(b"GET / HTTP/1.1\r\n\r\n", "request"),
        record(),
    )
    assert list(read_docs(path)) == [OWLS]


@pytest.mark.parametrize(
    ("head", "page"),
    [
        (b"text/html; charset=iso-8859-1", "<p>café".encode("latin-1")),
        (b"text/html", "<meta charset='windows-1252'><p>café".encode("latin-1")),
        (b"text/html; charset=nosuch", "<p>café".encode()),
        (b"text/html; charset=gb-nosuch", "<p>café".encode()),
        (b"text/html", "<p>café".encode()),
    ],
)
def test_pages_say_their_charset(tmp_path: Path, head: bytes, page: bytes) -> None:
    http = HTTP.replace(b"text/html", head)
    (doc,) = read_docs(written(tmp_path, record(http + page)))
    assert doc.text == "café"


def test_bytes_that_do_not_fit_are_replaced(tmp_path: Path) -> None:
    (doc,) = read_docs(written(tmp_path, record(HTTP + b"<p>caf\xe9")))
    assert doc.text == "caf\N{REPLACEMENT CHARACTER}"


def test_a_blank_line_in_a_header_as_in_clueweb09(tmp_path: Path) -> None:
    split = record(end="\n").replace(b"WARC-Target-URI", b"\nWARC-Target-URI")
    assert list(read_docs(written(tmp_path, split, record()), skip_bad=True)) == [OWLS, OWLS]


def test_behind_a_broken_record_reading_goes_on(tmp_path: Path) -> None:
    short = record().replace(b"Content-Length: 1", b"Content-Length: 0")  # the rest is left over
    none = record().replace(b"Content-Length", b"Content-Size")
    empty = record(HTTP)
    nameless = record(**{"WARC-Date": "2009"})
    packed = record(HTTP + gzip.compress(PAGE))
    path = written(tmp_path, b"garbage\n", short, record(), none, record(), empty, nameless, packed)
    reader = read_docs(path, skip_bad=True)
    assert [doc.doc_id for doc in reader][-2:] == ["cw-1", "cw-1"]
    assert reader.first_skipped.startswith(f"{path}:1: expected a record, WARC/")
    for broken, message in (
        (none, "found one without a length"),
        (empty, "expected a text for document 'cw-1'"),
        (nameless, "expected a WARC-TREC-ID"),
        (packed, "cw-1 is stored as its server compressed it"),
        (record()[:-20], "the file ends 16 bytes before this record does"),
    ):
        with pytest.raises(InputError, match=rf"d\.warc:1: .*{message}"):
            list(read_docs(written(tmp_path, broken)))


def test_lengths_are_bounded(tmp_path: Path) -> None:
    for length in ("1" * 5000, "-1", "٣", "1e3"):
        huge = record().replace(b"Content-Length: ", f"Content-Length: {length} ".encode())
        with pytest.raises(InputError, match="without a length"):
            list(read_docs(written(tmp_path, huge)))
    path = written(tmp_path, record().replace(b"Length: ", b"Length: 900000000"))
    with pytest.raises(InputError, match=r"the file ends .* bytes before"):
        list(read_docs(path))


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown encoding 'nosuch'"):
        list(read_docs(written(tmp_path, record()), encoding="nosuch"))


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4))
@pytest.mark.long
def test_pages_are_those_of_warcio(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    warcio = pytest.importorskip("warcio.archiveiterator", reason="warcio is not installed")
    http = HTTP.replace(b"html", b"plain")
    path = written(tmp_path_factory.mktemp("warc"), *(record(http + t.encode()) for t in texts))
    with path.open("rb") as file:
        theirs = [page.content_stream().read().decode() for page in warcio.ArchiveIterator(file)]
    assert [doc.text for doc in read_docs(path)] == theirs == texts
