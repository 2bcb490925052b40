"""`glassrank warmup`: compile everything once, by using it on three documents."""

import compileall
import tempfile
import time
from pathlib import Path

import glassrank
from glassrank import console
from glassrank.backends.compiled import use_compiled_code
from glassrank.index import Index
from glassrank.types import Doc

_TERM_FREQUENCIES = (1, 1 << 8, 1 << 16)  # they are stored in one, two and four bytes
_DTYPES = ("int8", "bf16", "int3")


def warmup(quiet: console.Quiet = False) -> None:
    """Compile everything now, so that no search has to wait for it."""
    from glassrank.rerank import load
    from glassrank.rerank.text_pipeline import LIST_MODELS

    began = time.perf_counter()
    compile_modules(Path(glassrank.__file__).parent)
    compile_all()
    for name in LIST_MODELS:
        load(name, warm=True)
    console.say(f"Ready, in {time.perf_counter() - began:.0f} s", quiet=quiet)


def compile_all() -> None:
    """Index, search, change, merge, encode and re-rank once."""
    use_compiled_code()
    with tempfile.TemporaryDirectory(prefix="glassrank-") as folder:
        for times in reversed(_TERM_FREQUENCIES):
            path = Path(folder) / f"{times}.index"
            docs = ["a bird", f"{'cat ' * times} on a mat", "dogs chase cats"]
            Index.build([Doc(str(n), text) for n, text in enumerate(docs, 1)], path)
            index = Index(path)
            index.search("cat dog")
            index.delete(["1"])
            index.add([Doc("4", "cat " * times)])
            index.merge()
        _rerank(Index(path))  # the last one: its texts are short, so encoding is quick


def _rerank(index: Index) -> None:
    from glassrank.embeddings import Store, encode_index, store_folder
    from glassrank.models.io.load import load_for_inference
    from glassrank.rerank import Pipeline, Reranker

    saved = load_for_inference("default")
    reranker = Reranker(saved)
    Pipeline(index, reranker, use_store=False)("cat dog")
    for dtype in _DTYPES:
        path = store_folder(index.path, dtype)
        encode_index(index, saved, path, dtype)
        store = Store.open(path, saved.model, index.snapshot)
        Pipeline(index, reranker, store=store)("cat dog")


def compile_modules(package: Path) -> None:
    """Write bytecode, which Python reads even with PYTHONDONTWRITEBYTECODE."""
    compileall.compile_dir(package, quiet=2)
