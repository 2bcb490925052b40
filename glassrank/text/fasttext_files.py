"""fastText's own `.bin`: the words it knows and the vectors of words and of n-grams.

    magic, version | 12 settings, t | words, labels, … | word, count, kind of each | input matrix

All numbers are little-endian. Every length that the file gives is held against the file's size
before anything is allocated or read; the output matrix at the end is not needed.
"""

import struct
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.files import most_bytes, open_bytes
from glassrank.text.word_vectors import LONGEST_NGRAM, SubwordVectors

FASTTEXT_BEGINS = struct.pack("<i", 793712314)
MOST_VALUES = 1 << 14
"""Of a vector; the largest that are published have 4,096."""
LONGEST_WORD = 1 << 14
"""Bytes. fastText itself reads no more than 1,024 of a word."""
_BLOCK = 1 << 22


def read_fasttext(path: Path) -> SubwordVectors:
    """From the `.bin` that fastText writes."""
    with open_bytes(path) as file:
        read_exactly(file, len(FASTTEXT_BEGINS), path)
        version, size, *_ = settings = _unpack(file, "<i12id", path)
        buckets, shortest, longest = settings[9:12]
        _, words, labels, _, pruned = _unpack(file, "<iiiqq", path)
        if (
            version not in (11, 12)
            or not 0 < size <= MOST_VALUES
            or min(words - 1, buckets, shortest, longest) < 0
            or max(shortest, longest) > LONGEST_NGRAM
        ):
            raise _damaged(path)
        if labels or pruned > 0:
            raise InputError(
                f"{path} is a fastText classifier or a pruned model; expected vectors of words"
            )
        if words * 10 > most_bytes(path):  # a word takes a NUL, 8 bytes of count, 1 of kind
            raise _damaged(path)
        known = _read_words(cast(BufferedReader, file), words, path)
        quantized, rows, columns = _unpack(file, "<?qq", path)
        if quantized:
            raise InputError(f"{path} is quantized; expected the .bin before quantization")
        if (rows, columns) != (words + buckets, size) or 4 * rows * size > most_bytes(path):
            raise _damaged(path)
        table = np.empty((rows, size), "<f4")  # (W + buckets, E)
        _fill(file, table, path)
    if not np.isfinite(table).all():
        raise InputError(f"{path} has values that are not finite")
    return SubwordVectors(known, table.astype(np.float32, copy=False), shortest, longest)


def _read_words(file: BufferedReader, count: int, path: Path) -> list[str]:
    """Each ends with a NUL; its count (8 bytes) and its kind (1 byte) follow."""
    words: list[str] = []
    while len(words) < count:
        ahead, start = file.peek(), 0
        while len(words) < count and 0 <= (end := ahead.find(b"\0", start)) <= len(ahead) - 10:
            words.append(_decoded(ahead[start:end], path))
            start = end + 10
        read_exactly(file, start, path)
        if not start:  # a word that goes beyond what was read ahead
            letters = bytearray()
            while (letter := read_exactly(file, 1, path)) != b"\0":
                letters += letter
                if len(letters) > LONGEST_WORD:
                    raise _damaged(path)
            words.append(_decoded(bytes(letters), path))
            read_exactly(file, 9, path)
    return words


def _decoded(word: bytes, path: Path) -> str:
    if len(word) > LONGEST_WORD:
        raise _damaged(path)
    return word.decode("utf-8", "backslashreplace")


def _fill(file: IO[bytes], table: NDArray[Any], path: Path) -> None:
    flat = table.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        part = flat[start : start + _BLOCK]
        part[:] = np.frombuffer(read_exactly(file, 4 * len(part), path), "<f4")


def _unpack(file: IO[bytes], form: str, path: Path) -> tuple[Any, ...]:
    return struct.unpack(form, read_exactly(file, struct.calcsize(form), path))


def read_exactly(file: IO[bytes], size: int, path: Path, *, cut_off: bool = True) -> bytes:
    """With `cut_off`, an error where the file ends before; otherwise what there is."""
    try:
        content = file.read(size)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if cut_off and len(content) < size:
        raise InputError(f"{path} is cut off; fetch the file again")
    return content


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is a damaged fastText model: its numbers contradict each other")
