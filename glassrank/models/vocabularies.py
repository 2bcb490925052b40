"""What a model's list of words or pieces must be, so that texts can be read with it.

Apart from `text/`, which needs more packages: training runs where only torch and numpy are.
"""

from collections.abc import Sequence

from torch import nn

from glassrank.errors import InputError
from glassrank.models.contract import Ranker
from glassrank.models.subwords import SubwordTable

SPECIAL_WORDS = ("<pad>", "<unk>")
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def check_words(words: Sequence[str]) -> None:
    """Words by id, the special ones first."""
    if tuple(words[:2]) != SPECIAL_WORDS:
        raise InputError(f"its words are no vocabulary: {' and '.join(SPECIAL_WORDS)} come first")
    if len(set(words)) < len(words):
        raise InputError("its words are no vocabulary: one of them appears twice")


def check_pieces(pieces: Sequence[str]) -> None:
    """Pieces by id, as a BERT has them."""
    known = set(pieces)
    missing = [piece for piece in SPECIAL_PIECES if piece not in known]
    if missing or pieces[0] != SPECIAL_PIECES[0]:
        raise InputError(
            f"its pieces are no vocabulary of a BERT: {missing[0] if missing else '[PAD]'} is "
            f"missing{'' if missing else ' at the beginning'}"
        )
    if len(known) < len(pieces):
        raise InputError("its pieces are no vocabulary of a BERT: one of them appears twice")


def check_vocabulary(model: Ranker, vocabulary: Sequence[str]) -> None:
    """Whether every word or piece has a vector."""
    table = model.words
    if table is None:
        check_pieces(vocabulary)
        rows = min(
            part.num_embeddings
            for name, part in model.named_modules()
            if isinstance(part, nn.Embedding) and name.endswith("pieces")
        )
    else:
        check_words(vocabulary)
        rows = len(table.idf)
    all_known = isinstance(table, SubwordTable)  # else what is left is for unknown words
    if len(vocabulary) > rows or (all_known and len(vocabulary) < rows):
        raise InputError(f"its vocabulary has {len(vocabulary):,} words, the model {rows:,}")
