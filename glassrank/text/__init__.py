"""Texts to words, terms and ids."""

from glassrank.text.encoder import Batch, pad
from glassrank.text.english import EnglishAnalyzer
from glassrank.text.vocabulary import Vocabulary
from glassrank.text.word_splitting import split_words

__all__ = ["Batch", "EnglishAnalyzer", "Vocabulary", "pad", "split_words"]
