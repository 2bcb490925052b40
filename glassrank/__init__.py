"""Neural re-ranking within a time budget, that shows why.

import glassrank as gr

index = gr.Index.build(gr.read_docs("docs.jsonl"), "my.index")
for hit in index.search("how do I read a csv file?"):
    print(hit.rank, hit.doc_id, hit.score)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glassrank.errors import CorruptError, DuplicateIdError, GlassrankError, InputError
from glassrank.types import Doc, Hit, Qrel, Qrels, Query, Ranking, Run

if TYPE_CHECKING:
    from glassrank.corpus import read_docs, read_qrels, read_queries, read_run, write_run
    from glassrank.measure import evaluate
    from glassrank.retrieve import BM25, QL, RM3, Index

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
    "Qrel",
    "Qrels",
    "Query",
    "Ranking",
    "Run",
    "evaluate",
    "read_docs",
    "read_qrels",
    "read_queries",
    "read_run",
    "write_run",
]

# Found when they are first asked for: `import glassrank` itself takes no time.
_HOMES = {
    "glassrank.corpus": ("read_docs", "read_qrels", "read_queries", "read_run", "write_run"),
    "glassrank.measure": ("evaluate",),
    "glassrank.retrieve": ("BM25", "QL", "RM3", "Index"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'glassrank' has no attribute {name!r}")
