"""Text analysis for the first stage, and tokenizers for models."""

from glassrank.text.english import EnglishAnalyzer
from glassrank.text.words import Vocabulary, pad, split_words

__all__ = ["EnglishAnalyzer", "Vocabulary", "pad", "split_words"]
