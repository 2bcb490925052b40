"""The call of sentence-transformers, and its answer."""

import inspect

import pytest

import glassrank as gr
from glassrank.errors import InputError
from glassrank.integrations.cross_encoder import CrossEncoder


def test_the_answer_is_theirs_in_form_and_ours_in_order(texts: dict[str, str], query: str) -> None:
    documents = list(texts.values())
    answer = CrossEncoder("fast").rank(query, documents, top_k=3, return_documents=True)
    own = gr.rank(query, documents, model="fast", k=3)
    assert answer == [
        {"corpus_id": hit.doc_id, "score": hit.score, "text": documents[hit.doc_id]} for hit in own
    ]
    plain = CrossEncoder("fast").rank(query, documents)
    assert len(plain) == len(texts) and set(plain[0]) == {"corpus_id", "score"}
    assert CrossEncoder("fast").rank(query, []) == []


def test_what_would_change_scores_is_refused(query: str) -> None:
    with pytest.raises(InputError, match="prompt is not supported"):
        CrossEncoder("fast").rank(query, ["a text"], prompt="a prompt")


@pytest.mark.slow  # to import theirs takes long
def test_the_signature_is_theirs() -> None:
    theirs = pytest.importorskip(
        "sentence_transformers", reason="the package sentence-transformers is not installed"
    )

    def taken(function: object) -> list[tuple[str, object]]:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        return [(parameter.name, parameter.default) for parameter in parameters]

    assert taken(CrossEncoder.rank) == taken(theirs.CrossEncoder.rank)
