"""BERT[CLS]: one text out of two, scored from its first piece."""

import pytest
import torch
from hypothesis import strategies as st
from models.model_cases import piece_batch, small_model

from glassrank.backends.configs import EncoderConfig
from glassrank.errors import InputError
from glassrank.models import TokenBatch, TokenEmbeddings, WordRanker
from glassrank.models.model import SubwordText
from glassrank.models.pretrained import Pretrained
from glassrank.research.papers.bert import BERT, BERTConfig, join_pair

lengths = st.integers(2, 9)


def bert(**changes: object) -> BERT:
    model = small_model("bert", **changes)
    assert isinstance(model, BERT)
    return model


def scores(model: BERT, query: TokenBatch, doc: TokenBatch) -> torch.Tensor:
    with torch.no_grad():
        return model(query, doc)


def test_a_pair_is_one_text_with_two_segments() -> None:
    """As if [CLS] q [SEP] d [SEP] had been written out, without padding."""
    model = bert()
    query, doc = piece_batch([4, 8], seed=1), piece_batch([6, 17], seed=2)
    found = scores(model, query, doc)
    for number, (q, d) in enumerate(((4, 6), (8, 17))):  # the second has all 24 positions
        ids = torch.cat([query.ids[number, :q], doc.ids[number, 1:d]])[None]
        types = torch.tensor([[0] * q + [1] * (d - 1)])
        with torch.no_grad():
            x = model.encoder.embeddings(ids, types=types)
            for layer in model.encoder.stack():
                x = layer(x, None)
            assert model.pooler is not None
            wanted = model.score(model.pooler(x[:, 0]).tanh())[0]
        torch.testing.assert_close(found[number : number + 1], wanted, rtol=1e-5, atol=1e-5)


def test_what_has_no_position_is_cut_and_counted() -> None:
    model = bert()  # 24 positions
    query, doc = piece_batch([8, 8]), piece_batch([20, 17], seed=1)
    with torch.no_grad():
        out = model.interact(model.encode_query(query), model.encode_doc(doc))
        shorter = TokenBatch(doc.ids[:, :17], doc.mask[:, :17])
        without_tail = scores(model, query, shorter)
    assert out.parts["cut"].tolist() == [3, 0]  # 8 + 19 and 8 + 16
    torch.testing.assert_close(out.score, without_tail, rtol=1e-5, atol=1e-5)


def test_an_encoded_text_is_its_ids() -> None:
    """What a store keeps is exact: integers, one column of them."""
    doc = piece_batch([9, 4])
    encoded = bert().encode_doc(doc)
    assert encoded.vectors.shape == (2, 9, 1)
    assert encoded.vectors.dtype == torch.int64
    assert torch.equal(encoded.vectors[..., 0], doc.ids)
    narrow = TokenEmbeddings(encoded.vectors.int(), encoded.mask, encoded.idf)
    assert torch.equal(join_pair(narrow, narrow, 24).ids, join_pair(encoded, encoded, 24).ids)


def test_an_explanation_is_of_the_same_score() -> None:
    model = bert()
    query, doc = piece_batch([5, 3]), piece_batch([9, 4])
    with torch.no_grad():
        out = model.explain(query, doc)
        plain = model.interact(model.encode_query(query), model.encode_doc(doc))
    torch.testing.assert_close(out.score, plain.score, rtol=1e-5, atol=1e-5)
    assert out.parts["attention"].shape == (2, 2, 3, 13, 13)  # 5 + 8 pieces
    torch.testing.assert_close(out.parts["attention"].sum(-1), torch.ones(2, 2, 3, 13))
    assert plain.parts.keys() == {"cut"}


def test_a_start_has_the_pretrained_weights() -> None:
    source = bert()
    weights = source.encoder.state_dict()
    assert source.pooler is not None
    pooled = {f"pooler.{name}": tensor for name, tensor in source.pooler.state_dict().items()}
    pretrained = Pretrained(source.config.encoder, {**weights, **pooled}, [], lowercase=False)
    model = BERT.start(pretrained, text=SubwordText(lowercase=False, doc_words=200))
    state = model.state_dict()
    assert all(torch.equal(state[f"encoder.{name}"], tensor) for name, tensor in weights.items())
    assert all(torch.equal(state[name], tensor) for name, tensor in pooled.items())
    assert model.config.text == SubwordText(lowercase=False, doc_words=200)
    bare = BERT.start(Pretrained(source.config.encoder, weights, [], lowercase=True))
    assert bare.pooler is None


def test_it_has_no_use_for_word_vectors() -> None:
    assert not hasattr(bert(), "query_words") and not hasattr(bert(), "doc_words")
    assert not isinstance(bert(), WordRanker) and bert().words is None


def test_a_bert_has_a_layer() -> None:
    with pytest.raises(InputError, match="one or more, found 0"):
        BERTConfig(EncoderConfig(layers=0))
