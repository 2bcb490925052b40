"""Small models with a vocabulary, texts of its words, and the two ways to score them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch

from glassrank.embeddings import Part, Store
from glassrank.index import Index
from glassrank.models import MODELS, EmbeddingTable, Ranker, TokenBatch
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.research.papers.ensemble import Ensemble
from glassrank.settings import from_plain
from glassrank.storage.mapped_arrays import concat_ranges
from glassrank.text import split_words
from glassrank.types import Doc

sys.path.append(str(Path(__file__).parents[1] / "models"))
from model_cases import SMALL

ANIMALS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx"]
WORDS = ["<pad>", "<unk>", *ANIMALS[:-1]]
"""A lynx is in texts, but not in the vocabulary."""
LONGEST = 14
QUERIES = ["ant bee cat dog", "gnu lynx hen ant ibis"]


def small_model(name: str, seed: int = 1) -> Ranker:
    """With larger weights than a fresh model has, so that scores really differ."""
    if "+" in name:
        members = [small_model(one, seed) for seed, one in enumerate(name.split("+"), 1)]
        return Ensemble(members, [(6, LONGEST - number) for number in range(len(members))])
    torch.manual_seed(seed)
    vectors = torch.randn(len(WORDS), 12)
    vectors[0] = 0
    family = MODELS[name]
    table = EmbeddingTable(vectors, torch.rand(len(WORDS)), trained=False)
    model = family(from_plain(family.info.config_type, SMALL[name]), table)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if not parameter_name.startswith("words."):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def small_saved(name: str = "tk", seed: int = 1) -> SavedModel:
    return SavedModel(small_model(name, seed), Usage(6, LONGEST), WORDS)


def some_docs(seed: int, ids: Sequence[str]) -> list[Doc]:
    """One word to more than the model reads; every fifth has a title."""
    chance = Random(seed)

    def text() -> str:
        return " ".join(chance.choices(ANIMALS, k=chance.randrange(1, LONGEST + 6)))

    return [
        Doc(doc_id, text(), "fox cat" if number % 5 == 4 else "")
        for number, doc_id in enumerate(ids)
    ]


def ids_of(part: Part, passage: int) -> list[int]:
    """That are stored of a passage."""
    return part.ids[part.offsets[passage] : part.offsets[passage + 1]].tolist()


def word_ids(words: Sequence[str]) -> list[int]:
    return [WORDS.index(word) if word in WORDS else 1 for word in words]


def batch(words: Sequence[int]) -> TokenBatch:
    ids = torch.tensor([list(words) or [0]])
    return TokenBatch(ids, (ids != 0).float())


def passages(doc: Doc, longest: int = LONGEST) -> list[list[str]]:
    """The words of each: there are no sentences in these texts."""
    title, words = split_words(doc.title), split_words(doc.text)
    if len(title) + len(words) <= longest:
        return [title + words]
    room = longest - len(title)
    return [title + words[start : start + room] for start in range(0, len(words), room)]


@torch.no_grad()
def live_scores(saved: SavedModel, query: str, docs: Sequence[Doc]) -> np.ndarray:
    """The contract's three calls, one passage at a time, nothing padded and nothing stored."""
    model = saved.model
    encoded = model.encode_query(batch(word_ids(query.split())))

    def score(words: Sequence[str]) -> float:
        return model.interact(encoded, model.encode_doc(batch(word_ids(words)))).score.item()

    return np.array([max(map(score, passages(doc, saved.usage.doc_length))) for doc in docs])


@torch.no_grad()
def stored_scores(store: Store, index: Index, saved: SavedModel, query: str) -> dict[str, float]:
    """Of every document of the index, by id."""
    model, snapshot = saved.model, index.snapshot
    encoded = model.encode_query(batch(word_ids(query.split())))
    numbers = np.array([snapshot.find(doc.doc_id) for doc in index.docs()], np.int64)
    scores = {}
    for located in store.locate(snapshot, numbers):
        numbered = concat_ranges(located.first, located.counts)
        doc = store.read_embeddings(located.part, *located.part.passage_rows(numbered))
        same = encoded.rows(torch.zeros(len(numbered), dtype=torch.long))
        found = model.interact(same, doc).score.tolist()
        for place, score in zip(np.repeat(located.which, located.counts), found, strict=True):
            doc_id = snapshot.doc_id(int(numbers[place]))
            scores[doc_id] = max(score, scores.get(doc_id, score))
    return scores


def assert_follows(index: Index, saved: SavedModel, path: Path, **tolerance: float) -> None:
    """Every document has the score that its text has live."""
    docs = list(index.docs())
    store = Store.open(path, saved.model, index.snapshot)
    for query in QUERIES:
        stored = stored_scores(store, index, saved, query)
        assert stored.keys() == {doc.doc_id for doc in docs}
        expected = live_scores(saved, query, docs)
        np.testing.assert_allclose([stored[d.doc_id] for d in docs], expected, **tolerance)
