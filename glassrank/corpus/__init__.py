"""Documents, queries, judgments and runs, in the field's file formats; the demo corpus."""

from glassrank.corpus.docs import DocReader, count_skipped_files, read_docs, write_docs
from glassrank.corpus.pydocs import CORPUS, PYTHON_QUESTIONS, SAMPLE_QUERIES, python_docs
from glassrank.corpus.queries import (
    read_folds,
    read_qrels,
    read_queries,
    write_qrels,
    write_queries,
)
from glassrank.corpus.runs import read_run, write_run

__all__ = [
    "CORPUS",
    "PYTHON_QUESTIONS",
    "SAMPLE_QUERIES",
    "DocReader",
    "count_skipped_files",
    "python_docs",
    "read_docs",
    "read_folds",
    "read_qrels",
    "read_queries",
    "read_run",
    "write_docs",
    "write_qrels",
    "write_queries",
    "write_run",
]
