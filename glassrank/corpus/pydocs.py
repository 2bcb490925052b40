"""The demo corpus: the documentation that comes with the running Python, with no download.

It has three sources: the language reference behind `help("with")`, the docstrings of the standard
library (`pysources.py`), and those of the modules written in C. What no user would look for is left
out: private names, tests, and modules that Python itself has given up.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from glassrank.corpus.pysources import is_useful, library_docs, shorten, without_self
from glassrank.types import Doc

SAMPLE_QUERIES = (
    "how do I read a csv file?",
    "run a command and capture its output",
    "sort a list in place",
    "compare two files line by line",
    "copy a whole directory tree",
    "run a function in a separate thread",
)

PYTHON_QUESTIONS = Path(__file__).parent / "python-questions"
"""Judged questions about this corpus: `queries.tsv` and `qrels.txt`."""

CORPUS = 2
"""Counts up whenever other documents are chosen, so that no index of the old ones is taken."""

_PRIVATE = re.compile(r"(^|\.)(_|test(_|\.|$))")

# Public modules whose functions are in C, so that there is no source to parse. All are small, and
# importing them does nothing else.
_COMPILED_MODULES = (
    *("builtins", "array", "atexit", "binascii", "bisect", "bz2", "cmath", "collections"),
    *("collections.abc", "contextvars", "csv", "datetime", "decimal", "functools", "gc"),
    *("getpass", "hashlib"),
    *("heapq", "io", "itertools", "lzma", "marshal", "math", "mmap", "operator", "os"),
    *("os.path", "pickle", "random", "re", "select", "signal", "socket", "sqlite3", "ssl"),
    *("statistics", "string", "struct", "sys", "threading", "time", "types", "unicodedata"),
    *("weakref", "zlib", "zoneinfo"),
)

_PASSAGE = 1500  # characters: long topics are cut into passages of about this size
_HEADING = re.compile(r"^(\S.*)\n([*=\-~^])\2{2,}\n", re.MULTILINE)


def python_docs() -> Iterator[Doc]:
    """5,400 to 6,200 documents in a fixed order: `topic:with`, `str.split`, `json.loads`, …"""
    seen: set[str] = set()
    for doc in chain(_topics(), filter(_is_public, chain(library_docs(), _compiled()))):
        # The first counts: a function may have one definition for each system, and what is
        # written in C often has a version in Python, whose source we can name.
        if doc.doc_id not in seen:
            seen.add(doc.doc_id)
            yield doc


def _is_public(doc: Doc) -> bool:
    """Special methods are private, too: the language reference says what they are for.

    >>> [_is_public(Doc(name, "")) for name in ("os._exit", "ftplib.test", "doctest.testmod")]
    [False, False, True]
    """
    return _PRIVATE.search(doc.doc_id) is None


def _topics() -> Iterator[Doc]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave it out
        return
    seen: set[str] = set()
    passages: dict[str, list[tuple[str, str]]] = {}
    # Long topics repeat short ones (`compound` holds `with`), so the short ones go first.
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):
        passages[name] = []
        for title, text in _passages(topics[name]):
            if text not in seen:
                seen.add(text)
                passages[name].append((title, text))
    for name in sorted(passages):
        for number, (title, text) in enumerate(passages[name], 1):
            doc_id = f"topic:{name}" + (f"#{number}" if number > 1 else "")
            yield Doc(doc_id, text, title, "language reference")


def _passages(topic: str) -> Iterator[tuple[str, str]]:
    """(title, text) of each part of a topic: its sections, and parts of those that are long."""
    pieces = _HEADING.split(topic)  # before, heading, mark, section, heading, mark, section, …
    main = pieces[1].replace('"', "") if len(pieces) > 1 else ""
    for heading, section in zip(["", *pieces[1::3]], [pieces[0], *pieces[3::3]], strict=True):
        title = heading.replace('"', "")
        title = title if title == main or not title else f"{main}: {title}"
        passage = ""
        for paragraph in re.split(r"\n\n(?=\S)", section.strip("\n")):
            if passage and len(passage) + len(paragraph) > _PASSAGE:
                yield title, passage
                passage = ""
            passage = f"{passage}\n\n{paragraph}" if passage else paragraph
        if passage.strip():
            yield title, passage


def _compiled() -> Iterator[Doc]:
    """Docstrings of what is written in C, by introspection."""
    for name in _COMPILED_MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # not on every system
            continue
        prefix = "" if name == "builtins" else f"{name}."
        if is_useful(module.__doc__):
            yield Doc(name, inspect.cleandoc(module.__doc__), f"module {name}", name)
        yield from _members(module, prefix, name)


def _members(owner: ModuleType | type, prefix: str, source: str) -> Iterator[Doc]:
    for name, value in sorted(vars(owner).items()):
        if name.startswith("_") or not (
            isinstance(value, type) or inspect.isroutine(value) or inspect.isdatadescriptor(value)
        ):
            continue
        if isinstance(owner, ModuleType) and not _belongs(name, value, owner, source):
            continue
        docstring = getattr(value, "__doc__", None)
        if isinstance(docstring, str) and is_useful(docstring):
            try:
                signature = without_self(str(inspect.signature(cast(Any, value))))
            except Exception:  # C functions need not have one, and some have one that is broken
                signature = ""
            title = shorten(f"{prefix}{name}{signature}")
            yield Doc(f"{prefix}{name}", inspect.cleandoc(docstring), title, source)
        if isinstance(value, type) and isinstance(owner, ModuleType):
            yield from _members(value, f"{prefix}{name}.", source)


def _belongs(name: str, value: object, owner: ModuleType, module: str) -> bool:
    """Whether a module's member is its own, and not another public module's: as it says itself, or
    as its members say."""
    if names := getattr(owner, "__all__", None):
        return name in names
    home = getattr(value, "__module__", None) or module
    return module == "builtins" or home.lstrip("_") == module  # `sqlite3` is partly in `_sqlite3`
