"""Models that others publish as ONNX graphs: small ones made here, and two real ones."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors

pytest.importorskip("numba")
import glassrank as gr
from glassrank.backends.onnx_file import Graph
from glassrank.deadline import Deadline, LateError
from glassrank.embeddings import encode_index
from glassrank.errors import InputError
from glassrank.explanations import explain_docs
from glassrank.models.io.load import load_for_inference
from glassrank.models.model import make_batch

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[Q]",
    "[D]",
    *"cat dog mat sat on the".split(),
]
TEXTS = ["the cat sat on the mat", "a dog", "cat cat dog", "mat on the"]
QUERY = "the cat"
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(len(WORDS), 6)).astype(np.float32)
TYPES = RANDOM.normal(size=(2, 6)).astype(np.float32)


def tokenizer(style: str = "bert") -> Tokenizer:
    made = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    two = {"bert": "[CLS] $A [SEP] $B:1 [SEP]:1", "roberta": "[CLS] $A [SEP] [SEP] $B [SEP]"}
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=two[style], special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=20)  # as published ones have it
    made.enable_truncation(20)
    return made


def published(folder: Path, kind: str, *, style: str = "bert", **files: Any) -> Path:
    """`files` are tables of settings, by the names of their files."""
    graph = Graph(kind)
    ids = graph.input("input_ids", "int64", [1, "length"])
    graph.input("attention_mask", "int64", [1, "length"])
    states = graph.add("Gather", graph.weight("table", TABLE), ids)
    if kind.endswith("classes"):
        types = graph.input("token_type_ids", "int64", [1, "length"])
        states = graph.add("Add", states, graph.add("Gather", graph.weight("types", TYPES), types))
        mean = graph.add("ReduceMean", states, graph.constant(1), keepdims=0)
        count = int(kind.split()[0])
        logits = graph.add("MatMul", mean, graph.weight("score", HEAD[:, :count].copy()))
        graph.output("logits", logits, "float32", [1, count])
    elif kind == "vector":
        mean = graph.add("ReduceMean", states, graph.constant(1), keepdims=0)
        graph.output("sentence_embedding", mean, "float32", [1, 6])
    else:
        graph.output("last_hidden_state", states, "float32", [1, "length", 6])
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(graph.serialize())
    tokenizer(style).save(str(folder / "tokenizer.json"))
    for name, table in {"tokenizer_config": {"model_max_length": 20}, **files}.items():
        path = folder / ("1_Pooling/config.json" if name == "pooling" else f"{name}.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(table))
    return folder


HEAD = RANDOM.normal(size=(6, 3)).astype(np.float32)


def ids_of(text: str) -> list[int]:
    return [WORDS.index(word) if word in WORDS else 1 for word in text.split()]


def logits(text: str, style: str = "bert") -> NDArray[np.float32]:
    """The formula."""
    query, doc = ids_of(QUERY), ids_of(text)
    between = [3, 3] if style == "roberta" else [3]
    ids = [2, *query, *between, *doc, 3]
    first = len(query) + 1 + len(between)
    types = [0] * first + [int(style == "bert")] * (len(doc) + 1)
    made: NDArray[np.float32] = (TABLE[ids] + TYPES[types]).mean(0) @ HEAD
    return made


@pytest.mark.parametrize("style", ["bert", "roberta"])
def test_a_cross_encoder_reads_both_as_one_text(tmp_path: Path, style: str) -> None:
    reranker = gr.load(str(published(tmp_path / "m", "1 classes", style=style)))
    assert reranker.model.name == "cross_encoder"
    found = reranker.scores(QUERY, TEXTS).values
    np.testing.assert_allclose(found, [logits(text, style)[0] for text in TEXTS], rtol=1e-5)


def test_it_is_exact_as_it_is(tmp_path: Path) -> None:
    folder = published(tmp_path / "m", "1 classes")
    plain, exact = (gr.Reranker.load(folder, exact=exact) for exact in (False, True))
    assert np.array_equal(*(reranker.scores(QUERY, TEXTS).values for reranker in (plain, exact)))


def test_of_two_classes_the_second_is_the_relevant_one(tmp_path: Path) -> None:
    found = gr.load(str(published(tmp_path / "m", "2 classes"))).scores(QUERY, TEXTS).values
    expected = [logits(text)[1] - logits(text)[0] for text in TEXTS]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_long_document_is_read_in_passages(tmp_path: Path) -> None:
    reranker = gr.load(str(published(tmp_path / "m", "1 classes")))
    long = "dog " * 30 + "cat"
    (score,) = reranker.scores(QUERY, [long]).values
    room = reranker.usage.doc_length - 2
    assert len(ids_of(QUERY)) + room + 3 <= 20
    assert score == pytest.approx(
        max(logits("dog " * room)[0], logits("dog " * (30 % room) + "cat")[0])
    )


def test_a_text_that_names_a_special_token_does_not_end_there(tmp_path: Path) -> None:
    reranker = gr.load(str(published(tmp_path / "m", "1 classes")))
    ids = reranker.encoder.encode(["cat [SEP] dog"], 20)[0].ids.tolist()
    assert ids.count(3) == 1 and ids[-1] == 3


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    made: NDArray[Any] = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return made


def pooled(text: str, pooling: str, prompt: tuple[str, ...] = ()) -> NDArray[Any]:
    rows = TABLE[[2, *(WORDS.index(word) for word in prompt), *ids_of(text), 3]]
    return unit(rows[0] if pooling == "cls" else rows.mean(0))


PROMPTS = {"prompts": {"query": "sat on ", "document": "the "}}
BI_ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mean": ("tokens", "mean", {}),
    "first token": ("tokens", "cls", {"pooling": {"pooling_mode": "cls"}}),
    "its older name": ("tokens", "cls", {"pooling": {"pooling_mode_cls_token": True}}),
    "pooled in the graph": ("vector", "mean", {}),
    "prompts": ("vector", "mean", {"config_sentence_transformers": PROMPTS}),
}


@pytest.mark.parametrize("case", BI_ENCODERS)
def test_a_bi_encoder_compares_vectors(tmp_path: Path, case: str) -> None:
    kind, pooling, files = BI_ENCODERS[case]
    reranker = gr.load(str(published(tmp_path / "m", kind, **files)))
    assert reranker.model.name == "bi_encoder"
    prompts = (("sat", "on"), ("the",)) if case == "prompts" else ((), ())
    query = pooled(QUERY, pooling, prompts[0])
    expected = [20 * query @ pooled(text, pooling, prompts[1]) for text in TEXTS]
    np.testing.assert_allclose(reranker.scores(QUERY, TEXTS).values, expected, rtol=1e-5)


COLBERT = {"similarity_fn_name": "MaxSim", "query_prefix": "[Q] ", "document_prefix": "[D] "}


@pytest.mark.parametrize("expanded", [False, True])
def test_late_interaction_has_markers_and_the_best_match(tmp_path: Path, expanded: bool) -> None:
    settings = {**COLBERT, "query_length": 8, "do_query_expansion": expanded}
    folder = published(tmp_path / "m", "tokens", config_sentence_transformers=settings)
    reranker = gr.load(str(folder))
    assert reranker.model.name == "late_interaction"
    query = [2, 5, *ids_of(QUERY), 3]
    query += [4] * (8 - len(query)) if expanded else []
    for text, score in zip(TEXTS, reranker.scores(QUERY, TEXTS).values, strict=True):
        doc = unit(TABLE[[2, 6, *ids_of(text), 3]])
        assert score == pytest.approx((unit(TABLE[query]) @ doc.T).max(1).sum(), rel=1e-5)


def index_of(folder: Path) -> gr.Index:
    return gr.Index.build([gr.Doc(f"d{n}", text) for n, text in enumerate(TEXTS)], folder)


@pytest.mark.parametrize("files", [{}, {"config_sentence_transformers": COLBERT}])
def test_what_is_read_apart_is_stored(tmp_path: Path, files: dict[str, Any]) -> None:
    folder, index = published(tmp_path / "m", "tokens", **files), index_of(tmp_path / "index")
    reranker = gr.load(str(folder))
    live = gr.Pipeline(index, reranker)(QUERY)
    encode_index(index, load_for_inference(folder), dtype="float32")
    search = gr.Pipeline(index, reranker, first_stage="bm25")
    assert search.store is not None
    for hit, expected in zip(search(QUERY), live, strict=True):
        assert hit.doc_id == expected.doc_id
        assert hit.score - hit.regularization == pytest.approx(expected.score, rel=1e-5)


def test_a_cross_encoder_is_the_last_stage_of_a_cascade(tmp_path: Path) -> None:
    bi, cross = published(tmp_path / "bi", "tokens"), published(tmp_path / "cross", "1 classes")
    index = index_of(tmp_path / "index")
    search = gr.Pipeline(index, [gr.load(str(bi)), gr.load(str(cross))])
    ranking = search(QUERY, k=4)
    assert ranking.depths[-1] == 2  # as many as have the cat
    expected = [logits(TEXTS[int(hit.doc_id[1:])])[0] for hit in ranking]
    np.testing.assert_allclose([hit.score for hit in ranking], expected, rtol=1e-5)
    with pytest.raises(InputError, match="as one text"):
        encode_index(index, load_for_inference(cross))


def test_it_stops_between_two_texts(tmp_path: Path) -> None:
    reranker = gr.load(str(published(tmp_path / "m", "1 classes")))
    assert reranker.is_interruptible
    query, ids = reranker.encode_query(QUERY), [np.array([2, 3], np.int32)]
    docs = reranker.encode_doc(make_batch(ids, None))
    with pytest.raises(LateError):
        reranker.score_embeddings(query, docs, None, Deadline.after(0.0))


@pytest.mark.parametrize("kind", ["1 classes", "tokens"])
def test_it_is_explained_by_leaving_words_out(tmp_path: Path, kind: str) -> None:
    search = gr.Pipeline(index_of(tmp_path / "i"), gr.load(str(published(tmp_path / "m", kind))))
    (told,) = explain_docs(search, QUERY, ["d0"])
    hit = next(hit for hit in search(QUERY) if hit.doc_id == "d0")
    assert not told.is_additive and told.score == pytest.approx(hit.score, rel=1e-5)
    assert [word.text for word in told.query.words] == ["[CLS]", "the", "cat", "[SEP]"]
    by_word = {part.name: part.value for part in told.parts.children}
    without = gr.load(str(tmp_path / "m")).scores("the", [TEXTS[0]]).values[0]
    assert by_word["cat"] == pytest.approx(hit.score - without, rel=1e-4, abs=1e-5)
    assert sum(by_word.values()) == pytest.approx(hit.score, rel=1e-5)


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    three = published(tmp_path / "three", "3 classes")
    broken = published(tmp_path / "graph", "tokens")
    (broken / "model.onnx").write_bytes(b"no graph")
    unread = published(tmp_path / "tokenizer", "tokens")
    (unread / "tokenizer.json").write_text("{}")
    other = published(tmp_path / "pooling", "tokens", pooling={"pooling_mode": "max"})
    for folder, reason in (
        (three, "3 classes"),
        (broken, "cannot open this graph"),
        (unread, "tokenizer cannot be read"),
        (other, "mean and cls"),
    ):
        with pytest.raises(InputError, match=reason):
            gr.load(str(folder))


REAL = os.environ.get("GLASSRANK_PUBLISHED", "")
needs_real = pytest.mark.skipif(
    not REAL, reason="GLASSRANK_PUBLISHED names no folder with reranker_en and bge_small_en"
)


@needs_real
@pytest.mark.data
def test_a_real_cross_encoder_has_the_scores_of_its_card() -> None:
    berlin = (
        "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square "
        "kilometers.",
        "New York City is famous for the Metropolitan Museum of Art.",
    )
    reranker = gr.load(f"{REAL}/reranker_en")
    found = reranker.scores("How many people live in Berlin?", berlin).values
    assert found.tolist() == pytest.approx([9.39, -11.19], abs=0.1)


@needs_real
@pytest.mark.data
def test_a_real_bi_encoder_is_a_first_stage() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    from glassrank.integrations.vector_index import MeanVectors, VectorIndex

    texts = {"a": "The cat sat on the mat.", "b": "Shares fell in London.", "c": "Dogs bark."}
    index = VectorIndex.build(texts, MeanVectors(gr.load(f"{REAL}/bge_small_en")))
    assert index.search("stock market news", 2).ids[0] == "b"
