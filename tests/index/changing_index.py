"""An index whose every state is known: the generation alone decides which change comes next."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType

from glassrank.index import Index
from glassrank.types import Doc

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]

KINDS = ["add", "replace", "delete", "merge", "rebuild"]


def some_docs(seed: int, ids: list[str]) -> list[Doc]:
    chance = Random(seed)
    return [Doc(i, " ".join(chance.choices(WORDS, k=chance.randrange(1, 40)))) for i in ids]


FIRST = some_docs(0, [f"first-{i}" for i in range(20)])


def next_change(generation: int, ids: list[str]) -> tuple[str, list[Doc], list[str]]:
    """What is done, with which documents, to which ids."""
    chance = Random(generation)
    kind = KINDS[generation % len(KINDS)]
    some = chance.sample(ids, min(4, len(ids) - 1))
    new = [f"new-{generation}-{i}" for i in range(chance.randrange(1, 9))]
    if kind == "add":
        return kind, some_docs(generation, new), []
    if kind == "replace":
        return kind, some_docs(generation, [*new, *some]), some
    if kind == "rebuild":
        return kind, some_docs(generation, new), ids
    return kind, [], some if kind == "delete" else []


@cache
def docs_at(generation: int) -> Mapping[str, Doc]:
    """What an index holds that began with FIRST."""
    if generation == 1:
        return MappingProxyType({doc.doc_id: doc for doc in FIRST})
    before = docs_at(generation - 1)
    _, docs, gone = next_change(generation - 1, sorted(before))
    kept = {doc_id: doc for doc_id, doc in before.items() if doc_id not in gone}
    return MappingProxyType(kept | {doc.doc_id: doc for doc in docs})


def change(folder: Path) -> None:
    index = Index(folder)
    kind, docs, gone = next_change(index.generation, sorted(doc.doc_id for doc in index.docs()))
    if kind == "rebuild":
        Index.build(docs, folder, overwrite=True)
    elif kind == "delete":
        index.delete(gone)
    elif kind == "merge":
        index.merge()
    else:
        index.add(docs, replace=kind == "replace")


def assert_whole(index: Index) -> None:
    """It is as some change left it, not in between."""
    assert {doc.doc_id: doc for doc in index.docs()} == docs_at(index.generation)
    assert len(index) == len(docs_at(index.generation))
    assert len(index.search("ant bee cat dog elk fox gnu hen", 1000)) == len(index)
