"""The demo corpus, on whatever Python runs the tests, and the judged questions about it."""

import sys
import sysconfig
from collections import Counter

import pytest

from glassrank.corpus import (
    PYTHON_QUESTIONS,
    SAMPLE_QUERIES,
    python_docs,
    read_qrels,
    read_queries,
)
from glassrank.types import Doc, Qrels

pytestmark = pytest.mark.long  # all modules of this Python are read

# Not in every build of 3.11 and later: of grade 2, but never a question's only answer.
OPTIONAL = {
    *("asyncio.TaskGroup", "asyncio.Timeout", "pathlib.PurePath.suffix", "topic:types#15"),
    *("sqlite3.Connection.executemany", "sqlite3.Cursor.executemany"),  # a build without SQLite
}


@pytest.fixture(scope="module")
def docs() -> dict[str, Doc]:
    found = list(python_docs())
    by_id = {doc.doc_id: doc for doc in found}
    assert len(by_id) == len(found), "ids are unique"
    return by_id


def test_it_is_large_enough_to_search(docs: dict[str, Doc]) -> None:
    assert len(docs) > 4_000


def test_every_document_has_id_title_text_and_source(docs: dict[str, Doc]) -> None:
    for doc in docs.values():
        assert doc.title
        assert doc.source
        assert doc.text == doc.text.strip("\n")
        assert len(doc.doc_id.split()) == 1, "a run can hold the id"


def test_library_builtins_and_reference_are_there(docs: dict[str, Doc]) -> None:
    assert docs["textwrap.dedent"].title == "textwrap.dedent(text)"
    assert docs["textwrap.dedent"].source.startswith("Lib/textwrap.py:")
    assert docs["str.split"].title.startswith("str.split(sep=None, maxsplit=-1")
    assert docs["str.split"].source == "builtins"
    assert "csv.reader" in docs
    assert "os.listdir" in docs


def test_the_language_reference_is_there(docs: dict[str, Doc]) -> None:
    pytest.importorskip("pydoc_data.topics")
    assert docs["topic:with"].title == "The with statement"
    assert "context manager" in docs["topic:with"].text


def test_a_document_says_what_it_is_part_of_after_its_first_paragraph(docs: dict[str, Doc]) -> None:
    assert docs["random.randint"].text.startswith("Return random integer")
    assert "random randint. random: Random variable generators." in docs["random.randint"].text
    method = docs["subprocess.Popen.communicate"].text
    assert method.startswith("Interact with process")
    assert "\n\nsubprocess Popen communicate. Popen: Execute a child program" in method
    assert "subprocess: Subprocesses with accessible I/O streams\n\n" in method
    assert "\n\nconcurrent futures as completed." in docs["concurrent.futures.as_completed"].text


def test_modules_and_classes_end_with_what_their_members_do(docs: dict[str, Doc]) -> None:
    assert "randint: Return random integer" in docs["random"].text.split("\n\n")[-1]
    assert "communicate: Interact with process" in docs["subprocess.Popen"].text
    assert "lru_cache: Least-recently-used cache decorator." in docs["functools"].text


def test_a_signature_is_no_sentence(docs: dict[str, Doc]) -> None:
    """Docstrings of C code begin with one."""
    assert "reduce: Apply a function of two arguments" in docs["functools"].text


def test_names_are_those_users_import(docs: dict[str, Doc]) -> None:
    assert docs["json.JSONEncoder.default"].source.startswith("Lib/json/encoder.py:")
    assert "asyncio.gather" in docs
    assert "asyncio.tasks.gather" not in docs

    assert docs["os.path.join"].source.startswith("Lib/posixpath.py:")
    assert {"os.path.splitext", "os.path.exists", "concurrent.futures.as_completed"} <= docs.keys()
    assert {"threading.Lock", "hashlib.blake2b", "getpass.getpass"} <= docs.keys(), (
        "as the module itself names them"
    )


def test_what_nobody_would_look_for_is_left_out(docs: dict[str, Doc]) -> None:
    names = [doc_id for doc_id in docs if not doc_id.startswith("topic:")]
    parts = {part for name in names for part in name.split(".")}
    assert not {part for part in parts if part.startswith(("_", "test_"))}, "private, or a test"
    assert "test" not in parts
    assert "json.decoder.py_scanstring" not in names, "not in its module's __all__"
    modules = {name.split(".")[0] for name in names}
    assert not modules & {"distutils", "idlelib", "lib2to3", "asyncore", "cgi", "imp", "telnetlib"}
    assert not modules & {"encodings", "posixpath", "ntpath", "turtledemo"}


def test_no_path_of_this_machine_is_shown(docs: dict[str, Doc]) -> None:
    root = sysconfig.get_path("stdlib")
    assert not any(root in doc.source or root in doc.title for doc in docs.values())


def test_nothing_is_imported_for_its_side_effects(docs: dict[str, Doc]) -> None:
    assert "antigravity" not in sys.modules
    assert "turtle" not in sys.modules
    assert "this" not in sys.modules


def test_without_the_reference_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert not next(python_docs()).doc_id.startswith("topic:")


def test_sample_queries_have_answers(docs: dict[str, Doc]) -> None:
    answers = {"csv", "subprocess.run", "list.sort", "difflib.Differ", "shutil.copytree"}
    answers.add("threading.Thread.start")
    assert len(SAMPLE_QUERIES) == len(answers)
    assert answers <= docs.keys()


@pytest.fixture(scope="module")
def qrels() -> Qrels:
    return read_qrels(PYTHON_QUESTIONS / "qrels.txt")


def test_there_are_a_hundred_questions_and_none_is_twice() -> None:
    queries = read_queries(PYTHON_QUESTIONS / "queries.tsv")
    assert len(queries) == 60
    queries += read_queries(PYTHON_QUESTIONS / "held-out.queries.tsv")
    plain = Counter(" ".join(query.text.lower().strip("?").split()) for query in queries)
    assert len(queries) == 100
    assert plain.most_common(1)[0][1] == 1
    assert not plain.keys() & {query.strip("?") for query in SAMPLE_QUERIES}


def test_grades_are_0_1_and_2_and_every_question_has_an_answer(qrels: Qrels) -> None:
    asked = [query.query_id for query in read_queries(PYTHON_QUESTIONS / "queries.tsv")]
    assert list(qrels) == asked
    for query_id, grades in qrels.items():
        assert set(grades.values()) <= {0, 1, 2}
        assert 2 in grades.values(), query_id


def test_what_was_held_out_is_judged_too(docs: dict[str, Doc]) -> None:
    qrels = read_qrels(PYTHON_QUESTIONS / "held-out.qrels.txt")
    asked = read_queries(PYTHON_QUESTIONS / "held-out.queries.tsv")
    assert list(qrels) == [query.query_id for query in asked]
    for query_id, grades in qrels.items():
        assert set(grades.values()) <= {0, 1, 2}
        helpful = {doc_id for doc_id, grade in grades.items() if grade}
        assert helpful & docs.keys(), query_id


def test_every_answer_is_a_document_of_this_python(qrels: Qrels, docs: dict[str, Doc]) -> None:
    answers = {
        query_id: {doc_id for doc_id, grade in grades.items() if grade == 2}
        for query_id, grades in qrels.items()
    }
    if "topic:with" not in docs:
        pytest.skip("this Python comes without its language reference")
    missing = set().union(*answers.values()) - docs.keys()
    assert missing <= OPTIONAL, "what this Python does not have is named above"
    for query_id, own in answers.items():
        assert own & docs.keys() or own <= OPTIONAL, query_id
