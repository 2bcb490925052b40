"""The first stage: an inverted index in segments, BM25, query likelihood and RM3."""

from glassrank.index.index import Index
from glassrank.index.methods import method_name, parse_method
from glassrank.index.scoring import BM25, QL
from glassrank.index.search import RM3, Method, TopK
from glassrank.index.snippets import Snippet

__all__ = ["BM25", "QL", "RM3", "Index", "Method", "Snippet", "TopK", "method_name", "parse_method"]
