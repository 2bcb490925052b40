"""The first stage: an inverted index in segments, BM25, query likelihood and RM3."""

from glassrank.retrieve.index import Index
from glassrank.retrieve.methods import RM3, Method, method_name, parse_method
from glassrank.retrieve.scoring import BM25, QL
from glassrank.retrieve.search import TopK
from glassrank.retrieve.snippets import Snippet

__all__ = ["BM25", "QL", "RM3", "Index", "Method", "Snippet", "TopK", "method_name", "parse_method"]
