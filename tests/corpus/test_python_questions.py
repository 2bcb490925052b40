"""The judged questions about Python: read as any collection, and answered by this Python."""

from collections import Counter

import pytest

from glassrank.corpus import (
    PYTHON_QUESTIONS,
    SAMPLE_QUERIES,
    python_docs,
    read_qrels,
    read_queries,
)
from glassrank.types import Qrels

# Not in every build of 3.11 and later: of grade 2, but never a question's only answer.
OPTIONAL = {
    *("asyncio.TaskGroup", "asyncio.Timeout", "pathlib.PurePath.suffix", "topic:types#15"),
    *("sqlite3.Connection.executemany", "sqlite3.Cursor.executemany"),  # a build without SQLite
}


@pytest.fixture(scope="module")
def qrels() -> Qrels:
    return read_qrels(PYTHON_QUESTIONS / "qrels.txt")


@pytest.fixture(scope="module")
def documents() -> set[str]:
    return {doc.doc_id for doc in python_docs()}


def test_there_are_sixty_questions_and_none_is_twice() -> None:
    queries = read_queries(PYTHON_QUESTIONS / "queries.tsv")
    plain = Counter(" ".join(query.text.lower().strip("?").split()) for query in queries)
    assert len(queries) == 60
    assert plain.most_common(1)[0][1] == 1
    assert not plain.keys() & {query.strip("?") for query in SAMPLE_QUERIES}


def test_grades_are_0_1_and_2_and_every_question_has_an_answer(qrels: Qrels) -> None:
    asked = [query.query_id for query in read_queries(PYTHON_QUESTIONS / "queries.tsv")]
    assert list(qrels) == asked
    for query_id, grades in qrels.items():
        assert set(grades.values()) <= {0, 1, 2}
        assert 2 in grades.values(), query_id


def test_every_answer_is_a_document_of_this_python(qrels: Qrels, documents: set[str]) -> None:
    answers = {
        query_id: {doc_id for doc_id, grade in grades.items() if grade == 2}
        for query_id, grades in qrels.items()
    }
    if "topic:with" not in documents:
        pytest.skip("this Python comes without its language reference")
    missing = set().union(*answers.values()) - documents
    assert missing <= OPTIONAL, "what this Python does not have is named above"
    for query_id, own in answers.items():
        assert own & documents or own <= OPTIONAL, query_id
