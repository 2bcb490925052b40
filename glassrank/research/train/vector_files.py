"""Reads word vectors of a vocabulary's words from GloVe, word2vec (text and binary) and fastText.

fastText's `.bin`, little-endian, with lengths that are checked before memory is allocated:

    magic, version | 12 settings, t | words, labels, … | word, count, kind of each | input matrix
"""

import re
import struct
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.research.papers.word_vectors import LONGEST_NGRAM, SubwordVectors, WordVectors
from glassrank.storage.files import max_content_bytes, open_bytes, read_lines
from glassrank.text.words import UNKNOWN, Vocabulary

_FASTTEXT_BEGINS = struct.pack("<i", 793712314)
_MAX_VALUES = 1 << 14
"""Of a vector; the largest published ones have 4,096."""
_LONGEST_WORD = 1 << 14
"""Bytes. fastText reads no more than 1,024 of a word."""
_VALUES_AT_ONCE = 1 << 22


def read_subwords(path: str | Path) -> SubwordVectors:
    """Reads a `.bin` of fastText, or raises an error for any other file."""
    path = Path(path)
    with open_bytes(path) as file:
        if _read_exactly(file, len(_FASTTEXT_BEGINS), path, cut_off=False) != _FASTTEXT_BEGINS:
            raise InputError(
                f"{path} is not a fastText model; expected the .bin that fasttext writes"
            )
        version, size, *_ = settings = _unpack(file, "<i12id", path)
        buckets, shortest, longest = settings[9:12]
        _, words, labels, _, pruned = _unpack(file, "<iiiqq", path)
        if (
            version not in (11, 12)
            or not 0 < size <= _MAX_VALUES
            or min(words - 1, buckets, shortest, longest) < 0
            or max(shortest, longest) > LONGEST_NGRAM
        ):
            raise _damaged(path)
        if labels or pruned > 0:
            raise InputError(
                f"{path} is a fastText classifier or a pruned model; expected vectors of words"
            )
        if words * 10 > max_content_bytes(path):  # a word takes a NUL, 8 bytes of count, 1 of kind
            raise _damaged(path)
        known = _read_words(cast(BufferedReader, file), words, path)
        quantized, rows, columns = _unpack(file, "<?qq", path)
        if quantized:
            raise InputError(f"{path} is quantized; expected the .bin before quantization")
        if (rows, columns) != (words + buckets, size) or 4 * rows * size > max_content_bytes(path):
            raise _damaged(path)
        table = np.empty((rows, size), "<f4")  # (W + buckets, E)
        flat = table.reshape(-1)
        for start in range(0, len(flat), _VALUES_AT_ONCE):
            part = flat[start : start + _VALUES_AT_ONCE]
            part[:] = np.frombuffer(_read_exactly(file, 4 * len(part), path), "<f4")
    if not np.isfinite(table).all():
        raise InputError(f"{path} has values that are not finite")
    return SubwordVectors(known, table.astype(np.float32, copy=False), shortest, longest)


def _read_words(file: BufferedReader, count: int, path: Path) -> list[str]:
    """Each ends with a NUL; its count (8 bytes) and its kind (1 byte) follow."""
    words: list[str] = []
    while len(words) < count:
        ahead, start = file.peek(), 0
        while len(words) < count and 0 <= (end := ahead.find(b"\0", start)) <= len(ahead) - 10:
            words.append(_decode(ahead[start:end], path))
            start = end + 10
        _read_exactly(file, start, path)
        if not start:  # a word longer than the read-ahead buffer
            letters = bytearray()
            while (letter := _read_exactly(file, 1, path)) != b"\0":
                letters += letter
                if len(letters) > _LONGEST_WORD:
                    raise _damaged(path)
            words.append(_decode(bytes(letters), path))
            _read_exactly(file, 9, path)
    return words


def _decode(word: bytes, path: Path) -> str:
    if len(word) > _LONGEST_WORD:
        raise _damaged(path)
    return word.decode("utf-8", "backslashreplace")


def _unpack(file: IO[bytes], form: str, path: Path) -> tuple[Any, ...]:
    return struct.unpack(form, _read_exactly(file, struct.calcsize(form), path))


def _read_exactly(file: IO[bytes], size: int, path: Path, *, cut_off: bool = True) -> bytes:
    """Reads `size` bytes; with `cut_off`, a shorter rest of the file is an error."""
    try:
        content = file.read(size)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if cut_off and len(content) < size:
        raise InputError(f"{path} is truncated; download the file again")
    return content


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is a damaged fastText model: its sizes do not agree")


_LONGEST_HEADER = 64
_HEADER = re.compile(r"([0-9]{1,12})\s+([0-9]{1,12})")
_BLOCK = 1 << 20


def read_vectors(path: str | Path, vocabulary: Vocabulary, *, seed: int = 0) -> WordVectors:
    """Reads the vectors of a vocabulary's words, also from a `.gz`; missing ones are random.

    fastText's `.bin` is recognized by its first bytes; any other `.bin` is taken for word2vec's
    binary format, any other file for text, as of GloVe, word2vec and fastText's `.vec`, the latter
    two with a first line of the numbers of words and values. Of duplicate words the first counts.
    The values of other words are counted, but not parsed.
    """
    path = Path(path)
    with open_bytes(path) as file:
        begins = _read_exactly(file, len(_FASTTEXT_BEGINS), path, cut_off=False)
    if begins == _FASTTEXT_BEGINS:
        return read_subwords(path).word_vectors(vocabulary, seed)
    is_binary = path.name.removesuffix(".gz").endswith(".bin")
    wanted = {word: number for number, word in enumerate(vocabulary.words) if number > UNKNOWN}
    rows = _binary_rows(path, wanted) if is_binary else _text_rows(path, wanted)
    matrix = np.zeros((0, 0), np.float32)
    known = np.zeros(len(vocabulary), np.bool_)  # (V,)
    for number, row in rows:
        if not matrix.size:
            matrix = np.zeros((len(vocabulary), len(row)), np.float32)  # (V, E)
        if not known[number]:
            matrix[number] = row
            known[number] = True
    if not known.any():
        raise InputError(
            f"{path} has none of the {len(wanted)} words of the vocabulary; "
            "is it of another language, or are its words not lower-cased?"
        )
    return WordVectors.complete(matrix, known, seed)


def _text_rows(path: Path, wanted: Mapping[str, int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    count, size, seen = 0, 0, 0
    for number, line in read_lines(path):
        line = line.rstrip(" ")  # word2vec ends its lines with a space
        if number == 1 and (header := _header(line)):
            count, size = header
            continue
        if not line:
            continue
        spaces = line.count(" ")
        size = size or min(spaces, _MAX_VALUES)
        if spaces == size and size:
            word, _, values = line.partition(" ")
        else:
            word, values = _split_from_right(path, number, line, size)
        seen += 1
        if word in wanted:
            yield wanted[word], _parse(path, number, word, values)
    if seen < count:
        raise InputError(
            f"{path} is truncated: its first line says {count} words, found {seen}; "
            "download the file again"
        )


def _header(line: str) -> tuple[int, int] | None:
    """The numbers of words and values, if the line is a header."""
    numbers = _HEADER.fullmatch(line.strip())
    if not numbers or not 0 < int(numbers[2]) <= _MAX_VALUES:
        return None
    return int(numbers[1]), int(numbers[2])


def _split_from_right(path: Path, number: int, line: str, size: int) -> tuple[str, str]:
    """GloVe has "words" with spaces, such as `. . .`: values are counted from the right. A word
    that ends in a number means one value too many."""
    parts = line.rsplit(" ", size)
    if size == 0 or len(parts) <= size or _is_number(parts[0].rpartition(" ")[2]):
        expected = f"expected a word and {size or 'its'} values, separated by single spaces"
        raise InputError.at(path, number, f"{expected}, found {line.count(' ')} values")
    return parts[0], " ".join(parts[1:])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse(path: Path, number: int, word: str, values: str) -> NDArray[np.float32]:
    numbers = values.split(" ")
    try:
        with np.errstate(over="ignore"):  # too large values become infinite, an error below
            row = np.array(list(map(float, numbers))).astype(np.float32)
        if np.isfinite(row).all():
            return row
        bad = numbers[int(np.argmin(np.isfinite(row)))]
    except ValueError:
        bad = next(value for value in numbers if not _is_number(value))
    raise InputError.at(path, number, f"{bad!r} in the vector of {word!r} is not a finite number")


def _binary_rows(
    path: Path, wanted: Mapping[str, int]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """(id, vector) of each wanted word: after a header line, a word, a space, 32-bit floats."""
    with open_bytes(path) as file:
        first = file.readline(_LONGEST_HEADER)
        header = _header(first.decode("utf-8", "replace"))
        if header is None or not first.endswith(b"\n"):
            raise InputError(
                f"{path} is not in word2vec's binary format: expected the numbers of words and "
                "values in its first line"
            )
        count, size = header
        buffer, start = b"", 0
        for number in range(1, count + 1):
            while (end := buffer.find(b" ", start)) < 0 or len(buffer) < end + 1 + 4 * size:
                block = _read_exactly(file, _BLOCK, path, cut_off=False)
                if not block:
                    raise InputError(
                        f"{path} is truncated: it has {count} words and ends at word {number}; "
                        "download the file again"
                    )
                buffer, start = buffer[start:] + block, 0
                if b" " not in buffer[:_LONGEST_WORD]:
                    raise InputError(f"{path}: word {number} is longer than {_LONGEST_WORD} bytes")
            # Some writers end a vector with a line end, which is then before the next word.
            word = buffer[start:end].lstrip(b"\n").decode("utf-8", "replace")
            start = end + 1 + 4 * size
            if word in wanted:
                row = np.frombuffer(buffer, "<f4", size, end + 1)  # (E,)
                if not np.isfinite(row).all():
                    raise InputError(
                        f"{path}: the vector of word {number}, {word!r}, has values that are not "
                        "finite"
                    )
                yield wanted[word], row
