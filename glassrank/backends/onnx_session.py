"""A graph that ONNX Runtime computes, in the calling thread.

One thread computes one text, and several threads may call at once: a text gives the same bytes
however many there are.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, sanitize

_FATAL = 4  # log level: the library prints only fatal errors, since others are raised too


class OnnxSession:
    """Inputs by name in, outputs in the order of `outputs` out."""

    def __init__(self, graph: bytes, *, optimised: bool = False, threads: int = 1) -> None:
        """`optimised` graphs are not optimised again, which takes most of the opening time."""
        # From 1.29 on the library uploads telemetry and keeps a device id, unless this is set
        # before it is imported.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = _FATAL
        if optimised:
            levels = onnxruntime.GraphOptimizationLevel
            options.graph_optimization_level = levels.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the library has a class for each kind, and no common one
            raise InputError(f"ONNX Runtime cannot open this graph: {_reason(error)}") from None
        self._session: Any = session
        self.inputs = {value.name: value for value in session.get_inputs()}
        self.outputs = {value.name: value for value in session.get_outputs()}

    def run(
        self, inputs: dict[str, NDArray[Any]], outputs: Sequence[str] | None = None
    ) -> list[NDArray[np.float32]]:
        """The named outputs, or all."""
        try:
            made: list[NDArray[np.float32]] = self._session.run(outputs, inputs)
        except Exception as error:
            raise InputError(
                f"ONNX Runtime could not compute this text: {_reason(error)}"
            ) from None
        return made


def _reason(error: Exception) -> str:
    return sanitize(" ".join(str(error).split()))[:300]
