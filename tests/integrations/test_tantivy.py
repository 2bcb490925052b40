"""tantivy: the real thing, in memory and in a folder."""

from pathlib import Path
from typing import Any

import pytest

from glassrank.errors import GlassrankError, InputError
from glassrank.index.first_stage import retrieve
from glassrank.rerank import TextPipeline

tantivy = pytest.importorskip("tantivy", reason="the package tantivy is not installed")
from glassrank.integrations.engines import Tantivy  # noqa: E402


def filled(texts: dict[str, str], folder: Path | None = None, ids: str = "raw") -> Any:
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name=ids)
    schema.add_text_field("name", stored=True)
    schema.add_text_field("text", stored=True, tokenizer_name="en_stem")
    index = tantivy.Index(schema.build(), *([] if folder is None else [str(folder)]))
    writer = index.writer()
    for doc_id, text in texts.items():
        writer.add_document(tantivy.Document(id=doc_id, name=f"About {doc_id}", text=text))
    writer.commit()
    writer.wait_merging_threads()
    return index


def test_the_best_by_its_own_ranking(texts: dict[str, str], query: str, best: str) -> None:
    index = filled(texts)
    ids, scores = Tantivy(index).search(query, 3)
    index.reload()
    own = index.searcher().search(index.parse_query("how do I read a csv file", ["text"]), 3)
    assert ids[0] == best and scores == [score for score, _ in own.hits]


def test_a_pipeline_over_a_folder(
    texts: dict[str, str], query: str, best: str, tmp_path: Path
) -> None:
    filled(texts, tmp_path)
    search = TextPipeline(Tantivy(tmp_path, ["text", "name"], title="name"), "fast")
    ranking = search(query, k=3)
    assert ranking[0].doc_id == best and ranking[0].title == "About csv"
    assert ranking[0].text == texts[best] and ranking.depth > 3


def test_what_was_added_since_is_found(texts: dict[str, str]) -> None:
    index = filled(texts)
    stage = Tantivy(index)
    writer = index.writer()
    writer.add_document(tantivy.Document(id="new", text="a giraffe"))
    writer.commit()
    assert stage.search("giraffes?", 3).ids == ["new"]


@pytest.mark.parametrize("text", ['"', "NOT", "read AND (", "a:b ^c", "text:csv~2", "[a TO", "+-"])
def test_a_query_is_words_and_no_expression(texts: dict[str, str], text: str) -> None:
    retrieve(Tantivy(filled(texts)), text, 5)  # an error of syntax would be raised


def test_what_is_not_there(texts: dict[str, str]) -> None:
    with pytest.raises(InputError, match="no document 'none' in its field 'id'"):
        Tantivy(filled(texts)).fetch(["csv", "none"])
    with pytest.raises(GlassrankError, match=r"Tantivy failed \(ValueError: Field `body` is not"):
        retrieve(Tantivy(filled(texts), ["body"]), "csv", 5)
