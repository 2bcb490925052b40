"""Sentence transformers and cross-encoders as others publish them: the same scores here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_pretrained import PIECES, bert_weights, write

import glassrank as gr
from glassrank.embeddings import encode_index
from glassrank.errors import InputError
from glassrank.models.io.load import load_for_inference, load_model
from glassrank.models.io.model_folder import fingerprint
from glassrank.models.pretrained import read_pretrained
from glassrank.research.papers.bert import BERT
from glassrank.research.train.teachers import load_teacher
from glassrank.research.train.training_texts import TextSplit
from glassrank.storage.mapped_arrays import Ragged

MISSING = "sentence-transformers is not there"
QUERY = "p1 p2"
TEXTS = ["p3 p4 p5", "p1 p9", "p2 p1 p7 p8 p9", "p25"]


def cross_encoder(folder: Path, **config: object) -> Path:
    weights = bert_weights("bert.")
    generator = torch.Generator().manual_seed(1)
    weights["classifier.weight"] = torch.randn((1, 12), generator=generator)
    weights["classifier.bias"] = torch.randn((1,), generator=generator)
    return write(folder, weights, architectures=["BertForSequenceClassification"], **config)


def sentence_transformer(folder: Path, pooling: dict[str, Any] | None = None) -> Path:
    write(folder, bert_weights())
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    stored = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or stored))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    return folder


def test_a_cross_encoder_is_a_bert_with_its_last_layer(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model")
    saved = load_model(folder)
    assert isinstance(saved.model, BERT) and saved.vocabulary == PIECES
    assert fingerprint(load_for_inference(folder).model) == fingerprint(saved.model)
    bias = saved.model.score.bias.item()
    assert bias != 0.0 and saved.usage.query_length + saved.usage.doc_length == 20
    plain = BERT.start(read_pretrained(str(folder)))
    ranked = gr.Reranker(saved, exact=True).scores(QUERY, TEXTS).values
    plain.score.load_state_dict(saved.model.score.state_dict())
    again = gr.Reranker(type(saved)(plain.eval(), saved.usage, PIECES), exact=True)
    np.testing.assert_array_equal(ranked, again.scores(QUERY, TEXTS).values)


def test_they_are_stages_of_a_pipeline_and_a_store_is_made_of_one(tmp_path: Path) -> None:
    bi, cross = sentence_transformer(tmp_path / "bi"), cross_encoder(tmp_path / "cross")
    docs = [gr.Doc(f"d{n}", text) for n, text in enumerate(TEXTS)]
    index = gr.Index.build(docs, tmp_path / "index")
    encode_index(index, load_for_inference(str(bi)))
    search = gr.Pipeline(index, [gr.load(str(bi)), gr.load(str(cross))])
    assert search.store is not None  # found by what the model is
    ranking = search("p1 p2 p9", k=4)
    # Without a budget the last model decides alone; vectors find what terms do not.
    assert ranking.depths == (0, 4)
    assert not ranking.cut_short
    last = gr.Reranker.load(str(cross)).scores("p1 p2 p9", [hit.text for hit in ranking]).values
    np.testing.assert_allclose([hit.score for hit in ranking], last, rtol=1e-3)


def test_a_cross_encoder_teaches(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "cross")
    teacher = load_teacher(folder, [text.split() for text in TEXTS], "cpu")
    places = Ragged.from_rows([np.arange(4)], np.int64)
    zeros = np.zeros(4, np.float32)
    split = TextSplit(np.zeros(1, np.int64), places, zeros, zeros, zeros, queries=[QUERY.split()])
    expected = gr.Reranker.load(folder, exact=True).scores(QUERY, TEXTS).values
    np.testing.assert_allclose(teacher(split), expected, rtol=1e-4)


POOLED: dict[str, Any] = {
    "the first piece": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "by its newer name": {"pooling_mode": "cls"},
}


@pytest.mark.parametrize("case", POOLED)
def test_the_first_piece_alone_is_another_vector(case: str, tmp_path: Path) -> None:
    mean = load_model(sentence_transformer(tmp_path / "mean"))
    first = load_model(sentence_transformer(tmp_path / "first", POOLED[case]))
    assert (mean.model.config.pooling, first.model.config.pooling) == ("mean", "cls")
    assert first.usage.doc_length == first.usage.query_length == 16
    mean_score, first_score = (gr.Reranker(s).scores(QUERY, TEXTS).values for s in (mean, first))
    assert not np.allclose(mean_score, first_score)


REFUSED: dict[str, tuple[str, Any, str]] = {
    "weighted mean": ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "known are mean"),
    "two at once": (
        "1_Pooling/config.json",
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        "known are mean",
    ),
    "a prompt": ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "a prompt"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_rank_otherwise_is_refused(case: str, tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "model")
    name, content, message = REFUSED[case]
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_model(folder)


def test_other_heads_are_refused(tmp_path: Path) -> None:
    weights = bert_weights("bert.")
    kind = ["BertForSequenceClassification"]
    write(tmp_path / "none", weights, architectures=kind)
    with pytest.raises(InputError, match="not read here"):
        load_model(tmp_path / "none")
    weights |= {"classifier.weight": torch.ones(3, 12), "classifier.bias": torch.ones(3)}
    write(tmp_path / "classes", weights, architectures=kind)
    with pytest.raises(InputError, match="tells classes apart"):
        load_model(tmp_path / "classes")
    with pytest.raises(InputError, match="an encoder alone"):
        load_model(write(tmp_path / "bert", bert_weights()))


def test_code_in_such_a_folder_is_refused(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model", auto_map={"AutoModel": "evil.Boom"})
    (folder / "evil.py").write_text("raise SystemExit\n")
    with pytest.raises(InputError, match="asks to run code"):
        load_model(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    cross_encoder(tmp_path / "plain")
    (tmp_path / "plain" / "model.safetensors").rename(tmp_path / "plain" / "pytorch_model.bin")
    with pytest.raises(InputError, match="a pickle, which is never opened"):
        load_model(tmp_path / "plain")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what other packages warn of is not ours to fix
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_scores_are_those_of_sentence_transformers(pooling: str, tmp_path: Path) -> None:
    """Written by the real package, read by both."""
    package = pytest.importorskip("sentence_transformers", reason=MISSING)
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    write(tmp_path / "bert", bert_weights(), architectures=["BertModel"])
    transformer = modules.Transformer(str(tmp_path / "bert"), max_seq_length=16)
    parts = [transformer, modules.Pooling(12, pooling), modules.Normalize()]
    theirs = package.SentenceTransformer(modules=parts, device="cpu")
    theirs.save(str(tmp_path / "saved"))
    vectors = theirs.encode([QUERY, *TEXTS])
    expected = vectors[1:] @ vectors[0]
    model = load_model(tmp_path / "saved")
    scores = gr.Reranker(model, exact=True).scores(QUERY, TEXTS).values
    np.testing.assert_allclose(scores / np.exp(3.0), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_a_cross_encoder(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason=MISSING)
    folder = cross_encoder(tmp_path / "model", id2label={"0": "LABEL_0"}, num_labels=1)
    theirs = package.CrossEncoder(str(folder), device="cpu", max_length=20)
    theirs.save_pretrained(str(tmp_path / "saved"))
    pairs = [(QUERY, text) for text in TEXTS]
    expected = theirs.predict(pairs, activation_fn=torch.nn.Identity())
    for place in (folder, tmp_path / "saved"):
        scores = gr.Reranker.load(place, exact=True).scores(QUERY, TEXTS).values
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
