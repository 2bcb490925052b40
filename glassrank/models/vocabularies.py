"""What a model's list of words or pieces must be.

Checked here and not in `text/`, which needs more packages: training runs where only torch and numpy
are.
"""

from collections.abc import Sequence

from glassrank.errors import InputError

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


def check_count(words: int, rows: int, *, all_known: bool = False) -> None:
    """Whether every word or piece has a vector, and where `all_known`, every vector one."""
    if words > rows or (all_known and words < rows):
        raise InputError(f"its vocabulary has {words:,} words, the model {rows:,}")
