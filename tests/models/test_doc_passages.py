"""Where texts are divided: nothing is lost, nothing is too long, sentences stay whole."""

import itertools
import re
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glassrank.errors import InputError
from glassrank.models.doc_reader import PassageReader, find_sentence_ends, split_passages
from glassrank.models.io.model_folder import Passages
from glassrank.text import Vocabulary
from glassrank.text.subwords import WordPieceEncoder
from glassrank.text.words import TextEncoder, WordEncoder
from glassrank.types import Doc

ROOM = np.array([10])


def words(texts: list[str]) -> np.ndarray:
    return np.array([[len(text.split())] for text in texts])


def seconds(work: Callable[..., object], *given: object) -> float:
    began = time.process_time()
    work(*given)
    return time.process_time() - began


def passages(text: str, room: int = 10, overlap: int = 0) -> list[str]:
    return [text[p.start : p.stop] for p in split_passages(text, words, np.array([room]), overlap)]


@given(text=st.text(alphabet="ab.!? \n\N{IDEOGRAPHIC FULL STOP}", max_size=400))
def test_nothing_is_lost_and_nothing_is_too_long(text: str) -> None:
    found = passages(text)
    assert "".join(found) == text
    assert all(len(passage.split()) <= 10 for passage in found)


@given(text=st.text(alphabet="ab. ", max_size=400), overlap=st.integers(0, 12))
def test_passages_that_overlap_go_on_and_end_where_the_text_does(text: str, overlap: int) -> None:
    found = list(split_passages(text, words, ROOM, overlap))
    if not text:
        assert found == []
        return
    assert (found[0].start, found[-1].stop) == (0, len(text))
    for before, after in itertools.pairwise(found):
        assert before.start < after.start <= before.stop < after.stop
        assert len(text[after.start : before.stop].split()) <= overlap


def test_passages_end_where_sentences_do() -> None:
    text = "One two three four. Five six seven! Eight nine ten eleven? Twelve."
    assert passages(text) == [
        "One two three four. Five six seven! ",
        "Eight nine ten eleven? Twelve.",
    ]
    assert passages(text, overlap=3)[1] == "Five six seven! Eight nine ten eleven? Twelve."


def test_a_sentence_that_is_too_long_is_divided_between_words() -> None:
    text = " ".join(f"w{i}" for i in range(25)) + ". Then this."
    assert [len(passage.split()) for passage in passages(text)] == [10, 10, 7]


def test_paragraphs_end_sentences_and_numbers_do_not() -> None:
    text = "A title\n\nIt has 3.5 m. of e.g. cable. Bien\N{IDEOGRAPHIC FULL STOP}more"
    ends = [0, *find_sentence_ends(text)]
    parts = [text[a:b].strip() for a, b in itertools.pairwise(ends)]
    assert parts[:2] == ["A title", "It has 3.5 m. of e.g. cable."]
    assert parts[-1] == "more"


def test_the_first_passage_is_found_without_reading_the_rest() -> None:
    read: list[str] = []

    def sizes(texts: list[str]) -> np.ndarray:
        read.extend(texts)
        return words(texts)

    text = "One two three. " * 100_000
    assert next(split_passages(text, sizes, ROOM, 0)).stop == 45
    assert sum(map(len, read)) < 10_000
    assert seconds(next, find_sentence_ends(text)) * 50 < seconds(list, find_sentence_ends(text))


@pytest.mark.parametrize(
    "text",
    ["." * 200_000, ". " * 100_000, "\n" * 200_000, "a" * 200_000, ".) " * 70_000, " " * 200_000],
)
def test_time_is_linear(text: str) -> None:
    assert seconds(list, find_sentence_ends(text)) < 2


def test_what_has_no_ends_is_passed_over_quickly() -> None:
    text = "one two three " * 100_000
    looked_for = [seconds(re.findall, "[.!?]", text) for _ in range(3)]
    assert seconds(list, find_sentence_ends(text)) < 5 * max(looked_for)


@pytest.mark.parametrize(
    "wrong", [{"overlap": -1}, {"most": 0}, {"best": 0}, {"most": 2, "best": 3}]
)
def test_settings_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="passages: expected") as raised:
        Passages(**wrong)
    assert "\n" not in str(raised.value)


ENCODERS = {
    "words": WordEncoder(Vocabulary(["a", "bb", "a.b", "a.b."])),
    "without function words": WordEncoder(Vocabulary(["bb"]), remove_stop_words=True),
    "pieces": WordPieceEncoder(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "bb", "##b", ".", "x"]),
}


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("most_words", [None, 2])
@example(
    text="aaaaaaaaaa " * 3 + "a.b. aaaaaaaaaa", words=""
)  # begun, it would end in `a.b` and `.`
@example(text="a" * 50, words="bb ")
@given(text=st.text(alphabet="ab.' \n", max_size=120), words=st.sampled_from(["", "a the ", "bb "]))
def test_a_text_that_is_begun_has_the_ids_of_the_whole(
    encoder: TextEncoder, most_words: int | None, text: str, words: str
) -> None:
    text = text[:60] + words * 20 + text[60:]
    reader = PassageReader(encoder, 4, most_words, Passages(most=1))
    (found,) = reader.read([Doc("d", text)])
    (whole,) = encoder.encode([text[:400]], 4, most_words)
    assert found.passages[0].ids.tolist() == whole.ids.tolist()
    assert found.cut == (whole.cut > 0 or len(text) > 400)
