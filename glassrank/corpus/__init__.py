"""Documents, queries, judgments and runs, in the field's file formats; the demo corpus."""

from glassrank.corpus.docs import DocReader as DocReader
from glassrank.corpus.docs import count_skipped_files as count_skipped_files
from glassrank.corpus.docs import read_docs as read_docs
from glassrank.corpus.docs import write_docs as write_docs
from glassrank.corpus.pydocs import CORPUS as CORPUS
from glassrank.corpus.pydocs import PYTHON_QUESTIONS as PYTHON_QUESTIONS
from glassrank.corpus.pydocs import SAMPLE_QUERIES as SAMPLE_QUERIES
from glassrank.corpus.pydocs import python_docs as python_docs
from glassrank.corpus.queries import read_folds as read_folds
from glassrank.corpus.queries import read_qrels as read_qrels
from glassrank.corpus.queries import read_queries as read_queries
from glassrank.corpus.queries import write_qrels as write_qrels
from glassrank.corpus.queries import write_queries as write_queries
from glassrank.corpus.runs import read_run as read_run
from glassrank.corpus.runs import write_run as write_run
