"""A text as the model reads it: words, ids, and where the words stand for a person."""

from dataclasses import dataclass, replace

import torch

from glassrank.explain.spans import word_spans
from glassrank.explain.structure import Text, Word
from glassrank.models import TokenBatch
from glassrank.rank import Reranker
from glassrank.text import split_words


@dataclass(frozen=True)
class Reading:
    text: Text
    batch: TokenBatch  # of one text; one place of padding if it has no words

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.text.words)

    def cut_to(self, count: int) -> "Reading":
        """For models that read less than they are given."""
        words = self.text.words[:count]
        cut = self.text.cut + len(self.text.words) - len(words)
        return replace(self, text=replace(self.text, words=words, cut=cut))


def read(reranker: Reranker, text: str, longest: int) -> Reading:
    """The first `longest` words of a text."""
    vocabulary = reranker.vocabulary
    # Half a surrogate pair can be neither read nor printed; the tokenizer sees a question mark.
    text = text.encode("utf-8", "replace").decode()
    words = split_words(text)
    kept = words[:longest]
    spans = [span or (None, None) for span in word_spans(text, kept)]
    shown = tuple(
        Word(word, start, stop, word in vocabulary)
        for word, (start, stop) in zip(kept, spans, strict=True)
    )
    device = next(reranker.model.parameters()).device
    ids = torch.tensor(vocabulary.ids(kept).tolist() or [0], device=device)
    mask = torch.full(ids.shape, float(bool(kept)), device=device)
    return Reading(Text(text, shown, len(words) - len(kept)), TokenBatch(ids[None], mask[None]))
