"""Neural re-ranking within a time budget, that shows why.

import glassrank as gr

gr.rank("how do I read a csv file?", texts, budget_ms=500)   # a list of texts, no index

search = gr.open("my.index", budget_ms=50)                   # with the model in the package
for hit in search("how do I read a csv file?", k=10):
    print(hit.rank, hit.title, hit.score)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassrank.corpus import read_docs, read_qrels, read_queries, read_run, write_run
    from glassrank.errors import CorruptError, DuplicateIdError, GlassrankError, InputError
    from glassrank.explanations import explain
    from glassrank.index import BM25, QL, RM3, Index
    from glassrank.rerank import Pipeline, Reranker, TextPipeline, arank, load, rank
    from glassrank.research.evaluate.evaluate import evaluate
    from glassrank.types import Doc, Hit, Qrel, Qrels, Query, Ranking, Run

    open = Pipeline.open  # noqa: A001

__version__ = "0.1.0"

__all__ = [
    "BM25",
    "QL",
    "RM3",
    "CorruptError",
    "Doc",
    "DuplicateIdError",
    "GlassrankError",
    "Hit",
    "Index",
    "InputError",
    "Pipeline",
    "Qrel",
    "Qrels",
    "Query",
    "Ranking",
    "Reranker",
    "Run",
    "TextPipeline",
    "arank",
    "evaluate",
    "explain",
    "load",
    "open",
    "rank",
    "read_docs",
    "read_qrels",
    "read_queries",
    "read_run",
    "write_run",
]

# Found when they are first asked for: `import glassrank` itself takes no time, and Ctrl-C after it
# finds the handler of the command line.
_HOMES = {
    "glassrank.errors": ("CorruptError", "DuplicateIdError", "GlassrankError", "InputError"),
    "glassrank.types": ("Doc", "Hit", "Qrel", "Qrels", "Query", "Ranking", "Run"),
    "glassrank.corpus": ("read_docs", "read_qrels", "read_queries", "read_run", "write_run"),
    "glassrank.explanations": ("explain",),
    "glassrank.research.evaluate": ("evaluate",),
    "glassrank.rerank": ("Pipeline", "Reranker", "TextPipeline", "arank", "load", "rank"),
    "glassrank.index": ("BM25", "QL", "RM3", "Index"),
}


def __getattr__(name: str) -> Any:
    if name == "open":
        return import_module("glassrank.rerank").Pipeline.open
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'glassrank' has no attribute {name!r}")
