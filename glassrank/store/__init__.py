"""Documents' encoded words on disk, so that ranking only reads them."""

from glassrank.store.encode import Progress, Report, encode_index
from glassrank.store.manifest import DTYPES, store_folder
from glassrank.store.part import Located, Part, text_of
from glassrank.store.store import Store

__all__ = [
    "DTYPES",
    "Located",
    "Part",
    "Progress",
    "Report",
    "Store",
    "encode_index",
    "store_folder",
    "text_of",
]
