"""What computes a model: ONNX Runtime (here), or PyTorch (`torch_backend.py`)."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.models.io.model_folder import SavedModel
from glassrank.models.model import TokenBatch, TokenEmbeddings


class Backend(Protocol):
    """One model, ready to encode and to score."""

    model: Any
    """As it was trained: what a store is tied to."""
    fast_model: Any
    """As it encodes documents and scores them, and on a GPU a transformer's queries too."""
    device: Any
    """PyTorch's device; None without PyTorch."""
    dtype: Any
    """In which stored embeddings are best read: what a transformer computes in."""

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        """One query, (1, Q) on the CPU."""

    def encode_doc(self, batch: TokenBatch, deadline: Deadline) -> TokenEmbeddings:
        """Documents, encoded on the fly."""

    def scores(
        self,
        query: TokenEmbeddings,
        docs: TokenEmbeddings,
        first_stage: NDArray[np.float32] | None,
        deadline: Deadline,
    ) -> NDArray[np.float32]:
        """Of one encoded query and many encoded documents."""


class OnnxBackend:
    """ONNX Runtime on a CPU. It looks at the deadline between two documents."""

    device = None
    dtype = None

    def __init__(self, model: Any) -> None:
        self.model = model
        self.fast_model: Any = model
        self.encode_query, self.encode_doc = self.model.encode_query, self.model.encode_doc

    def scores(
        self,
        query: TokenEmbeddings,
        docs: TokenEmbeddings,
        first_stage: NDArray[np.float32] | None,
        deadline: Deadline,
    ) -> NDArray[np.float32]:
        """By the same compiled code that scores stored embeddings."""
        if not self.model.info.is_cross_encoder:
            return np.asarray(self.model.rank(query, docs, first_stage).score, np.float32)
        scores = np.empty(len(docs.mask), np.float32)
        for row in range(len(scores)):  # a cross-encoder reads one pair after another
            deadline.check("these texts")
            scores[row] = self.model.rank(query, docs.rows(slice(row, row + 1))).score[0]
        return scores


def choose_backend(saved: SavedModel, device: str, *, exact: bool) -> Backend:
    """What computes a model on this device; with `exact`, in float32 as it was trained."""
    is_exact = saved.load_trained is None  # a published graph has no other form
    if saved.model.device is None and device == "cpu" and (is_exact or not exact):
        return OnnxBackend(saved.model)
    from glassrank.rerank.torch_backend import TorchBackend

    return TorchBackend(saved.trained().model, device, saved.usage.query_length, exact=exact)
