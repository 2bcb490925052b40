"""Documents' encoded words on disk, so that ranking only reads them."""

from glassrank.embeddings.encode import DEFAULT_DTYPE, Estimate, Progress, Report, encode_index
from glassrank.embeddings.manifest import DTYPES, store_folder
from glassrank.embeddings.part import Located, Part
from glassrank.embeddings.store import Store
from glassrank.models.doc_reader import join_title

__all__ = [
    "DEFAULT_DTYPE",
    "DTYPES",
    "Estimate",
    "Located",
    "Part",
    "Progress",
    "Report",
    "Store",
    "encode_index",
    "join_title",
    "store_folder",
]
