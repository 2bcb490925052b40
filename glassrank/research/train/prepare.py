"""Texts and candidates to arrays: words get numbers and vectors, pairs get teacher scores."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.models.hub import find_or_fetch
from glassrank.models.pretrained import local_folder
from glassrank.research.train.config import Say, TrainConfig
from glassrank.research.train.config_files import preparation
from glassrank.research.train.gather import Gathered, GatheredSplit, WordCounts
from glassrank.research.train.prepared import Prepared, Split, Subwords
from glassrank.research.train.teachers import MeanTeacher, Teacher, find_teacher
from glassrank.research.train.texts import trained_encoder
from glassrank.settings import to_plain
from glassrank.storage.ragged_arrays import Ragged
from glassrank.text.encoder import UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from glassrank.text.word_vectors import SubwordVectors


Reader = Callable[[Iterable[Sequence[str]], int], Iterator[NDArray[np.int32]]]
"""From split texts to ids, so many of each at most."""
_AT_ONCE = 1024


def prepare(
    config: TrainConfig,
    gathered: Gathered,
    base: Path,
    say: Say = lambda _: None,
    device: str = "cpu",
) -> Prepared:
    """Paths in the config are relative to `base`. `device` is where a teacher runs."""
    words, read = _trained_reader(config, base) or _new_vocabulary(config, gathered)
    docs = _rows(read(gathered.docs, config.doc_length))
    passages = gathered.passages
    whole = docs if passages is None else Ragged(docs.offsets[passages.offsets], docs.values)
    say(
        f"{len(whole):,} documents{'' if passages is None else f' in {len(docs):,} passages'}, "
        f"{len(gathered.train.queries):,} training queries, {len(words):,} words"
    )
    vectors, subwords = np.zeros((0, 0), np.float32), None
    idf = np.zeros(0, np.float32)
    if isinstance(words, Vocabulary):
        say(f"vectors from {config.vectors.source}")
        vectors, subwords = _vectors(config, words, base, gathered.docs)
        idf = _idf(whole, words, gathered.counts)
    teacher = None
    if config.candidates.teacher is not None or config.candidates.teachers:
        say("teacher scores")
        teacher = _teacher(config, base, gathered.docs, device)
    splits = {
        name: replace(_split(split, config, read, teacher), passages=passages)
        for name, split in gathered.splits().items()
    }
    return Prepared(
        words=list(words.words) if isinstance(words, Vocabulary) else words,
        vectors=vectors * np.float32(config.vectors.scale),
        idf=idf,
        docs=docs,
        train=splits["train"],
        dev=splits["dev"],
        test=splits.get("test"),
        description={
            "config": to_plain(config),
            "preparation": preparation(config),
            "docs": len(whole),
        },
        subwords=subwords,
        ids=gathered.ids,
    )


def _new_vocabulary(config: TrainConfig, gathered: Gathered) -> tuple[Vocabulary, Reader]:
    counted = gathered.docs if gathered.counts is None else [gathered.counts.words]
    texts = chain(counted, gathered.train.queries)
    wanted = config.vectors
    vocabulary = Vocabulary.build(
        texts, wanted.min_count, wanted.most_words, wanted.unknown_buckets
    )

    def read(texts: Iterable[Sequence[str]], longest: int) -> Iterator[NDArray[np.int32]]:
        return (vocabulary.ids(words[:longest]) for words in texts)

    return vocabulary, read


def _trained_reader(config: TrainConfig, base: Path) -> tuple[list[str], Reader] | None:
    """Words or pieces that a model knows already; None where the texts themselves say."""
    known = trained_encoder(config, base)
    if known is None:
        return None
    vocabulary, encoder = known

    def read(texts: Iterable[Sequence[str]], longest: int) -> Iterator[NDArray[np.int32]]:
        waiting = iter(texts)
        while some := [" ".join(words) for words in islice(waiting, _AT_ONCE)]:
            yield from (text.ids for text in encoder.encode(some, longest))

    return vocabulary, read


def _teacher(
    config: TrainConfig, base: Path, docs: Sequence[Sequence[str]], device: str
) -> Teacher:
    """The one that is named, or the mean of several."""

    def named(name: str) -> Teacher:
        return find_teacher(find_or_fetch(local_folder(name, base), name), docs, device)

    if config.candidates.teacher is not None:
        return named(config.candidates.teacher)
    return MeanTeacher([(named(n), weight) for n, weight in config.candidates.teachers.items()])


def _split(
    split: GatheredSplit, config: TrainConfig, read: Reader, teacher: Teacher | None
) -> Split:
    return Split(
        queries=_rows(read(split.queries, config.query_length)),
        collection=split.collection,
        docs=split.docs,
        grades=split.grades,
        ranks=split.ranks,
        first_stage=split.scores,
        teacher=split.teacher if teacher is None else teacher.scores(split),
        triples=split.triples,
        folds=split.folds,
    )


def _rows(rows: Iterable[NDArray[np.int32]]) -> Ragged:
    """As they come: four bytes for each value, none for each row that has passed."""
    values, ends = array("i"), array("q", [0])
    for row in rows:
        values.frombytes(np.ascontiguousarray(row, np.int32).tobytes())
        ends.append(len(values))
    return Ragged(np.frombuffer(ends, np.int64), np.frombuffer(values, np.int32))


def _idf(docs: Ragged, vocabulary: Vocabulary, counts: WordCounts | None) -> NDArray[np.float32]:
    """ln(N / df), natural, as the TK authors' models take it."""
    frequency = np.zeros(vocabulary.rows, np.int64)
    for number in range(len(docs)):
        frequency[np.unique(docs[number])] += 1
    if counts is not None:
        for number, word in enumerate(vocabulary.words):
            frequency[number] = counts.docs.get(word, frequency[number])
    return np.log(max(len(docs), 1) / np.maximum(frequency, 1)).astype(np.float32)


def _vectors(
    config: TrainConfig, vocabulary: Vocabulary, base: Path, docs: Sequence[Sequence[str]]
) -> tuple[NDArray[np.float32], Subwords | None]:
    from glassrank.text import vector_files, vector_training

    wanted = config.vectors
    if wanted.source in ("file", "sentence_transformer") and wanted.path is None:
        raise InputError(f"vectors.path is missing: where is the {wanted.source}?")
    if wanted.source == "random":
        word_vectors = vector_training.random_vectors(vocabulary, wanted.size, seed=config.seed)
    elif wanted.source == "file":
        word_vectors = vector_files.read_vectors(
            base / str(wanted.path), vocabulary, seed=config.seed
        )
    elif wanted.source == "sentence_transformer":
        word_vectors = vector_training.from_sentence_transformer(
            vocabulary,
            str(local_folder(str(wanted.path), base)),
            size=wanted.size,
            seed=config.seed,
        )
    elif wanted.source == "word2vec":
        word_vectors = vector_training.train_word2vec(
            docs, vocabulary, wanted.size, window=wanted.window, seed=config.seed
        )
    else:
        grams = (
            vector_training.train_fasttext(
                docs,
                vocabulary,
                wanted.size,
                window=wanted.window,
                buckets=wanted.buckets,
                seed=config.seed,
            )
            if wanted.path is None
            else vector_files.read_subwords(base / wanted.path)
        )
        if wanted.subwords:
            return subword_arrays(grams, vocabulary, config.seed)
        word_vectors = grams.word_vectors(vocabulary, config.seed)
    return _with_buckets(word_vectors.matrix, vocabulary, config.seed), None


def _with_buckets(
    matrix: NDArray[np.float32], vocabulary: Vocabulary, seed: int
) -> NDArray[np.float32]:
    """Rows for hashed unknown words, drawn as that of the unknown word is."""
    shape = vocabulary.buckets, matrix.shape[1]
    values = np.random.default_rng([seed, vocabulary.buckets]).standard_normal(shape, np.float32)
    known = matrix[UNKNOWN + 1 :]
    return np.concatenate([matrix, values * known.std() + known.mean()])


def subword_arrays(
    vectors: "SubwordVectors", vocabulary: Vocabulary, seed: int
) -> tuple[NDArray[np.float32], Subwords]:
    """A table (V + buckets, E) and each word's rows: its own, whose number is its id, and those of
    its n-grams. A word without either is drawn, as the unknown word is."""
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
    return np.concatenate([table, ngrams]), Subwords(Ragged.from_rows(rows, np.int64), layout)
