"""The neural models' words against the library whose rules they follow."""

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from glassrank.text.words import split_words

with warnings.catch_warnings():  # an invalid escape in a docstring of it
    warnings.simplefilter("ignore")
    blingfire: Any = pytest.importorskip("blingfire", exc_type=(ImportError, OSError))

ALPHABET = "aabcdelnostuvAGLNST0159.'.'’`+,#&_ é²§中[]‐\u200b-/\"\u2028İ"  # noqa: RUF001


def theirs(text: str) -> list[str]:
    words: Callable[[str], str] = blingfire.text_to_words
    return words(text).lower().split()


def test_random_texts() -> None:
    chance = random.Random(1)
    for _ in range(20_000):
        text = "".join(chance.choices(ALPHABET, k=chance.randint(1, 12)))
        assert split_words(text) == theirs(text), text


def test_every_character() -> None:
    for code in range(1, 0x3000):
        for text in (f"a{chr(code)}b", f"a.{chr(code)}.a. z", f"cannot{chr(code)}z"):
            assert split_words(text) == theirs(text), text
