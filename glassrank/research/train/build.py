"""Build the model of a run: new, from a pretrained BERT, or from a checkpoint."""

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
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import find_model_class
from glassrank.research.train.distillation import fit_projection, freeze_teacher
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.pruning import prune
from glassrank.settings import from_plain

_SAMPLE_SIZE = 4000
_BATCH_SIZE = 100


def build_model(config: TrainConfig, prepared: Prepared, base: Path = Path()) -> Ranker:
    """The model before its first step. Paths in the config are relative to `base`."""
    torch.manual_seed(config.seed)
    family = find_model_class(config)
    if config.start.model is not None:
        model = _continue_from(config, prepared, base)
        if config.start.bert is not None:
            _replace_encoder(model, _read_bert(config.start.bert, prepared, base))
    elif family.info.uses_subwords:
        model = _build_transformer(config, family, prepared, base)
    else:
        model = _build_word_model(config, family, prepared)
    if config.first_stage_weight and model.first_stage_weight is None:
        model.mix_first_stage()
    parts = config.start.parts
    if parts != "all":
        if not model.info.is_modular:
            raise InputError(
                f"start.parts = {parts!r} needs a modular model (mores), found {model.name}"
            )
        for name, parameter in model.named_parameters():
            encodes = name.split(".")[0] in model.info.encoders
            parameter.requires_grad_(encodes == (parts == "representation"))
    return model


def fit_model_statistics(model: Ranker, docs: Tokens, vector_teacher: Ranker | None = None) -> None:
    """Fit statistics on a fixed sample of documents, or on a vector teacher's vectors."""
    some = np.sort(np.random.default_rng(0).permutation(len(docs.lengths))[:_SAMPLE_SIZE])
    shown = map(docs.batch, np.array_split(some, max(1, -(-len(some) // _BATCH_SIZE))))
    if vector_teacher is None:
        model.eval().fit_statistics(shown)
    else:
        fit_projection(model.eval(), vector_teacher, shown)


def _build_word_model(config: TrainConfig, family: type[Ranker], prepared: Prepared) -> Ranker:
    settings = {"size": prepared.vectors.shape[1], **config.config}
    vectors, idf = torch.from_numpy(prepared.vectors.copy()), torch.from_numpy(prepared.idf)
    if prepared.subwords is None:
        table = EmbeddingTable(vectors, idf, trained=config.vectors.train)
    else:
        rows = prepared.subwords.rows
        arrays = rows.offsets, rows.values, prepared.subwords.ngrams
        offsets, values, ngrams = map(torch.from_numpy, arrays)
        table = SubwordTable(vectors, offsets, values, ngrams, idf, trained=config.vectors.train)
    return family(from_plain(family.info.config_type, settings, "config"), table)


def _build_transformer(
    config: TrainConfig, family: type[Ranker], prepared: Prepared, base: Path
) -> Ranker:
    # Settings of the file, checked; all others are the BERT's.
    checked: Any = from_plain(family.info.config_type, config.config, "config")
    if config.start.bert is None:
        return family(checked)
    for name in ("encoder", "document", "query"):
        if name in config.config:
            raise InputError(f"config.{name} is given by start.bert; leave one of them out")
    settings = {name: getattr(checked, name) for name in config.config}
    bert = _read_bert(config.start.bert, prepared, base)
    if family.info.is_modular:
        settings["interaction"] = config.start.interaction
    return start_with(bert, family, **settings)


def load_start_model(config: TrainConfig, base: Path) -> SavedModel:
    """The checkpoint that a run starts from."""
    assert config.start.model is not None
    saved = load_model(base / config.start.model, trusted=[config.model])
    if saved.usage.remove_stop_words != config.remove_stop_words:
        raise InputError(
            "start.model was trained with remove_stop_words = "
            f"{str(saved.usage.remove_stop_words).lower()}; set it so"
        )
    return saved


def _continue_from(config: TrainConfig, prepared: Prepared, base: Path) -> Ranker:
    saved = load_start_model(config, base)
    model = saved.model
    name = name_of(type(model))
    if name != config.model:
        raise InputError(f"start.model is a {name}, not a {config.model}; set model to its kind")
    _check_vocabulary("start.model", saved.vocabulary, prepared)
    if model.words is not None:
        model.words.embedding.weight.requires_grad_(config.vectors.train)
        model.words.embedding.sparse = config.vectors.train  # SparseAdam needs sparse gradients
    return prune(model, config.start) if config.start.layers else model


def _replace_encoder(model: Ranker, bert: Pretrained) -> None:
    if not isinstance(model, LateInteraction):
        raise InputError(
            f"start.bert with start.model needs a kernel_bert or maxsim, found {model.name}; keep "
            "one of them"
        )
    if bert.config != replace(model.config.encoder, dropout=bert.config.dropout):
        raise InputError(
            "start.bert has another size than the encoder of start.model; leave it out"
        )
    model.encoder.load_state_dict(bert.encoder_weights())


def _read_bert(name: str, prepared: Prepared, base: Path) -> Pretrained:
    bert = read_pretrained(name, base)
    _check_vocabulary("start.bert", bert.vocabulary, prepared)
    return bert


def _check_vocabulary(source: str, vocabulary: list[str], prepared: Prepared) -> None:
    if vocabulary != prepared.words:
        raise InputError(
            f"{source} has another vocabulary than the prepared arrays; prepare them again"
        )


def load_vector_teacher(config: TrainConfig, base: Path) -> Ranker | None:
    """The model whose vectors are distilled, if any."""
    if not config.loss.vectors:
        return None
    start = saved = load_start_model(config, base)
    if config.loss.vectors_of is not None:
        saved = load_model(base / config.loss.vectors_of, trusted=[config.model])
    vector_teacher = freeze_teacher(saved.model)
    if (
        saved.vocabulary != start.vocabulary
        or vector_teacher.config.size != start.model.config.size
    ):
        raise InputError(
            "loss.vectors_of must have the vocabulary and the vector size of start.model"
        )
    return vector_teacher
