"""The demo corpus: the documentation of the running Python, without a download: the language
reference behind `help("with")`, and docstrings of the standard library, whose sources are parsed,
not imported: that would open windows, print poems and start a browser.

A docstring needs its context: after its first paragraph stand the words of its name and the first
sentences of its class and module; modules and classes end with those of their members.
"""

import ast
import importlib
import inspect
import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard, cast

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

CORPUS = 4  # the version of the corpus: an index of another version is built again

_LANGUAGE_REFERENCE = "language reference"
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SIGNATURE = re.compile(r"\w[\w.]*\([^\n]*\)( -+> [^\n]*)?(\n|$)")  # as docstrings of C code begin
_SENTENCE_END = re.compile(r"""(?<=[.!?])\s+(?=[A-Z`'"(])""")
_LONGEST_SENTENCE = 150  # characters

_PRIVATE = re.compile(r"(^|\.)(_|test(_|\.|$))")

# Public modules written in C: there is no source to parse. Importing them has no side effects.
_COMPILED_MODULES = (
    "builtins array atexit binascii bisect bz2 cmath collections collections.abc contextvars csv "
    "datetime decimal functools gc getpass hashlib heapq io itertools lzma marshal math mmap "
    "operator os os.path pickle random re select signal socket sqlite3 ssl statistics string "
    "struct sys threading time types unicodedata weakref zlib zoneinfo"
).split()

_PASSAGE = 1500  # characters of a passage of a long topic
_HEADING = re.compile(r"^(\S.*)\n([*=\-~^])\2{2,}\n", re.MULTILINE)
# Tests, generated tables, and other packages.
_SKIPPED_FOLDERS = frozenset(
    "__pycache__ encodings ensurepip idle_test lib-dynload pydoc_data site-packages dist-packages "
    "test tests turtledemo".split()
)

# Programs, modules removed in Python 3.12 and 3.13, and the paths of Windows.
_SKIPPED_MODULES = frozenset(
    "idlelib aifc asynchat asyncore cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap "
    "msilib nntplib pipes smtpd sndhdr sunau telnetlib uu xdrlib ntpath nturl2path".split()
)

# The files of `os.path` have other names.
_KNOWN_AS = {"posixpath": "os.path", "genericpath": "os.path"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_SHORTEST = 4  # words; "Internal function." is of no use
_TITLE_WIDTH = 90


def python_docs() -> Iterator[Doc]:
    """5,400 to 6,200 documents in a fixed order: `topic:with`, `str.split`, `json.loads`, …"""
    docs: dict[str, Doc] = {}
    for doc in chain(_topics(), filter(_is_public, chain(library_docs(), _compiled()))):
        # The first wins: a function may be defined once per system, and C code often has a
        # version in Python, whose source can be named.
        docs.setdefault(doc.doc_id, doc)
    members: dict[str, list[str]] = {}
    for doc in docs.values():
        owner, _, name = doc.doc_id.rpartition(".")
        members.setdefault(owner, []).append(f"{name}: {_first_sentence(doc.text)}")
    for doc in docs.values():
        if doc.source == _LANGUAGE_REFERENCE:  # the title has its headings
            yield doc
        else:
            yield replace(doc, text=_in_context(doc, docs, members.get(doc.doc_id, [])))


def _in_context(doc: Doc, docs: Mapping[str, Doc], members: Sequence[str]) -> str:
    """
    >>> docs = {"random": Doc("random", "Random variable generators.", "module random")}
    >>> print(_in_context(Doc("random.choice", "Choose one.\\n\\nFails if empty."), docs, []))
    Choose one.
    <BLANKLINE>
    random choice. random: Random variable generators.
    <BLANKLINE>
    Fails if empty.
    """
    first, *more = doc.text.strip().split("\n\n")
    return "\n\n".join(
        [first, _context(doc, docs), *more, *([" ".join(members)] if members else [])]
    )


def _context(doc: Doc, docs: Mapping[str, Doc]) -> str:
    """The words of its name, and the first sentences of its class and its module."""
    parts = doc.doc_id.split(".")
    around = [docs[name] for n in range(1, len(parts)) if (name := ".".join(parts[:n])) in docs]
    modules = [parent for parent in around if parent.title == f"module {parent.doc_id}"]
    classes = [parent for parent in around if parent not in modules]
    sentences = [
        f"{parent.doc_id.rpartition('.')[2]}: {_first_sentence(parent.text)}"
        for parent in (*classes[-1:], *modules[-1:])
    ]
    return " ".join([f"{_name_words(doc.doc_id)}.", *sentences])


def _name_words(name: str) -> str:
    """
    >>> _name_words("concurrent.futures.ThreadPoolExecutor.shut_down")
    'concurrent futures Thread Pool Executor shut down'
    """
    return " ".join(_NAME_WORD.findall(name))


def _first_sentence(text: str) -> str:
    """
    >>> _first_sentence("Heap queue algorithm (a.k.a. priority queue).\\n\\nHeaps are arrays.")
    'Heap queue algorithm (a.k.a. priority queue).'
    >>> _first_sentence("perm(n, k) -> int\\n\\nWays to choose k of n.")
    'Ways to choose k of n.'
    """
    while (signature := _SIGNATURE.match(text)) and len(text) > signature.end():
        text = text[signature.end() :].strip()
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = _SENTENCE_END.split(paragraph)[0]
    if len(sentence) <= _LONGEST_SENTENCE:
        return sentence
    return sentence[:_LONGEST_SENTENCE].rpartition(" ")[0] + " …"


def _is_public(doc: Doc) -> bool:
    """Special methods are private too: the language reference describes them.

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
    # Long topics repeat short ones (`compound` contains `with`), so short ones go first.
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):
        passages[name] = []
        for title, text in _passages(topics[name]):
            if text not in seen:
                seen.add(text)
                passages[name].append((title, text))
    for name in sorted(passages):
        for number, (title, text) in enumerate(passages[name], 1):
            doc_id = f"topic:{name}" + (f"#{number}" if number > 1 else "")
            yield Doc(doc_id, text, title, _LANGUAGE_REFERENCE)


def _passages(topic: str) -> Iterator[tuple[str, str]]:
    """(title, text) of the sections of a topic, or of the parts of long sections."""
    fields = _HEADING.split(topic)  # before, heading, mark, section, heading, mark, section, …
    main = fields[1].replace('"', "") if len(fields) > 1 else ""
    for heading, section in zip(["", *fields[1::3]], [fields[0], *fields[3::3]], strict=True):
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
    """Docstrings of C code, by introspection."""
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
                signature = strip_self(str(inspect.signature(cast(Any, value))))
            except Exception:  # C functions need not have one, and some have one that is broken
                signature = ""
            title = shorten(f"{prefix}{name}{signature}")
            yield Doc(f"{prefix}{name}", inspect.cleandoc(docstring), title, source)
        if isinstance(value, type) and isinstance(owner, ModuleType):
            yield from _members(value, f"{prefix}{name}.", source)


def _belongs(name: str, value: object, owner: ModuleType, module: str) -> bool:
    """Whether a member belongs to this module, by `__all__` or by its own `__module__`."""
    if names := getattr(owner, "__all__", None):
        return name in names
    home = getattr(value, "__module__", None) or module
    return module == "builtins" or home.lstrip("_") == module  # `sqlite3` is partly in `_sqlite3`


def library_docs() -> Iterator[Doc]:
    """The docstrings of all public modules, classes, functions and methods."""
    root = Path(sysconfig.get_path("stdlib"))
    exported: set[str] = set()  # `json.encoder.JSONEncoder` is known as `json.JSONEncoder`
    for path in _sources(root):
        relative = path.relative_to(root)
        if relative.parts[0].removesuffix(".py") in _SKIPPED_MODULES:
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):  # templates, and broken installations
            continue
        module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        module = _KNOWN_AS.get(module, module)
        source = f"Lib/{relative.as_posix()}"
        if path.name == "__init__.py":
            exported.update(_exports(tree, module))
        docstring = ast.get_docstring(tree)
        if is_useful(docstring):
            yield Doc(module, docstring, f"module {module}", f"{source}:1")
        public = _all_names(tree)
        shown_above = public if f"{module}.*" in exported else set()
        for node, name in _definitions(tree):
            short = name.split(".")[0]
            if short in shown_above or f"{module}.{short}" in exported:
                name = f"{module.rpartition('.')[0]}.{name}"
            elif public and short not in public:
                continue
            else:
                name = f"{module}.{name}"
            text = _docstring(node)
            if is_useful(text):
                yield Doc(name, text, shorten(name + _signature(node)), f"{source}:{node.lineno}")


def _sources(root: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED_FOLDERS and not name.startswith((".", "config-"))
        )
        for name in sorted(names, key=lambda name: (name != "__init__.py", name)):
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                yield Path(parent, name)


def _exports(tree: ast.Module, package: str) -> Iterator[str]:
    """The names that `__init__.py` imports from its package: `json.encoder.JSONEncoder`."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            home = f"{package}.{node.module}" if node.level == 1 else node.module
            for alias in node.names if home.startswith(f"{package}.") else ():
                yield f"{home}.{alias.name}"


def _all_names(tree: ast.Module) -> set[str]:
    """The names in `__all__`; none if it is missing or computed."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name("__all__")], value=value)
                | ast.AugAssign(target=ast.Name("__all__"), value=value)
                | ast.Call(func=ast.Attribute(ast.Name("__all__"), _), args=[value])
            ):
                pass
            case _:
                continue
        try:
            given = ast.literal_eval(value)
        except ValueError:
            return set()
        names.update([given] if isinstance(given, str) else given)
    return names


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[Definition, str]]:
    """Classes, functions and methods with their names, also under `if` and `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            if child.name != "__init__":  # part of its class
                yield child, prefix + child.name
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _definitions(child, prefix)


def _docstring(node: Definition) -> str:
    """The docstring; for a class with that of its `__init__`."""
    parts = [ast.get_docstring(part) for part in (node, _init(node)) if part]
    return "\n\n".join(filter(None, parts))


def _init(node: Definition) -> ast.FunctionDef | None:
    for child in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            return child
    return None


def _signature(node: Definition) -> str:
    """
    >>> _signature(ast.parse("def f(self, a: int, b=None, *rest, **more): ...").body[0])
    '(a, b=None, *rest, **more)'
    """
    function = _init(node) if isinstance(node, ast.ClassDef) else node
    if function is None:
        return ""
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return strip_self(f"({ast.unparse(function.args)})")


def strip_self(signature: str) -> str:
    """The signature of a method without `self`.

    >>> strip_self("(self, /, sep=None)")
    '(sep=None)'
    """
    return re.sub(r"^\((self|cls|type|module)\b(, /)?(, )?", "(", signature)


def shorten(title: str) -> str:
    """Cuts a title to a width that fits a line."""
    title = " ".join(title.split())
    return title if len(title) <= _TITLE_WIDTH else title[: _TITLE_WIDTH - 1] + "…"


def is_useful(docstring: str | None) -> TypeGuard[str]:
    """Whether it has at least a few words."""
    return docstring is not None and len(docstring.split()) >= _SHORTEST
