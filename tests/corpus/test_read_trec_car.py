"""TREC CAR's paragraphs: its CBOR in every form that encoders write, and what is broken in it."""

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.corpus import read_docs
from glassrank.errors import InputError
from glassrank.types import Doc

HEADER = ["CAR", [2], [[0, "enwiki", None, True, 0.5, -3]]]
LINK = [1, [0, "Owl", ["Food"], b"enwiki:Owl", "owls"]]


def head(kind: int, size: int) -> bytes:
    if size < 24:
        return bytes([kind << 5 | size])
    info, form = next((i, f) for i, f in enumerate("BHIQ") if size < 1 << (8 << i))
    return bytes([kind << 5 | 24 + info]) + struct.pack(f">{form}", size)


def encoded(value: Any, *, open_ended: bool = False) -> bytes:
    """CBOR by its definition; lists and strings with their length, or with an end."""
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    kind = {bytes: 2, str: 3, list: 4}[type(value)]
    if isinstance(value, list):
        parts = [encoded(part, open_ended=open_ended) for part in value]
    else:
        data = value.encode() if isinstance(value, str) else value
        if not open_ended:
            return head(kind, len(data)) + data
        parts = [head(kind, len(data)) + data, head(kind, 0)]
    if open_ended:
        return bytes([kind << 5 | 31]) + b"".join(parts) + b"\xff"
    return head(kind, len(value)) + b"".join(parts)


def paragraph(name: str, *bodies: Any) -> list[Any]:
    return [0, name.encode(), list(bodies)]


def car(*paragraphs: Any, header: Any = HEADER, open_ended: bool = False) -> bytes:
    body = b"".join(encoded(value, open_ended=open_ended) for value in paragraphs)
    return (encoded(header) + b"\x9f" + body + b"\xff") if header else body


def written(folder: Path, data: bytes, name: str = "d.cbor") -> Path:
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return folder / name


TWO = paragraph("p1", [0, "All "], LINK, [0, " hoot."]), paragraph("p2", [0, "é" * 300])
DOCS = [Doc("p1", "All owls hoot."), Doc("p2", "é" * 300)]


@pytest.mark.parametrize("open_ended", [False, True])
@pytest.mark.parametrize("header", [HEADER, None])
@pytest.mark.parametrize("name", ["d.cbor", "d.cbor.gz"])
def test_paragraphs_are_read(tmp_path: Path, name: str, header: Any, open_ended: bool) -> None:
    data = car(*TWO, header=header, open_ended=open_ended)
    assert list(read_docs(written(tmp_path, data, name))) == DOCS
    cut = data.removesuffix(b"\xff") if header else data  # as some files end
    assert list(read_docs(written(tmp_path, cut, name))) == DOCS


def test_tags_and_maps_of_a_header_are_passed_over(tmp_path: Path) -> None:
    date = b"\xd9\x03\xe8\xa2" + encoded(1) + encoded(2) + encoded(-12) + encoded("x")
    header = b"\x84" + encoded("CAR") + encoded([2]) + date + b"\xbf\xff"
    data = header + car(*TWO).removeprefix(encoded(HEADER))
    assert list(read_docs(written(tmp_path, data))) == DOCS


def test_bad_paragraphs_are_passed_over_and_counted(tmp_path: Path) -> None:
    no_utf_8 = encoded(paragraph("p4", [0, "aé"])).replace("é".encode(), b"\xff\xff")
    bad = [paragraph("p3", [0, " "]), [1, b"x", []], 7, paragraph("p3", [2, "x"])]
    data = car(TWO[0], *bad, TWO[1]).removesuffix(b"\xff") + no_utf_8 + b"\xff"
    path = written(tmp_path, data)
    with pytest.raises(InputError, match=r"d\.cbor:2: expected a text for document 'p3'"):
        list(read_docs(path))
    reader = read_docs(path, skip_bad=True)
    assert list(reader) == DOCS and reader.skipped == len(bad) + 1


BROKEN = {
    "outlines": (encoded(["CAR", [1], []]) + b"\x9f\xff", "contains TREC CAR's outlines, expected"),
    "no kind": (encoded(["CAR", "x"]), "contains TREC CAR's something else, expected"),
    "no list": (encoded(HEADER) + b"\x80", "expected a list of paragraphs"),
    "cut": (car(*TWO)[:-20], r"d\.cbor:2: .*the file ends inside it"),
    "cut in a length": (car(TWO[0])[:-1] + b"\x9b\x00", r"d\.cbor:2: .*the file ends inside"),
    "a huge text": (
        car(TWO[0])[:-1] + b"\x7b" + b"\xff" * 8,
        r"d\.cbor:2: .*longer than 1,048,576",
    ),
    "a huge list": (b"\x9b" + b"\x7f" * 8 + b"\x00" * (1 << 21), r"d\.cbor:1: .*longer than 1,048"),
    "deep lists": (b"\x81" * 100_000, "nested too deeply"),
    "deep tags": (b"\xc1" * 100_000, "nested too deeply"),
    "no length": (b"\x5d", "a length is not valid"),
    "a number without an end": (b"\x1f", "a number has no end"),
    "pieces": (b"\x7f\x41a\xff", "parts of another type"),
    "nothing": (b"", "has no documents"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_one_sentence(tmp_path: Path, case: str) -> None:
    data, message = BROKEN[case]
    with pytest.raises(InputError, match=message) as error:
        list(read_docs(written(tmp_path, data)))
    assert "\n" not in str(error.value)


bodies = st.lists(
    st.text(min_size=1).map(lambda text: [0, text])
    | st.tuples(st.text(), st.lists(st.text(), max_size=1), st.text()).map(
        lambda link: [1, [0, link[0], link[1], b"id", link[2]]]
    ),
    max_size=4,
)


@given(st.lists(bodies, min_size=1, max_size=4), st.booleans())
@pytest.mark.long
def test_paragraphs_are_those_of_trec_car_tools(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[Any]], header: bool
) -> None:
    tools = pytest.importorskip("trec_car.read_data", reason="trec-car-tools is not installed")
    data = car(
        *(paragraph(f"p{n}", [0, "x"], *text) for n, text in enumerate(texts)),
        header=HEADER if header else None,
    )
    path = written(tmp_path_factory.mktemp("car"), data)
    theirs = tools.iter_paragraphs(io.BufferedReader(io.BytesIO(data)))
    assert [Doc(p.para_id, p.get_text()) for p in theirs] == list(read_docs(path))
