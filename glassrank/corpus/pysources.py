"""Docstrings of the standard library, from its sources.

They are parsed, not imported: importing all of it would open windows, print poems and start a
browser.
"""

import ast
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from glassrank.types import Doc

# Tests, tables made by programs, and what is not text of the library itself.
_SKIPPED_FOLDERS = {
    *("__pycache__", "encodings", "ensurepip", "idle_test", "lib-dynload", "pydoc_data"),
    *("site-packages", "dist-packages", "test", "tests", "turtledemo"),
}

# Programs of their own, what Python 3.12 and 3.13 have removed, and the paths of another system.
_SKIPPED_MODULES = {
    *("idlelib", "aifc", "asynchat", "asyncore", "cgi", "cgitb", "chunk", "crypt", "distutils"),
    *("imghdr", "imp", "lib2to3", "mailcap", "msilib", "nntplib", "pipes", "smtpd", "sndhdr"),
    *("sunau", "telnetlib", "uu", "xdrlib", "ntpath", "nturl2path"),
}

# `os.path` is in files of other names.
_KNOWN_AS = {"posixpath": "os.path", "genericpath": "os.path"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_SHORTEST = 4  # words; "Internal function." helps nobody
_TITLE_WIDTH = 90


def library_docs() -> Iterator[Doc]:
    """Of every module, class, function and method that users know."""
    root = Path(sysconfig.get_path("stdlib"))
    exported: set[str] = set()  # `json.encoder.JSONEncoder`: users know it as `json.JSONEncoder`
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
    """What a package's `__init__.py` imports from its modules: `json.encoder.JSONEncoder`."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            home = f"{package}.{node.module}" if node.level == 1 else node.module
            for alias in node.names if home.startswith(f"{package}.") else ():
                yield f"{home}.{alias.name}"


def _all_names(tree: ast.Module) -> set[str]:
    """What a module says is for its users; nothing if it does not say, or computes it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                parts = value
            case ast.AugAssign(target=ast.Name("__all__"), value=value):
                parts = value
            case ast.Call(func=ast.Attribute(ast.Name("__all__"), _), args=[value]):
                parts = value
            case _:
                continue
        try:
            given = ast.literal_eval(parts)
        except ValueError:
            return set()
        names.update([given] if isinstance(given, str) else given)
    return names


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[Definition, str]]:
    """Classes, functions and methods with their names; those under `if` and `try` too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            if child.name != "__init__":  # told with its class
                yield child, prefix + child.name
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _definitions(child, prefix)


def _docstring(node: Definition) -> str:
    """A class is explained in its own docstring, in that of its `__init__`, or in both."""
    parts = [ast.get_docstring(node)]
    if init := _init(node):
        parts.append(ast.get_docstring(init))
    return "\n\n".join(part for part in parts if part)


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
    return without_self(f"({ast.unparse(function.args)})")


def without_self(signature: str) -> str:
    """A method's signature as its callers see it.

    >>> without_self("(self, /, sep=None)")
    '(sep=None)'
    """
    return re.sub(r"^\((self|cls|type|module)\b(, /)?(, )?", "(", signature)


def shorten(title: str) -> str:
    """To a width that fits a line."""
    title = " ".join(title.split())
    return title if len(title) <= _TITLE_WIDTH else title[: _TITLE_WIDTH - 1] + "…"


def is_useful(docstring: str | None) -> TypeGuard[str]:
    """Whether there is one, of a few words at least."""
    return docstring is not None and len(docstring.split()) >= _SHORTEST
