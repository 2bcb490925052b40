"""Candidates are scored in batches that fit in memory, and the same whatever the batches are."""

import numpy as np
import pytest
import torch
from tiny_run import tiny_config, tiny_prepared

import glassrank.research.train.validate as module
from glassrank.models import TokenEmbeddings
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.build import build_model


def test_longer_documents_come_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    config, prepared = tiny_config(), tiny_prepared()
    model, cpu = build_model(config, prepared), torch.device("cpu")
    docs = Tokens.of(prepared.docs, config.doc_length, cpu)
    data = SplitTensors.of(prepared.dev, docs, config.query_length, cpu)
    longest = int(docs.lengths.max())
    sizes: list[int] = []
    encode = model.doc_words

    def counted(words: TokenEmbeddings) -> object:
        sizes.append(len(words.mask))
        return encode(words)

    monkeypatch.setattr(model, "doc_words", counted)
    monkeypatch.setattr(module, "_BATCH_PAIRS", 64)
    scores = []
    for usual_length, most in ((longest, 64), (longest / 2, 16), (longest * 2, 64)):
        sizes.clear()
        monkeypatch.setattr(module, "_BATCH_LENGTH", usual_length)
        scores.append(module.score_candidates(model, data, np.arange(30)))
        assert max(sizes) == most and sum(sizes) == 300
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scores[2], scores[0])
