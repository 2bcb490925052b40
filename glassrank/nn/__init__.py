"""The maths that several models share, each written once."""

from glassrank.nn.contextual import ContextualLayers, positions
from glassrank.nn.kernels import kernel_pool, kernel_values
from glassrank.nn.match import k_max, match_matrix, unit

__all__ = [
    "ContextualLayers",
    "k_max",
    "kernel_pool",
    "kernel_values",
    "match_matrix",
    "positions",
    "unit",
]
