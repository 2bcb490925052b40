"""Documents' encoded words on disk, so that ranking only reads them."""

from glassrank.embeddings.encode import DEFAULT_DTYPE as DEFAULT_DTYPE
from glassrank.embeddings.encode import Estimate as Estimate
from glassrank.embeddings.encode import Progress as Progress
from glassrank.embeddings.encode import Report as Report
from glassrank.embeddings.encode import encode_index as encode_index
from glassrank.embeddings.manifest import DTYPES as DTYPES
from glassrank.embeddings.manifest import store_folder as store_folder
from glassrank.embeddings.part import Located as Located
from glassrank.embeddings.part import Part as Part
from glassrank.embeddings.store import Store as Store
from glassrank.models.doc_reader import join_title as join_title
