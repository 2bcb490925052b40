"""`glassrank warmup`: compiles everything once, by using it on three documents, as `scripts/setup`
and the Dockerfile do.

Code is compiled when it is first called with a type of arrays, so what is called here is found
ready by every later command. Words have four types, of which live ones have the last.
"""

import compileall
import tempfile
import time
from pathlib import Path

import glassrank
from glassrank.backends.compiled import load_at_once
from glassrank.cli import console
from glassrank.index import Index
from glassrank.types import Doc

_MOST_OFTEN = (1, 1 << 8, 1 << 16)
"""How often a word stands in a document, so that it is counted in one, two and four bytes."""
_STORES = ("int8", "bf16", "int3")


def warmup(quiet: console.Quiet = False) -> None:
    """Compile now what the first search or ranking would compile, and load the models once."""
    from glassrank.rerank import load
    from glassrank.rerank.text_pipeline import LIST_MODELS

    began = time.perf_counter()
    compile_modules(Path(glassrank.__file__).parent)
    compile_all()
    for name in LIST_MODELS:
        load(name, warm=True)
    console.say(f"Ready, in {time.perf_counter() - began:.0f} s", quiet=quiet)


def compile_all() -> None:
    """Indexes, searches, changes and merges; encodes and ranks."""
    load_at_once()
    with tempfile.TemporaryDirectory(prefix="glassrank-") as folder:
        for times in reversed(_MOST_OFTEN):
            path = Path(folder) / f"{times}.index"
            Index.build(_docs("cat " * times), path)
            index = Index(path)
            index.search("cat dog")
            index.delete(["1"])
            index.add([Doc("4", "cat " * times)])
            index.merge()
        _rank(Index(path))  # the last one, whose texts are short: long ones take long to encode


def _rank(index: Index) -> None:
    from glassrank.embeddings import Store, encode_index, store_folder
    from glassrank.models.checkpoint import load_served
    from glassrank.rerank import Pipeline, Reranker

    saved = load_served("default")
    reranker = Reranker(saved)
    Pipeline(index, reranker, store=None)("cat dog")
    for dtype in _STORES:
        path = store_folder(index.path, dtype)
        encode_index(index, saved, path, dtype)
        store = Store.open(path, saved.model, index.snapshot)
        Pipeline(index, reranker, store=store)("cat dog")


def compile_modules(package: Path) -> None:
    """To bytecode, which Python reads even where it is told to write none: each start of a command
    would compile a hundred files again. Where nothing can be written, it does."""
    compileall.compile_dir(package, quiet=2)


def _docs(often: str) -> list[Doc]:
    return [Doc("1", "a bird"), Doc("2", f"{often} on a mat"), Doc("3", "dogs chase cats")]
