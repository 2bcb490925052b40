"""Documents' encoded words on disk, so that ranking only reads them."""

from glassrank.models.doc_reader import text_of
from glassrank.store.encode import DEFAULT_DTYPE, Estimate, Progress, Report, encode_index
from glassrank.store.manifest import DTYPES, store_folder
from glassrank.store.part import Located, Part
from glassrank.store.store import Store

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
    "store_folder",
    "text_of",
]
