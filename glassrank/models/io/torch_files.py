"""Loads and saves models of any family for PyTorch. A saved folder appears whole or not at all."""

from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from safetensors.torch import load
from torch import nn

from glassrank.errors import InputError, wrap_file_errors
from glassrank.models import is_outside
from glassrank.models.families import (
    ENSEMBLE,
    LOAD_ENSEMBLE,
    MODELS,
    SUBWORD_TABLE,
    find_family,
    import_object,
    name_of,
)
from glassrank.models.io.model_folder import (
    CARD,
    MEMBERS,
    MODEL_FILES,
    WEIGHTS,
    SavedModel,
    Usage,
    check_vocabulary,
    load_config,
    load_vocabulary,
    write_texts,
)
from glassrank.models.io.weight_files import (
    MOST_BYTES,
    TensorInfo,
    build,
    check_finite,
    dequantize,
    dequantized_header,
    fill,
    quantize,
    read_header,
    write_tensors,
)
from glassrank.models.model import check_score
from glassrank.models.torch_models import EmbeddingTable, Ranker
from glassrank.storage.atomic_folders import ChecksummedFiles, write_checksummed_folder


def load_files(files: ChecksummedFiles, trusted: Collection[str] = ()) -> SavedModel:
    """Loads a model from checked files."""
    with wrap_file_errors(files.path, "it does not hold a model that can be used"):
        stored = load_config(files)
        if stored.model == ENSEMBLE:
            loaded: SavedModel = import_object(LOAD_ENSEMBLE)(files.folder, stored, trusted)
            return loaded
        if stored.model not in MODELS and not is_outside(stored.model):
            raise InputError(f"it holds a {stored.model!r}, which this version does not know")
        family = find_family(stored.model, trusted)
        config = stored.read_settings(family.info.config_type)
        with files.open(WEIGHTS, MOST_BYTES) as file:
            header = read_header(file, files.size(WEIGHTS))

            def make() -> Ranker:
                table = None if stored.words is None else _empty_table(stored.words, header)
                model = family(config, table)
                if stored.first_stage_weight:
                    model.mix_first_stage()
                return model

            model = build(make, dequantized_header(header))
            tensors = load(files.read_all(WEIGHTS, file))
        fill(model, dequantize(tensors))
        if model.words is not None:
            model.words.check()
        words = load_vocabulary(files)
        _check_vocabulary(model, words)
        check_score(model.eval(), *stored.usage.short_ids())
        return SavedModel(model, stored.usage, words)


def _check_vocabulary(model: Ranker, vocabulary: Sequence[str]) -> None:
    table = model.words
    if table is not None:  # vectors behind the vocabulary are for unknown words
        rows, has_ngrams = len(table.idf), table.has_ngrams
        check_vocabulary(vocabulary, rows, subwords=False, all_known=has_ngrams)
        return
    modules = model.named_modules()
    tables = [part for name, part in modules if name.endswith("embeddings.pieces")]
    rows = min(part.num_embeddings for part in tables if isinstance(part, nn.Embedding))
    check_vocabulary(vocabulary, rows, subwords=True)


def _empty_table(shape: Sequence[int], header: dict[str, TensorInfo]) -> EmbeddingTable:
    rows, size = shape
    vectors = torch.empty(rows, size)
    if "words.ngrams" not in header:
        return EmbeddingTable(vectors, trained=False)
    layout = (torch.empty(header[f"words.{n}"].shape) for n in ("offsets", "rows", "ngrams"))
    table: EmbeddingTable = import_object(SUBWORD_TABLE)(vectors, *layout, trained=False)
    return table


FILE_NAMES = (*MODEL_FILES, *MEMBERS)


def save_model(
    folder: Path,
    model: Ranker,
    usage: Usage,
    vocabulary: list[str],
    card: str,
    vectors: str = "float32",
    layers: str = "float32",
) -> None:
    """Saves a model. `vectors` is the dtype of word or subword vectors: float32, float16, or int8
    with a scale for each, which takes a quarter of the space. `layers` is that of other matrices:
    float32, float16, or int8 for those of layers, which encodes queries fastest."""
    if model.name == ENSEMBLE:
        raise TypeError("an ensemble is made of saved models; write it with save_ensemble")
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    check_finite(weights)
    _check_vocabulary(model, vocabulary)
    words = None if model.words is None else list(model.words.embedding.weight.shape)
    with write_checksummed_folder(folder, "model", FILE_NAMES, beside=CARD) as part:
        write_tensors(quantize(weights, vectors, layers), part / WEIGHTS)
        write_texts(part, name_of(type(model)), model, usage, vocabulary, card, words)
