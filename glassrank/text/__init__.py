"""Texts to words, terms and ids."""

from glassrank.text.encoder import Batch, pad, split_words
from glassrank.text.english import EnglishAnalyzer
from glassrank.text.vocabulary import Vocabulary

__all__ = ["Batch", "EnglishAnalyzer", "Vocabulary", "pad", "split_words"]
