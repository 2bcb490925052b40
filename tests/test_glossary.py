"""One word for one thing: docs/glossary.md decides the names; the words it replaced are gone."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
SOURCES = {path: path.read_text("utf-8") for path in sorted((ROOT / "glassrank").rglob("*.py"))}

# Names that stood for several things, or for what the field has another word for.
BANNED = frozenset(
    "ASKERS ByCompiledCode ByTorch Computing Placed Turn Way Words WordTable affordable "
    "distance_kinds for_many in_the_making is_in_vain _keep_what_is_loaded lacks look_at mixes "
    "often one_row one_text piece pieces placed placed_by practise reads_pieces readouts served "
    "telling threads_share_passes told turned waves whole_number _whole_numbers Planner due".split()
)
WEIGHTS = {"pieces"}
"""Names of weights in model files, which stay: `embeddings.pieces`."""
BANNED_MODULES = frozenset(
    "by_torch guard given live others planner refusals row_integers served served_families "
    "smaller waves where".split()
)
BANNED_SENTENCES = (
    "whole number",
    "unfolds to",
    "which is where time ended",
    "What is answered when a request is not",
    "What stands before every address",
    "how the score leans on",
    "A smaller model out of a trained one",
    "each with how often it occurs",
)


def find_banned(source: str) -> set[str]:
    """Banned names of variables, parameters, attributes, functions and classes."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {getattr(node, name, None) for node in nodes for name in ("id", "arg", "name")}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return (names | attributes - WEIGHTS) & BANNED


def test_every_term_has_a_meaning_and_a_name() -> None:
    rows = [line.strip("| ").split(" | ") for line in GLOSSARY.splitlines() if line[:1] == "|"]
    terms = [row[0] for row in rows if row[0] != "term" and not row[0].startswith("---")]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)
    assert all(len(row) == 3 and all(row) for row in rows if not row[0].startswith("---"))


def test_names_that_the_glossary_replaced_are_gone() -> None:
    used = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, source in SOURCES.items()
        for name in find_banned(source)
    }
    assert sorted(used) == []


def test_modules_have_the_glossary_s_names() -> None:
    assert {path.stem for path in SOURCES} & BANNED_MODULES == set()


def test_sentences_that_made_readers_guess_are_gone() -> None:
    written = {
        f"{path.relative_to(ROOT)}: {sentence}"
        for path, source in SOURCES.items()
        for sentence in BANNED_SENTENCES
        if sentence.lower() in re.sub(r"[\"\s]+", " ", source).lower()
    }
    assert sorted(written) == []
