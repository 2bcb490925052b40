"""Text analysis for the first stage, and tokenizers for models."""

from glassrank.text.encoder import Vocabulary, pad
from glassrank.text.english import EnglishAnalyzer
from glassrank.text.word_splitting import split_words

__all__ = ["EnglishAnalyzer", "Vocabulary", "pad", "split_words"]
