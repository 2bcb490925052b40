"""What an index is built of, and where it cannot be: documents in any form, and one sentence."""

import errno
from pathlib import Path
from typing import Any

import pytest

from glassrank.errors import InputError, disk_error
from glassrank.index import Index
from glassrank.types import Doc


def test_texts_and_dicts_are_documents(tmp_path: Path) -> None:
    given: list[Any] = [
        "Owls hoot.",
        {"id": "b", "text": "Cats chase owls.", "title": "Cats", "year": 1999},
        {"contents": "Dogs bark.", "url": "http://dogs"},
        Doc("d", "A bird sings."),
    ]
    index = Index.build(given, tmp_path / "index")
    assert [doc.doc_id for doc in index.docs()] == ["0", "2", "b", "d"]
    assert index.doc("b") == Doc("b", "Cats chase owls.", "Cats", "", {"year": 1999})
    assert index.doc("2").source == "http://dogs"
    assert index.add([{"id": "e", "text": "More owls."}]) == 1
    assert {hit.doc_id for hit in index.search("owl")} == {"0", "b", "e"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("one text", "expected a list of documents, not a str"),
        ([7], "document 0 is an int; expected a Doc, a dict or a text"),
        ([Doc(7, "Owls.")], "the doc_id of document 0 is an int; expected a text"),  # type: ignore[arg-type]
        ([Doc("a", None)], "the text of document 0 is None; expected a text"),  # type: ignore[arg-type]
        ([{"id": "a"}], "docs:0: expected a field named text"),
        ([" "], "docs:0: expected a text for document '0'"),
    ],
)
def test_anything_else_is_one_sentence(tmp_path: Path, given: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Index.build(given, tmp_path / "index")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "it is as it was, so make room and try again"),
        (errno.EACCES, "it is as it was, so choose a path that you may write to"),
        (errno.EROFS, "it is as it was, so choose a path that you may write to"),
        (errno.EIO, "it is as it was"),
    ],
)
def test_the_remedy_is_that_of_the_error(number: int, remedy: str) -> None:
    error = OSError(number, "why")
    assert str(disk_error(error, "write x", "it is as it was")) == f"cannot write x: why; {remedy}"
    assert str(disk_error(error, "read x")) == "cannot read x: why"
