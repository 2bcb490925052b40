"""Prepare arrays for training: token ids, word vectors, idf, candidates, teacher scores."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.models.hub import find_or_fetch
from glassrank.models.pretrained import local_folder
from glassrank.research.papers.word_vectors import SubwordVectors
from glassrank.research.train import vector_files, vector_training
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.config_files import preparation_settings
from glassrank.research.train.prepared import Prepared, Split, SubwordRows
from glassrank.research.train.teachers import Teacher, average_teachers, load_teacher
from glassrank.research.train.texts import load_tokenizer
from glassrank.research.train.training_texts import TextSplit, TrainingTexts, WordCounts
from glassrank.settings import to_plain
from glassrank.storage.mapped_arrays import Ragged
from glassrank.text.words import UNKNOWN, Vocabulary

Reader = Callable[[Iterable[Sequence[str]], int], Iterator[NDArray[np.int32]]]
"""Turns split texts into token ids, cut to a length."""


def prepare(
    config: TrainConfig,
    texts: TrainingTexts,
    base: Path,
    say: Say = lambda _: None,
    device: str = "cpu",
) -> Prepared:
    """Make the arrays. Paths in the config are relative to `base`; a teacher runs on `device`."""
    words, read = _make_reader(config, texts, base)
    docs = _collect_rows(read(texts.docs, config.doc_length))
    passages = texts.passages
    whole = docs if passages is None else Ragged(docs.offsets[passages.offsets], docs.values)
    say(
        f"{len(whole):,} documents{'' if passages is None else f' in {len(docs):,} passages'}, "
        f"{len(texts.train.queries):,} training queries, {len(words):,} words"
    )
    vectors, subwords = np.zeros((0, 0), np.float32), None
    idf = np.zeros(0, np.float32)
    if isinstance(words, Vocabulary):
        say(f"vectors from {config.vectors.source}")
        vectors, subwords = _make_vectors(config, words, base, texts.docs, say)
        idf = _compute_idf(whole, words, texts.counts)
    teacher = None
    if config.candidates.teacher is not None or config.candidates.teachers:
        say("teacher scores")
        teacher = _load_teacher(config, base, texts.docs, device, say)

    def make_split(split: TextSplit) -> Split:
        queries = _collect_rows(read(split.queries, config.query_length))
        scores = split.teacher if teacher is None else teacher(split)
        return replace(split.with_ids(queries), teacher=scores, passages=passages)

    return Prepared(
        words=list(words.words) if isinstance(words, Vocabulary) else words,
        vectors=vectors * np.float32(config.vectors.scale),
        idf=idf,
        docs=docs,
        train=make_split(texts.train),
        dev=make_split(texts.dev),
        test=None if texts.test is None else make_split(texts.test),
        description={
            "config": to_plain(config),
            "preparation": preparation_settings(config),
            "docs": len(whole),
        },
        subwords=subwords,
        ids=texts.ids,
    )


def _make_reader(
    config: TrainConfig, texts: TrainingTexts, base: Path
) -> tuple[list[str] | Vocabulary, Reader]:
    """The vocabulary of a pretrained model, or of the texts, and what turns texts into its ids."""
    known = load_tokenizer(config, base)
    if known is not None:
        return known.vocabulary, known.read
    counted = texts.docs if texts.counts is None else [texts.counts.words]
    wanted = config.vectors
    vocabulary = Vocabulary.build(
        chain(counted, texts.train.queries),
        wanted.min_count,
        wanted.most_words,
        wanted.unknown_buckets,
    )
    return vocabulary, lambda texts, longest: (vocabulary.ids(words[:longest]) for words in texts)


def _load_teacher(
    config: TrainConfig, base: Path, docs: Iterable[Sequence[str]], device: str, say: Say
) -> Teacher:
    def named(name: str) -> Teacher:
        return load_teacher(find_or_fetch(local_folder(name, base), name), docs, device, say)

    if config.candidates.teacher is not None:
        return named(config.candidates.teacher)
    weighted = [(named(n), weight) for n, weight in config.candidates.teachers.items()]
    return average_teachers(weighted)


def _collect_rows(rows: Iterable[NDArray[np.int32]]) -> Ragged:
    """Collect rows in four bytes for each value."""
    values, ends = array("i"), array("q", [0])
    for row in rows:
        values.frombytes(np.ascontiguousarray(row, np.int32).tobytes())
        ends.append(len(values))
    return Ragged(np.frombuffer(ends, np.int64), np.frombuffer(values, np.int32))


def _compute_idf(
    docs: Ragged, vocabulary: Vocabulary, counts: WordCounts | None
) -> NDArray[np.float32]:
    """ln(N / df), as in the TK authors' code."""
    frequency = np.zeros(vocabulary.rows, np.int64)
    for number in range(len(docs)):
        frequency[np.unique(docs[number])] += 1
    if counts is not None:
        for number, word in enumerate(vocabulary.words):
            frequency[number] = counts.docs.get(word, frequency[number])
    return np.log(max(len(docs), 1) / np.maximum(frequency, 1)).astype(np.float32)


def _make_vectors(
    config: TrainConfig,
    vocabulary: Vocabulary,
    base: Path,
    docs: Iterable[Sequence[str]],
    say: Say = lambda _: None,
) -> tuple[NDArray[np.float32], SubwordRows | None]:
    wanted = config.vectors
    if wanted.source in ("file", "sentence_transformer") and wanted.path is None:
        raise InputError(f"vectors.path is missing; set it to the {wanted.source}")
    options = {"window": wanted.window, "seed": config.seed}
    if wanted.source == "random":
        word_vectors = vector_training.random_vectors(vocabulary, wanted.size, seed=config.seed)
    elif wanted.source == "file":
        path = base / str(wanted.path)
        word_vectors = vector_files.read_vectors(path, vocabulary, seed=config.seed)
    elif wanted.source == "sentence_transformer":
        encoder = vector_training.load_sentence_transformer(local_folder(str(wanted.path), base))
        encode = partial(encoder.encode, batch_size=128, show_progress_bar=False)
        word_vectors = vector_training.from_encoder(
            vocabulary, encode, wanted.size, config.seed, say
        )
    elif wanted.source == "word2vec":
        word_vectors = vector_training.train_word2vec(docs, vocabulary, wanted.size, **options)
    else:
        if wanted.path is not None:
            grams = vector_files.read_subwords(base / wanted.path)
        else:
            options["buckets"] = wanted.buckets
            grams = vector_training.train_fasttext(docs, vocabulary, wanted.size, **options)
        if wanted.subwords:
            return make_subword_arrays(grams, vocabulary, config.seed)
        word_vectors = grams.word_vectors(vocabulary, config.seed)
    matrix, buckets = word_vectors.matrix, vocabulary.buckets
    known = matrix[UNKNOWN + 1 :]
    rng = np.random.default_rng([config.seed, buckets])
    drawn = rng.standard_normal((buckets, matrix.shape[1]), np.float32)
    return np.concatenate([matrix, drawn * known.std() + known.mean()]), None


def make_subword_arrays(
    vectors: SubwordVectors, vocabulary: Vocabulary, seed: int
) -> tuple[NDArray[np.float32], SubwordRows]:
    """A table (V + buckets, E), and each word's rows: its own and its n-grams'."""
    known = {word: number for number, word in enumerate(vectors.words)}
    ngrams = vectors.table[len(known) :]  # (buckets, E)
    table = np.zeros((len(vocabulary), vectors.table.shape[1]), np.float32)  # (V, E)
    rows: list[NDArray[np.int64]] = [np.empty(0, np.int64), np.array([UNKNOWN])]
    drawn = [UNKNOWN]
    for number, word in enumerate(vocabulary.words[UNKNOWN + 1 :], UNKNOWN + 1):
        word_rows = vectors.rows(word)
        shared = word_rows[word_rows >= len(known)] - len(known) + len(vocabulary)
        if word in known:
            table[number] = vectors.table[known[word]]
        elif not len(shared):
            drawn.append(number)
        word_row = [number] if word in known or not len(shared) else []
        rows.append(np.array([*word_row, *shared], np.int64))
    rng = np.random.default_rng(seed)
    shape = len(drawn), table.shape[1]
    table[drawn] = rng.normal(vectors.table.mean(), vectors.table.std(), shape)
    layout = np.array([len(ngrams), vectors.shortest, vectors.longest])
    return np.concatenate([table, ngrams]), SubwordRows(Ragged.from_rows(rows, np.int64), layout)
