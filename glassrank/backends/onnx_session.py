"""A graph that ONNX Runtime computes, in the thread that asks.

Each text is computed by one thread, and several threads may ask at once: none waits for another,
and a text gives the same bytes however many there are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError, sanitize

_FATAL = 4
"""What the library writes to the terminal by itself: what happens is raised as an error too."""


class OnnxSession:
    """Inputs by name in, outputs in the order of `outputs` out."""

    def __init__(self, graph: bytes, *, optimised: bool = False, threads: int = 1) -> None:
        """A graph that is `optimised` already is opened in a tenth of the time."""
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
            raise InputError(f"it is no graph that ONNX Runtime opens: {_reason(error)}") from None
        self._session: Any = session
        self.inputs = {value.name: value for value in session.get_inputs()}
        self.outputs = {value.name: value for value in session.get_outputs()}

    def run(
        self, inputs: dict[str, NDArray[Any]], outputs: Sequence[str] | None = None
    ) -> list[NDArray[np.float32]]:
        """Those that are asked for, or all."""
        options = None
        try:
            made: list[NDArray[np.float32]] = self._session.run(outputs, inputs, options)
        except Exception as error:
            raise InputError(
                f"ONNX Runtime could not compute this text: {_reason(error)}"
            ) from None
        return made


def _reason(error: Exception) -> str:
    return sanitize(" ".join(str(error).split()))[:300]
