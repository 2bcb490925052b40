"""A model folder as a model that is served without PyTorch, where its family has such a form."""

from typing import Any

import numpy as np

from glassrank.errors import InputError
from glassrank.models.ranker import TokenBatch
from glassrank.models.saved import (
    WEIGHTS,
    ModelConfig,
    SavedModel,
    Usage,
    load_config,
    load_vocabulary,
)
from glassrank.models.served_families import KernelBERTFamily, MaxSimFamily, TKFamily
from glassrank.models.served_weights import expected_header
from glassrank.models.vocabularies import check_count, check_pieces, check_words
from glassrank.models.weight_files import (
    MOST_BYTES,
    arrays_in,
    check_header,
    read_header,
    whole_header,
)
from glassrank.sealed import SealedFiles, about
from glassrank.settings import from_plain, modest

_FAMILIES = {family.name: family for family in (TKFamily, MaxSimFamily, KernelBERTFamily)}
_TRIED = 8


def load_compiled(files: SealedFiles) -> SavedModel | None:
    """The model whose files these are, checksums looked at; None where only PyTorch computes it."""
    with about(files.path, "it does not hold a model that can be used"):
        stored = load_config(files)
        if stored.model not in _FAMILIES:
            return None
        family = _FAMILIES[stored.model]
        config: Any = modest(from_plain(family.config_type, stored.config, "config"), "config")
        if not _is_served(config):
            return None
        with files.open(WEIGHTS, MOST_BYTES) as file:
            header = read_header(file, files.size(WEIGHTS))
            if "words.ngrams" in header:  # vectors that are made of subwords
                return None
            mixes = stored.first_stage_weight
            expected = expected_header(config, stored.words, mixes, len(header))
            check_header(whole_header(header), expected)
            arrays = arrays_in(files.rest(WEIGHTS, file))
        vocabulary = load_vocabulary(files)
        _check_vocabulary(stored, config, vocabulary)
        from glassrank.models.served import SERVED  # with numba: only what is served needs it

        model = SERVED[stored.model](config, arrays)
        _try_out(model, stored.usage)
        return SavedModel(model, stored.usage, vocabulary)


def _is_served(config: Any) -> bool:
    """Whether compiled code has all of it: contextual layers, or a pretrained encoder."""
    return bool(config.contextual.layers > 0) if hasattr(config, "contextual") else True


def _check_vocabulary(stored: ModelConfig, config: Any, vocabulary: list[str]) -> None:
    if stored.words is None:
        check_pieces(vocabulary)
        check_count(len(vocabulary), config.encoder.vocabulary)
    else:
        check_words(vocabulary)
        check_count(len(vocabulary), stored.words[0])


def _try_out(model: Any, usage: Usage) -> None:
    """One short pair: settings that fit the weights may still make no sense."""
    lengths = min(usage.query_length, _TRIED), min(usage.doc_length, _TRIED)
    query, doc = (
        TokenBatch(np.ones((1, n), np.int32), np.ones((1, n), np.float32)) for n in lengths
    )
    score = model.interact(model.encode_query(query), model.encode_doc(doc)).score
    if not np.isfinite(score).all():
        raise InputError("the model gives no finite score")
