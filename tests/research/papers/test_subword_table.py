"""Words as means of n-grams: the same vectors as the plain lookup, trained where n-grams are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.embeddings.doc_encoder import DocEncoder
from glassrank.errors import InputError
from glassrank.models import Ranker, TokenBatch
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import SavedModel, Usage, fingerprint
from glassrank.models.io.torch_files import save_model
from glassrank.models.text_batches import make_text_encoder
from glassrank.rerank.reranker import Reranker
from glassrank.research.papers.ensemble import Ensemble
from glassrank.research.papers.knrm import KNRM, KNRMConfig
from glassrank.research.papers.subword_table import SubwordTable
from glassrank.research.papers.word_vectors import SubwordVectors
from glassrank.research.train.config import TrainConfig, VectorsConfig
from glassrank.research.train.loop import train
from glassrank.research.train.prepare import make_subword_arrays, prepare
from glassrank.research.train.prepared import Ragged
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.research.train.training_texts import TextSplit, TrainingTexts
from glassrank.settings import from_plain
from glassrank.text import Vocabulary
from glassrank.text.words import UNKNOWN, SubwordVocabulary

SIZE, BUCKETS = 5, 7
letters = st.text("abcü", min_size=1, max_size=6)
several = st.lists(letters, min_size=1, max_size=8, unique=True)


def vectors_of(known: list[str], shortest: int = 3) -> SubwordVectors:
    table = np.random.default_rng(3).normal(size=(len(known) + BUCKETS, SIZE))
    return SubwordVectors(known, table.astype(np.float32), shortest, 4)


def table_of(vectors: SubwordVectors, vocabulary: Vocabulary, trained: bool = True) -> SubwordTable:
    table, subwords = make_subword_arrays(vectors, vocabulary, seed=1)
    layout = (subwords.rows.offsets, subwords.rows.values, subwords.ngrams)
    return SubwordTable(torch.from_numpy(table), *map(torch.from_numpy, layout), trained=trained)


def batch_of(*rows: list[int]) -> TokenBatch:
    ids = torch.tensor(rows, dtype=torch.int32)
    return TokenBatch(ids, (ids > 0).float())


@settings(max_examples=30, deadline=None)
@given(known=several, words=several)
def test_words_have_the_vectors_that_numpy_gives(known: list[str], words: list[str]) -> None:
    vectors, vocabulary = vectors_of(known), Vocabulary(words)
    table = table_of(vectors, vocabulary)
    every = list(range(2, len(vocabulary)))
    found = table(batch_of([*every, 0], [*reversed(every), 0]))
    expected = torch.from_numpy(vectors.vectors(words))
    torch.testing.assert_close(found.vectors[0, :-1], expected)
    torch.testing.assert_close(found.vectors[1, :-1], expected.flip(0))
    assert not found.vectors[:, -1].any()  # padding


@settings(max_examples=20, deadline=None)
@given(known=several, words=several, shortest=st.integers(3, 4))
def test_no_word_is_without_a_vector(known: list[str], words: list[str], shortest: int) -> None:
    vocabulary = Vocabulary(words)
    table = table_of(vectors_of(known, shortest), vocabulary)
    found = table(batch_of(list(range(1, len(vocabulary))))).vectors
    assert found.any(-1).all()


@settings(max_examples=20, deadline=None)
@given(words=several, more=several)
def test_unseen_words_get_their_n_grams_mean(words: list[str], more: list[str]) -> None:
    vectors, vocabulary = vectors_of(words), Vocabulary(words)
    unseen = [word for word in more if word not in vocabulary]
    table = table_of(vectors, vocabulary)
    before = table(batch_of([1, 2])).vectors
    ids = table.extend(unseen)
    assert ids == range(len(vocabulary), len(vocabulary) + len(unseen))
    found = table(batch_of([1, 2, *ids])).vectors
    torch.testing.assert_close(found[:, :2], before)
    torch.testing.assert_close(found[0, 2:], torch.from_numpy(vectors.vectors(unseen)))


def test_a_word_too_short_for_n_grams_is_the_unknown_word() -> None:
    table = table_of(vectors_of(["abc"], shortest=4), Vocabulary(["abc"]))
    (number,) = table.extend(["a"])
    found = table(batch_of([1, number])).vectors
    assert torch.equal(found[0, 0], found[0, 1])


def test_training_moves_the_rows_of_the_words_it_saw() -> None:
    table = table_of(vectors_of(["abca", "bbbb"]), Vocabulary(["abca", "bbbb", "cabc"]))
    torch.autograd.backward(table(batch_of([2, 4, 2])).vectors.sum())
    gradient = table.embedding.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    moved = set(gradient.coalesce().indices()[0].tolist())
    rows = [table.rows[table.offsets[i] : table.offsets[i + 1]].tolist() for i in (2, 4)]
    assert moved == {*rows[0], *rows[1]}
    total = gradient.to_dense().sum()  # each of three words has a mean whose shares add up to 1
    torch.testing.assert_close(total, torch.tensor(3.0 * SIZE))


def test_padding_alone_is_zero() -> None:
    table = table_of(vectors_of(["abc"]), Vocabulary(["abc"]))
    assert not table(batch_of([0, 0])).vectors.any()


@pytest.mark.parametrize("trained", [True, False])
def test_save_then_load_is_the_identity(trained: bool, tmp_path: Path) -> None:
    vocabulary = Vocabulary(["abca", "bbbb", "cabc"])
    table = table_of(vectors_of(["abca", "bbbb"]), vocabulary, trained)
    model = KNRM(KNRMConfig(size=SIZE), table).eval()
    save_model(tmp_path / "model", model, Usage(), list(vocabulary.words), "")
    again = load_model(tmp_path / "model").model
    assert fingerprint(again) == fingerprint(model)
    query, doc = batch_of([2, 3]), batch_of([4, 1, 2, 0])
    assert torch.equal(again(query, doc), model(query, doc))
    assert isinstance(again.words, SubwordTable)
    assert list(again.words.extend(["cccc"])) == [len(vocabulary)]


def test_a_run_trains_n_grams_from_its_own_texts(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    docs = [["cats", "purr"], ["cat", "naps"], ["dogs", "bark"], ["dog", "naps"]] * 3
    candidates = TextSplit(
        queries=[["cats"], ["doggy"]],
        collection=np.zeros(2, np.int32),
        docs=Ragged.from_rows([np.arange(4), np.arange(4)], np.int32),
        grades=np.array([1, 1, -1, -1, -1, -1, 1, 1], np.int32),
        ranks=np.tile(np.arange(1, 5, dtype=np.int32), 2),
        first_stage=np.zeros(8, np.float32),
    )
    source = {"source": "fasttext", "subwords": True, "size": 4, "buckets": 50, "min_count": 1}
    plain = {
        "model": "knrm",
        "out": "",
        "prepared": "",
        "collections": [],
        "vectors": {**source, "scale": 10.0},
        "optimizer": {"steps": 3, "vectors": 0.1},
        "sampler": {"batch": 4},
    }
    config = from_plain(TrainConfig, plain)
    made = prepare(config, TrainingTexts(docs, candidates, candidates), tmp_path)
    save_prepared(tmp_path / "prepared", made)
    prepared = load_prepared(tmp_path / "prepared")
    assert prepared.vectors.shape == (len(prepared.words) + 50, 4)
    assert len(prepared.subwords.rows) == len(prepared.words)  # type: ignore[union-attr]
    trained = train(config, prepared, tmp_path / "out")
    words = load_model(tmp_path / "out" / "best").model.words
    assert isinstance(words, SubwordTable)
    assert torch.equal(words.embedding.weight, trained.model.words.embedding.weight)  # type: ignore[union-attr]
    assert not torch.equal(words.embedding.weight, torch.from_numpy(prepared.vectors))
    ids = range(2, len(prepared.words))  # "doggy" too, which no document has
    assert words(batch_of([*ids])).vectors.any(-1).all()


@pytest.mark.parametrize("members", [0, 2])
def test_words_that_nobody_saw_are_not_alike(members: int, tmp_path: Path) -> None:
    """From a text to its score, in a model by itself and in an ensemble, and in any order."""
    vocabulary = Vocabulary(["cancer", "ward", "cat"])
    tables = [table_of(vectors_of(["cancer", "ward"]), vocabulary) for _ in range(members or 1)]
    model: Ranker = KNRM(KNRMConfig(size=SIZE), tables[0])
    if members:
        both = [KNRM(KNRMConfig(size=SIZE), table) for table in tables]
        model = Ensemble(both, [(30, 200)] * members)
    before = fingerprint(model)
    saved = SavedModel(model.eval(), Usage(), list(vocabulary.words))
    reranker, other = Reranker(saved), Reranker(saved)
    texts = ["cancerz ward", "qqqq ward", "zzzzz"]
    scores = reranker.scores("cancer", texts).values
    assert len(set(scores.tolist())) == 3
    assert "cancerz" in reranker.vocabulary
    assert other.scores("cancer", texts[::-1]).values.tolist() == scores[::-1].tolist()
    assert fingerprint(model) == before
    with pytest.raises(InputError, match="it ranks without a store"):
        DocEncoder(saved, "int8")
    lasting = make_text_encoder(saved, unseen=False).encode(["cancerz ward"], 5)[0]
    assert lasting.ids.tolist() == [UNKNOWN, 3]


def test_unseen_words_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassrank.text.words._MAX_UNSEEN", 3)
    table = table_of(vectors_of(["abca"]), Vocabulary(["abca"]))
    vocabulary = SubwordVocabulary(["abca"], [table])
    assert vocabulary.ids(["bbb", "abca", "bbb", "ccc"]).tolist() == [3, 2, 3, 4]
    assert vocabulary.ids(["bcbc", "cbcb", "abca"]).tolist() == [5, 1, 2]
    assert vocabulary.ids(["cbcb", "bbb"]).tolist() == [1, 3] and "cbcb" not in vocabulary


def test_subwords_need_fasttext() -> None:
    with pytest.raises(InputError, match="subwords needs"):
        from_plain(VectorsConfig, {"source": "word2vec", "subwords": True})
