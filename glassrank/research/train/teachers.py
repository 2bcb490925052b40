"""Teachers for distillation: scores of all candidates by larger models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.gpu import get_device
from glassrank.models.io.load import load_model
from glassrank.models.text_batches import make_text_encoder
from glassrank.models.transformers_folders import is_cross_encoder
from glassrank.progress import say_progress
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.config import Say
from glassrank.research.train.prepared import Split
from glassrank.research.train.training_texts import TextSplit
from glassrank.research.train.validate import score_candidates
from glassrank.research.train.vector_training import load_sentence_transformer
from glassrank.storage.mapped_arrays import Ragged

_TEXTS_AT_ONCE = 256


class Teacher(Protocol):
    """Scores candidates for distillation."""

    def scores(self, split: TextSplit) -> NDArray[np.float32]:
        """One score for each of `split.docs.values`."""
        ...


def load_teacher(
    folder: Path, docs: Sequence[Sequence[str]], device: str, say: Say = lambda _: None
) -> Teacher:
    """A checkpoint, a cross-encoder or a sentence transformer."""
    ours = (folder / "weights.safetensors").exists() or (folder / "checksums.json").exists()
    if ours or is_cross_encoder(folder):
        return ModelTeacher(folder, docs, device, say)
    return SentenceTeacher(str(folder), docs, say)


class MeanTeacher:
    """The weighted mean of several teachers' scores, standardized in each list."""

    def __init__(self, teachers: Sequence[tuple[Teacher, float]]) -> None:
        self._teachers = teachers

    def scores(self, split: TextSplit) -> NDArray[np.float32]:
        """The weighted mean of standardized scores."""
        lengths, owner = np.diff(split.docs.offsets), split.docs.row_ids
        total = np.zeros(len(owner), np.float64)
        for teacher, weight in self._teachers:
            total += weight * _standardize(teacher.scores(split), owner, lengths)
        return (total / sum(weight for _, weight in self._teachers)).astype(np.float32)


def _standardize(
    scores: NDArray[np.float32], owner: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.float64]:
    count = np.maximum(lengths, 1)
    centred = scores - (np.bincount(owner, scores, len(lengths)) / count)[owner]
    deviation = np.sqrt(np.bincount(owner, centred**2, len(lengths)) / count)
    values: NDArray[np.float64] = centred / (deviation + 1e-6)[owner]
    return values


class ModelTeacher:
    """A checkpoint, for example of BERT or MORES."""

    def __init__(
        self, folder: Path, docs: Sequence[Sequence[str]], device: str, say: Say = lambda _: None
    ) -> None:
        saved = load_model(folder)
        self._say = say
        self._encoder = make_text_encoder(saved)
        self._usage = saved.usage
        self._device = get_device(device)
        self._model = saved.model.to(self._device)
        self._docs = Tokens.of(
            self._ids(docs, saved.usage.doc_length), saved.usage.doc_length, self._device
        )

    def scores(self, split: TextSplit) -> NDArray[np.float32]:
        """Scores of the checkpoint."""
        queries = self._ids(split.queries, self._usage.query_length)
        read = Split(
            queries, split.collection, split.docs, split.grades, split.ranks, split.scores, None
        )
        data = SplitTensors.of(read, self._docs, self._usage.query_length, self._device)
        precision = "bf16" if self._device.type == "cuda" else "float32"
        return score_candidates(
            self._model, data, np.arange(len(queries)), precision, say=self._say
        )

    def _ids(self, texts: Sequence[Sequence[str]], longest: int) -> Ragged:
        encoded = self._encoder.encode([" ".join(words) for words in texts], longest)
        return Ragged.from_rows([text.ids for text in encoded], np.int32)


class SentenceTeacher:
    """A sentence transformer: cosines of query and document vectors."""

    def __init__(self, path: str, docs: Sequence[Sequence[str]], say: Say = lambda _: None) -> None:
        self._model: Any = load_sentence_transformer(path)
        self._say = say
        self._docs = self._encode(docs)

    def _encode(self, texts: Sequence[Sequence[str]]) -> NDArray[np.float32]:
        joined = [" ".join(words) for words in texts]
        # The longest first: a batch is padded to its longest text, and no estimate is too short.
        order = sorted(range(len(joined)), key=lambda place: -len(joined[place]))
        vectors: list[Any] = []
        starts = range(0, len(joined), _TEXTS_AT_ONCE)
        for start in say_progress(
            starts, "teacher: texts", len(joined), self._say, at_once=_TEXTS_AT_ONCE
        ):
            some = [joined[place] for place in order[start : start + _TEXTS_AT_ONCE]]
            vectors.append(self._model.encode(some, normalize_embeddings=True, batch_size=256))
        encoded = np.concatenate(vectors or [np.empty((0, 0))]).astype(np.float32)
        return encoded[np.argsort(order)]

    def scores(self, split: TextSplit) -> NDArray[np.float32]:
        """Cosines."""
        encoded = self._encode(split.queries)
        docs = split.docs
        owner = docs.row_ids
        out = np.empty(len(owner), np.float32)
        for start in range(0, len(owner), 1 << 16):
            part = slice(start, start + (1 << 16))
            out[part] = np.einsum("ij,ij->i", encoded[owner[part]], self._docs[docs.values[part]])
        return out
