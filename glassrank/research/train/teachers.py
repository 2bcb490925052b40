"""Teachers for distillation: scores of all candidates by larger models."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.gpu import get_device
from glassrank.models.io.load import load_model
from glassrank.models.text_batches import make_text_encoder
from glassrank.models.transformers_folders import is_cross_encoder
from glassrank.progress import say_progress
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.config import Say
from glassrank.research.train.training_texts import TextSplit
from glassrank.research.train.validate import score_candidates
from glassrank.research.train.vector_training import load_sentence_transformer
from glassrank.storage.mapped_arrays import Ragged

_TEXTS_AT_ONCE, _PAIRS_AT_ONCE = 256, 1 << 16


Teacher = Callable[[TextSplit], NDArray[np.float32]]
"""Scores for distillation: one for each of `split.docs.values`."""


def load_teacher(
    folder: Path, docs: Iterable[Sequence[str]], device: str, say: Say = lambda _: None
) -> Teacher:
    """A checkpoint, a cross-encoder or a sentence transformer."""
    ours = (folder / "weights.safetensors").exists() or (folder / "checksums.json").exists()
    if ours or is_cross_encoder(folder):
        return model_teacher(folder, docs, device, say)
    return sentence_teacher(str(folder), docs, say)


def average_teachers(teachers: Sequence[tuple[Teacher, float]]) -> Teacher:
    """The weighted mean of several teachers' scores, standardized in each list."""

    def score(split: TextSplit) -> NDArray[np.float32]:
        owner, lists = split.docs.row_ids, len(split.docs)
        count = np.maximum(np.diff(split.docs.offsets), 1)

        def mean(values: NDArray[np.floating]) -> NDArray[np.float64]:
            """Of each list, for each of its candidates."""
            return (np.bincount(owner, values, lists) / count)[owner]

        total = np.zeros(len(owner), np.float64)
        for teacher, weight in teachers:
            scores = teacher(split)
            centred = scores - mean(scores)
            total += weight * (centred / (np.sqrt(mean(centred**2)) + 1e-6))
        return (total / sum(weight for _, weight in teachers)).astype(np.float32)

    return score


def model_teacher(folder: Path, docs: Iterable[Sequence[str]], device: str, say: Say) -> Teacher:
    """Scores of a checkpoint, for example of BERT or MORES."""
    saved = load_model(folder)
    encoder, usage, target = make_text_encoder(saved), saved.usage, get_device(device)
    model = saved.model.to(target)
    precision = "bf16" if target.type == "cuda" else "float32"

    def encode(texts: Iterable[Sequence[str]], longest: int) -> Ragged:
        encoded = encoder.encode([" ".join(words) for words in texts], longest)
        return Ragged.from_rows([text.ids for text in encoded], np.int32)

    doc_tokens = Tokens.of(encode(docs, usage.doc_length), usage.doc_length, target)

    def score(split: TextSplit) -> NDArray[np.float32]:
        encoded = split.with_ids(encode(split.queries, usage.query_length))
        data = SplitTensors.of(encoded, doc_tokens, usage.query_length, target)
        return score_candidates(model, data, np.arange(len(split.queries)), precision, say=say)

    return score


def sentence_teacher(path: str, docs: Iterable[Sequence[str]], say: Say) -> Teacher:
    """Cosines of the vectors of a sentence transformer."""
    model: Any = load_sentence_transformer(path)

    def encode(texts: Iterable[Sequence[str]]) -> NDArray[np.float32]:
        joined = [" ".join(words) for words in texts]
        # The longest first: a batch is padded to its longest text, and no estimate is too short.
        order = sorted(range(len(joined)), key=lambda place: -len(joined[place]))
        vectors: list[Any] = []
        starts = range(0, len(joined), _TEXTS_AT_ONCE)
        for start in say_progress(
            starts, "teacher: texts", len(joined), say, at_once=_TEXTS_AT_ONCE
        ):
            some = [joined[place] for place in order[start : start + _TEXTS_AT_ONCE]]
            vectors.append(model.encode(some, normalize_embeddings=True, batch_size=256))
        encoded = np.concatenate(vectors or [np.empty((0, 0))]).astype(np.float32)
        return encoded[np.argsort(order)]

    doc_vectors = encode(docs)

    def score(split: TextSplit) -> NDArray[np.float32]:
        query_vectors, owner = encode(split.queries), split.docs.row_ids
        out = np.empty(len(owner), np.float32)
        for start in range(0, len(owner), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            docs = doc_vectors[split.docs.values[part]]
            out[part] = np.einsum("ij,ij->i", query_vectors[owner[part]], docs)
        return out

    return score
