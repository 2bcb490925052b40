"""The model that a run begins with: fresh, from a pretrained BERT, or trained before."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassrank.errors import InputError
from glassrank.models import EmbeddingTable, Ranker, name_of
from glassrank.models.bi_encoders import LateInteraction
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import SavedModel
from glassrank.models.pretrained import Pretrained, read_pretrained
from glassrank.models.torch_models import start_with
from glassrank.research.papers.subword_table import SubwordTable
from glassrank.research.train.batches import Tokens
from glassrank.research.train.config import StartConfig, TrainConfig
from glassrank.research.train.config_files import family_of
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.smaller import begin_alike, some_layers, teacher_of_vectors
from glassrank.settings import from_plain

_LOOKED_AT = 4000
_AT_ONCE = 100


def build_model(config: TrainConfig, prepared: Prepared, base: Path = Path()) -> Ranker:
    """Paths in the config are relative to `base`."""
    torch.manual_seed(config.seed)
    if config.start.model is not None:
        model = _trained(config, prepared, start_model(config, base))
        if config.start.bert is not None:
            _begin_anew(model, read_pretrained(config.start.bert, base), prepared)
    elif family_of(config).info.uses_subwords:
        model = _transformer(config, prepared, base)
    else:
        model = _term_model(config, prepared)
    if config.first_stage_weight and model.first_stage_weight is None:
        model.mix_first_stage()
    _freeze(model, config.start)
    return model


def show_texts(model: Ranker, docs: Tokens, whole: Ranker | None = None) -> None:
    """Lets a fresh model look at some of the documents, the same ones in every run; one that learns
    the vectors of a whole model begins as near to these as it can."""
    some = np.sort(np.random.default_rng(0).permutation(len(docs.lengths))[:_LOOKED_AT])
    shown = map(docs.batch, np.array_split(some, max(1, -(-len(some) // _AT_ONCE))))
    if whole is None:
        model.eval().fit_statistics(shown)
    else:
        begin_alike(model.eval(), whole, shown)


def _term_model(config: TrainConfig, prepared: Prepared) -> Ranker:
    family = family_of(config)
    settings = {"size": prepared.vectors.shape[1], **config.config}
    vectors, idf = torch.from_numpy(prepared.vectors.copy()), torch.from_numpy(prepared.idf)
    if prepared.subwords is None:
        table = EmbeddingTable(vectors, idf, trained=config.vectors.train)
    else:
        rows = prepared.subwords.rows
        table = SubwordTable(
            vectors,
            torch.from_numpy(rows.offsets),
            torch.from_numpy(rows.values),
            torch.from_numpy(prepared.subwords.ngrams),
            idf,
            trained=config.vectors.train,
        )
    return family(from_plain(family.info.config_type, settings, "config"), table)


def _transformer(config: TrainConfig, prepared: Prepared, base: Path) -> Ranker:
    family = family_of(config)
    # What the file says, checked, as the dataclasses have it; what it does not say is the BERT's.
    checked: Any = from_plain(family.info.config_type, config.config, "config")
    if config.start.bert is None:
        return family(checked)
    for name in ("encoder", "document", "query"):
        if name in config.config:
            raise InputError(f"config.{name} is given by start.bert; leave one of them out")
    settings = {name: getattr(checked, name) for name in config.config}
    bert = read_pretrained(config.start.bert, base)
    _check_pieces(bert, prepared)
    if family.info.is_modular:
        settings["interaction"] = config.start.interaction
    return start_with(bert, family, **settings)


def start_model(config: TrainConfig, base: Path) -> SavedModel:
    """The trained model that a run begins with."""
    assert config.start.model is not None
    saved = load_model(base / config.start.model, trusted=[config.model])
    if saved.usage.remove_stop_words != config.remove_stop_words:
        raise InputError(
            "start.model was trained with remove_stop_words = "
            f"{str(saved.usage.remove_stop_words).lower()}; set it so"
        )
    return saved


def _trained(config: TrainConfig, prepared: Prepared, saved: SavedModel) -> Ranker:
    model = saved.model
    name = name_of(type(model))
    if name != config.model:
        raise InputError(
            f"start.model is a {name}, not a {config.model}; name the model that it is"
        )
    if saved.vocabulary != prepared.words:
        raise InputError(
            "start.model has another vocabulary than the prepared texts; prepare them again with "
            "this start.model"
        )
    if model.words is not None:
        model.words.embedding.weight.requires_grad_(config.vectors.train)
        model.words.embedding.sparse = config.vectors.train  # as their optimizer wants gradients
    trained: Ranker = some_layers(model, config.start) if config.start.layers else model
    return trained


def _begin_anew(model: Ranker, bert: Pretrained, prepared: Prepared) -> None:
    """With this encoder in the place of the trained one, which was as large."""
    if not isinstance(model, LateInteraction):
        raise InputError(
            f"start.bert beside start.model is for kernel_bert and maxsim, not for a {model.name}; "
            "keep one of them"
        )
    _check_pieces(bert, prepared)
    if bert.config != replace(model.config.encoder, dropout=bert.config.dropout):
        raise InputError("start.bert is not as large as the encoder of start.model; leave it out")
    model.encoder.load_state_dict(bert.encoder_weights())


def _check_pieces(bert: Pretrained, prepared: Prepared) -> None:
    if bert.vocabulary != prepared.words:
        raise InputError(
            "start.bert has another vocabulary than the prepared texts; prepare them again with "
            "this start.bert"
        )


def whole_model(config: TrainConfig, base: Path) -> Ranker | None:
    """The model whose vectors are learned, if any are."""
    if not config.loss.vectors:
        return None
    start = start_model(config, base)
    if config.loss.vectors_of is None:
        return teacher_of_vectors(start.model)
    saved = load_model(base / config.loss.vectors_of, trusted=[config.model])
    whole = teacher_of_vectors(saved.model)
    if saved.vocabulary != start.vocabulary or whole.config.size != start.model.config.size:
        raise InputError(
            "loss.vectors_of: expected a model with the vocabulary of start.model, and vectors of "
            "its size"
        )
    return whole


def _freeze(model: Ranker, start: StartConfig) -> None:
    if start.parts == "all":
        return
    if not model.info.is_modular:
        raise InputError(
            f"start.parts = {start.parts!r} needs a model in modules, that is mores, not a "
            f"{model.name}"
        )
    for name, parameter in model.named_parameters():
        encodes = name.split(".")[0] in model.info.encoders
        parameter.requires_grad_(encodes == (start.parts == "representation"))
