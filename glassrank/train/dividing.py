"""How a run's texts become what its model reads: the encoder, where the model has one already, and
documents in the passages that the trained model will divide them into."""

from pathlib import Path
from typing import Any

import numpy as np

from glassrank.errors import InputError
from glassrank.models.contract import PieceText
from glassrank.models.doc_reader import PassageReader
from glassrank.models.pretrained import read_pretrained
from glassrank.settings import from_plain
from glassrank.text.encoder import TextEncoder, WordEncoder
from glassrank.text.vocabulary import Vocabulary
from glassrank.train.build import start_model
from glassrank.train.config import TrainConfig
from glassrank.train.config_files import family_of
from glassrank.train.prepared import DividedDocs
from glassrank.types import Doc


def trained_encoder(config: TrainConfig, base: Path) -> tuple[list[str], TextEncoder] | None:
    """Words or pieces that a model knows already, and what reads them; None where the texts
    themselves say."""
    from glassrank.models.text_batches import text_encoder
    from glassrank.text.encoder import PieceEncoder

    if config.start.model is not None:
        saved = start_model(config, base)
        return saved.vocabulary, text_encoder(saved, unseen=False)
    if not family_of(config).reads_pieces:
        return None
    if config.start.bert is None:
        raise InputError(
            f"a {config.model} reads pieces of words: say whose, with start.bert or start.model"
        )
    bert = read_pretrained(config.start.bert, base)
    return bert.vocabulary, PieceEncoder(bert.vocabulary, bert.lowercase)


def piece_text(config: TrainConfig, base: Path) -> PieceText | None:
    """What a model over pieces reads; one that was trained before keeps its own limits. None of a
    model over words."""
    family = family_of(config)
    if not family.reads_pieces:
        return None
    settings: Any = (
        from_plain(family.config_type, config.config, "config")
        if config.start.model is None
        else start_model(config, base).model.config
    )
    text: PieceText = settings.text
    return text


class Divider:
    """Documents to the texts of their passages, which follow one another."""

    def __init__(self, config: TrainConfig, base: Path) -> None:
        known, pieces = trained_encoder(config, base), piece_text(config, base)
        # A word takes one place, whatever its number will be.
        words = WordEncoder(Vocabulary([]), remove_stop_words=config.remove_stop_words)
        self._reader = PassageReader(
            words if known is None else known[1],
            config.doc_length,
            None if pieces is None else pieces.doc_words,
            config.passages,
        )
        self._best = config.passages.best
        self._offsets = [0]

    def __len__(self) -> int:
        """Documents so far."""
        return len(self._offsets) - 1

    def add(self, doc: Doc) -> list[str]:
        """One document more: its texts."""
        texts = self._reader.read([doc])[0].all().texts
        self._offsets.append(self._offsets[-1] + len(texts))
        return texts

    def passages(self) -> DividedDocs:
        """Which texts are whose, once no document is to come."""
        return DividedDocs(np.array(self._offsets, np.int64), self._best)
