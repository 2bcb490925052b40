"""Texts and vector files made to hurt: linear time, bounded memory, one sentence."""

import gzip
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from reliability import Recorder

from glassrank.errors import InputError
from glassrank.research.train.vector_files import read_subwords, read_vectors
from glassrank.text import EnglishAnalyzer, Vocabulary, split_words
from glassrank.text.analysis import (
    _MAX_PART_CHARS,
    _cached_words_of,
    _words_of,
    split_unicode_words,
)
from glassrank.text.words import MAX_TEXT_CHARS, WordEncoder

VOCABULARY = Vocabulary(["cat", "mat"])
LYING = "vector files whose numbers lie", "refused before anything is allocated"
N = 150_000
TEXTS = {
    "one token": "a" * N,
    "underscores": "_" * N,
    "underscores and letters": "_a" * (N // 2),
    "points": "a." * (N // 2),
    "digits": "1," * (N // 2),
    "marks": "a" + "\u0301" * N,
    "marks alone": "\u0301" * N,
    "joiners": "\u200d" * N,
    "emoji": "\U0001f469\u200d" * (N // 2),
    "flags": "\U0001f1e6" * N,
    "Han": "\u4e00" * N,
    "Thai": "\u0e01" * N,
    "Katakana": "\u30a2_" * (N // 2),
    "Hebrew quotes": "\u05d0'\"" * (N // 3),
    "keycaps": "#\ufe0fé" * (N // 3),
    "narrow spaces": "a\u202f" * (N // 2),
    "narrow spaces and one token": "\u202f" + "a" * N,
    "NUL": "\0" * N,
    "half characters": "\ud800" * N,
}


@pytest.mark.parametrize("split", [EnglishAnalyzer(), split_words], ids=["english", "words"])
@pytest.mark.parametrize("case", TEXTS)
def test_splitting_takes_linear_time(split: object, case: str, reliability: Recorder) -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        split(text)  # type: ignore[operator]
        return time.process_time() - began

    took = seconds(TEXTS[case])
    # On a slow machine, in proportion to the length: eight times the text, far from 64 times.
    assert took < 1.5 or took < 20 * seconds(TEXTS[case][: N // 8])
    reliability("Readers", "texts made to keep an analyzer busy", "split in linear time")


CHILD = """
import resource
from glassrank.text import EnglishAnalyzer
analyzer = EnglishAnalyzer()
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
assert analyzer("a" * 10_000_000)
assert analyzer("_é" * 1_000_000)
"""


@pytest.mark.long
def test_a_token_of_ten_megabytes_fits_in_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("letters", ["a", "é", "a1", "x_y", "ab.c", "\u30a2"])
@pytest.mark.parametrize("length", [47, 48, 49, 254, 255, 256, 511, 3000, 10_199])
def test_long_words_are_cut_as_before(letters: str, length: int) -> None:
    """Up to ten thousand characters the rules see the word whole."""
    text = (letters * length)[:length]
    assert split_unicode_words(text) == _words_of(text)
    joined = f"{text[:3000]} {text[:3000]}\u202f{text[:3000]}"
    assert split_unicode_words(joined) == _words_of(joined)


def test_a_plain_word_of_any_length_is_cut_every_255() -> None:
    assert [len(word) for word in split_unicode_words("a" * 25_501)] == [255] * 100 + [1]


def test_only_short_pieces_are_remembered() -> None:
    before = _cached_words_of.cache_info().currsize
    split_unicode_words(" ".join(f"é{'x' * _MAX_PART_CHARS}{n}" for n in range(50)))
    assert _cached_words_of.cache_info().currsize == before
    analyzer = EnglishAnalyzer()
    analyzer("y" * 200)
    assert analyzer._cached_term.cache_info().currsize == 0


def test_a_model_splits_no_more_than_it_can_read() -> None:
    text = "cat mat " * (MAX_TEXT_CHARS // 4)
    (found,) = WordEncoder(VOCABULARY).encode([text], 4)
    assert found.ids.tolist() == [2, 3, 2, 3]
    assert found.cut_words == pytest.approx(len(text) / 4 - 4, abs=2)


def fasttext(known: tuple[bytes, ...] = (b"cat", b"mat"), **lies: int) -> bytes:
    """A model as fastText writes it, up to the input matrix, with two buckets of three values."""
    rows = np.arange((len(known) + 2) * 3, dtype="<f4") + 1
    get = lies.get
    return b"".join(
        [
            struct.pack("<ii", 793712314, get("version", 12)),
            struct.pack("<6i", get("size", 3), 5, 5, 1, 5, 1),
            struct.pack("<6id", 2, 1, get("buckets", 2), 3, get("longest", 6), 100, 1e-4),
            struct.pack("<iii", len(known), get("words", len(known)), get("labels", 0)),
            struct.pack("<qq", 100, get("pruned", -1)),
            *(word + b"\0" + struct.pack("<qb", 7, 0) for word in known),
            struct.pack("<?", bool(get("quantized", 0))),
            struct.pack("<qq", get("rows", len(known) + 2), get("columns", 3)),
            rows.tobytes(),
        ]
    )


@pytest.mark.parametrize("name", ["m.bin", "m.bin.gz"])
def test_fasttext_is_read(tmp_path: Path, name: str) -> None:
    content = fasttext((b"cat", b"mat", b"x" * 9000, "naïve".encode(), b"\xff"))
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    found = read_subwords(tmp_path / name)
    assert found.words == ("cat", "mat", "x" * 9000, "naïve", "\\xff")
    assert found.table.tolist() == (np.arange(21).reshape(7, 3) + 1).tolist()
    assert (found.shortest, found.longest, found.buckets) == (3, 6, 2)


_WORDS_BEGIN = 92
LIES = {
    "a word without an end": fasttext()[:_WORDS_BEGIN] + b"x" * 100_000,
    "the end in a word": fasttext()[: _WORDS_BEGIN + 2],
    "more words than bytes": fasttext(words=2**31 - 1),
    "one word more": fasttext(words=3),
    "no words": fasttext((), words=0),
    "fewer than none": fasttext(words=-1),
    "no values": fasttext(size=0),
    "values without end": fasttext(size=2**31 - 1, columns=2**31 - 1),
    "rows without end": fasttext(rows=2**62),
    "rows and buckets without end": fasttext(buckets=2**31 - 1, rows=2**31 + 1),
    "rows below none": fasttext(rows=-1),
    "rows of others": fasttext(rows=5),
    "columns of others": fasttext(columns=4),
    "buckets of others": fasttext(buckets=3),
    "buckets below none": fasttext(buckets=-1, rows=1),
    "n-grams below none": fasttext(longest=-1),
    "n-grams without end": fasttext(longest=2**31 - 1),
    "another version": fasttext(version=99),
    "a classifier": fasttext(labels=1),
    "pruned": fasttext(pruned=5),
    "quantized": fasttext(quantized=1),
    "no matrix": fasttext()[:-48],
    "cut off": fasttext()[:-1],
    "not finite": fasttext()[:-4] + b"\0\0\xc0\x7f",
    "magic alone": fasttext()[:4],
}


@pytest.mark.parametrize("case", LIES)
def test_a_malformed_fasttext_file_is_refused_at_once(
    tmp_path: Path, case: str, reliability: Recorder
) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(LIES[case])
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"m\.bin") as error:
        read_vectors(path, VOCABULARY)
    assert "\n" not in str(error.value)
    assert time.process_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
    reliability("Readers", *LYING)


VECTORS = {
    "many digits": ("v.txt", b"9" * 5000 + b" 3\ncat 1 2 3\n"),
    "digits of another script": ("v.txt", "٣ ٣\ncat 1 2 3\n".encode()),
    "a size beyond numbers": ("v.txt", b"1 99999999999999999999999\ncat 1 2 3\n"),
    "spaces": ("v.txt", b"cat" + b" " * 300_000 + b"1\n"),
    "values without end": ("v.txt", b"cat" + b" 1" * 300_000),
    "binary of many digits": ("v.bin", b"9" * 5000 + b" 3\ncat "),
    "binary without a line end": ("v.bin", b"1" * 5_000_000),
    "binary without a space": ("v.bin", b"1000000 3\n" + b"a" * 5_000_000),
    "binary of endless values": ("v.bin", b"1 999999999999\ncat " + b"\0" * 5_000_000),
    "binary of no words": ("v.bin", b"0 3\n"),
    "binary that promises": ("v.bin", b"999999999999 3\ncat " + b"\0" * 12),
}


@pytest.mark.parametrize("case", VECTORS)
def test_malformed_vectors_are_refused_at_once(
    tmp_path: Path, case: str, reliability: Recorder
) -> None:
    name, content = VECTORS[case]
    (tmp_path / name).write_bytes(content)
    began = time.process_time()
    with pytest.raises(InputError) as error:
        read_vectors(tmp_path / name, VOCABULARY)
    assert len(str(error.value)) < 2200
    assert time.process_time() - began < 2
    reliability("Readers", *LYING)


def test_a_bomb_of_vectors_is_refused(tmp_path: Path) -> None:
    for name in ("v.bin.gz", "v.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"1 1\n" + b"\0" * (1 << 20)) * 2048)
        with pytest.raises(InputError):
            read_vectors(tmp_path / name, VOCABULARY)
