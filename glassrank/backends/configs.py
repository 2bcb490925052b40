"""Settings of kernels and encoders, without PyTorch; and which kernels share their exponentials in
the fast forms (`backends/cpu/kernels.py`, `backends/gpu/kernels.py`).

Neighbours of one width s whose centers lie h apart differ, at a similarity x away from a kernel in
the middle of them, by a factor that is the same at every step but for a constant:

exp(-(x - jh)^2 / 2s^2) = exp(-x^2 / 2s^2) * exp(xh / s^2)^j * exp(-(jh)^2 / 2s^2)

So one exponential for the kernel in the middle, one for the factor and one for its inverse give a
whole run; the constants wait until everything is summed. A kernel half a step above the run, as the
one at 1.0 of the usual eleven, takes the root of the factor. Starting in the middle keeps every
number within float32.
"""

import math
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

FLOOR = 1e-10
"""Sums are kept above this before a logarithm."""

_WIDTHS_IN_FLOAT32 = 13.0
"""exp(-13^2 / 2) is 2e-37, just within float32: similarities farther away are taken as this far."""

LARGEST_COSINE = 1.05
"""No similarity of unit vectors, rounded to a few bits, is farther from 0."""

_SHORT_REACH = 4.0
_LONG_REACH = 11.0
"""Widths between the middle and the ends of a run. A short one may be far from the similarity: its
ends then count exp(-(13 - 4)^2 / 2), which is nothing. A longer one must contain it."""

Activation = Literal["gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True)
class Kernels:
    """Centers and widths of any number of kernels, evenly spaced or not."""

    centers: tuple[float, ...]
    widths: tuple[float, ...]
    at_least: bool = False
    """A kernel counts the tokens that are at least as similar as its center, and those below the
    less, the farther they are. Its value then never falls as similarity rises. Otherwise it counts
    those around its center, as in the papers."""

    def __post_init__(self) -> None:
        if len(self.centers) != len(self.widths):
            raise ValueError(f"{len(self.centers)} centers need as many widths, not {self.widths}")
        if not self.centers or not all(1e-6 <= width <= 100 for width in self.widths):
            raise ValueError(f"kernels need widths of 0.000001 to 100, found {self.widths}")
        if not all(-100 <= center <= 100 for center in self.centers):
            raise ValueError(f"kernels need centers of -100 to 100, found {self.centers}")

    @classmethod
    def eleven(cls, exact_width: float = 0.1) -> "Kernels":
        """1.0, then 0.9 down to -0.9 in steps of 0.2, as in the TK and KNRM papers."""
        centers = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
        return cls(centers, (exact_width, *(0.1,) * 10))

    @classmethod
    def rising(cls) -> "Kernels":
        """At least 1.0, 0.9 and so on down to 0.0: what pretrained encoders' cosines are."""
        return cls(tuple(step / 10 for step in range(10, -1, -1)), (0.1,) * 11, at_least=True)

    def __len__(self) -> int:
        return len(self.centers)


@dataclass(frozen=True)
class ScoringHead:
    """How the soft counts of one match matrix become its share of the score:

        sum over tokens q and kernels k of weight_q (log_k ln max(count, FLOOR)
                                                    + length_k count / (document length + 1))

    The columns say which part of the token embeddings this matrix compares: all of them, or one
    size of n-grams.
    """

    log: Any  # (K,) a tensor, or an array
    length: Any  # (K,)
    query_columns: slice = field(default_factory=lambda: slice(None))
    doc_columns: slice = field(default_factory=lambda: slice(None))


class KernelRuns(NamedTuple):
    """Runs for compiled code. The kernels of a run stand together: the middle one, those above
    it, the one half a step higher, those below it."""

    curves: NDArray[np.float32]
    """(R * 4,): the middle; -1 / 2s^2 and h / 2s^2 for base 2; the largest distance."""
    steps: NDArray[np.int64]
    """(R * 3,): how many kernels above, half a step higher, and below."""
    kernels: NDArray[np.int64]
    """(K,): the kernel that stands at each place."""
    constants: NDArray[np.float32]
    """(K,): what its sum is to be multiplied with."""


class _Run(NamedTuple):
    width: float
    spacing: float
    above: list[int]  # kernels from the middle upwards, the middle one first
    half: list[int]  # none or one
    below: list[int]


@cache
def kernel_runs(kernels: Kernels) -> KernelRuns:
    """Kernels of one width in evenly spaced runs."""
    order = sorted(range(len(kernels)), key=lambda k: (kernels.widths[k], kernels.centers[k]))
    runs = [
        run
        for width, numbers in groupby(order, key=lambda k: kernels.widths[k])
        for run in _runs_of_width(list(numbers), width, kernels.centers)
    ]
    curves, places, constants = [], [], []
    for run in runs:
        middle = kernels.centers[run.above[0]]
        exponent = math.log2(math.e) / (2 * run.width**2)
        curves += [middle, -exponent, run.spacing * exponent, _WIDTHS_IN_FLOAT32 * run.width]
        own = run.above + run.half + run.below
        places += own
        distances = [kernels.centers[k] - middle for k in own]
        constants += [math.exp(-0.5 * (distance / run.width) ** 2) for distance in distances]
    return KernelRuns(
        np.array(curves, np.float32),
        np.array([[len(r.above) - 1, len(r.half), len(r.below)] for r in runs], np.int64).ravel(),
        np.array(places, np.int64),
        np.array(constants, np.float32),
    )


def _runs_of_width(numbers: list[int], width: float, centers: tuple[float, ...]) -> list[_Run]:
    """Splits kernels of one width, in the order of their centers, into evenly spaced runs."""
    runs = []
    while numbers:
        length, spacing = _evenly_spaced([centers[k] for k in numbers], width)
        half: list[int] = []
        if not _in_reach([centers[k] for k in numbers[:length]], length // 2, width):
            length = min(length, 1 + 2 * int(_SHORT_REACH * width / spacing))
        elif 1 < length < len(numbers):
            ends = [centers[k] for k in numbers[: length + 1]]
            is_half_a_step = _same(ends[-1] - ends[-2], spacing / 2, width)
            if is_half_a_step and _in_reach(ends, length // 2, width):
                half = [numbers[length]]
        middle = length // 2
        above, below = numbers[middle:length], numbers[:middle][::-1]
        runs.append(_Run(width, spacing, above, half, below))
        numbers = numbers[length + len(half) :]
    return runs


def _evenly_spaced(centers: list[float], width: float) -> tuple[int, float]:
    """How many kernels from the first one on are a run, and how far apart."""
    spacing = centers[1] - centers[0] if len(centers) > 1 else 0.0
    length = 1
    while length < len(centers) and _same(centers[length] - centers[length - 1], spacing, width):
        length += 1
    if length < 3 or not 0 < spacing <= _SHORT_REACH * width:
        return 1, 0.0  # fewer than three kernels have no more exponentials on their own
    return length, spacing


def _same(first: float, second: float, width: float) -> bool:
    return abs(first - second) <= 1e-6 * width


def _in_reach(centers: list[float], middle: int, width: float) -> bool:
    """Whether all similarities and all kernels are near enough to the middle for float32."""
    reach = max(centers[-1] - centers[middle], centers[middle] - centers[0])
    farthest = LARGEST_COSINE + abs(centers[middle])
    return len(centers) == 1 or (
        farthest <= _WIDTHS_IN_FLOAT32 * width and reach <= _LONG_REACH * width
    )


@dataclass(frozen=True)
class EncoderConfig:
    """The size of BERT-base by default."""

    vocabulary: int = field(default=30_522, metadata={"largest": 1 << 22})
    size: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072
    positions: int = 512
    """The longest text, in subwords."""
    types: int = 2
    dropout: float = 0.1
    epsilon: float = 1e-12
    activation: Activation = "gelu"
    distances: int = 0
    """Relative position buckets of a head's bias, as MPNet has them; none in a BERT."""
    head_size: int | None = None
    """Values of each head. All heads of a BERT have `size` values together; a pruned model with
    fewer heads has fewer."""

    def __post_init__(self) -> None:
        if self.heads < 1 or (self.head_size is None and self.size % self.heads):
            raise InputError(
                f"heads: {self.heads} heads cannot share a size of {self.size}; "
                "choose numbers that divide"
            )
        if self.head_size is not None and self.head_size < 1:
            raise InputError(f"head_size: expected 1 or more, found {self.head_size}")
        for name in ("dropout", "epsilon"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{name}: expected a number from 0 to 1, found {value}")

    @property
    def attention(self) -> int:
        """Values of all heads together."""
        return self.size if self.head_size is None else self.heads * self.head_size


def relative_position_buckets(longest: int, buckets: int) -> NDArray[np.int64]:
    """The bucket of each relative position in a text of up to `longest` subwords, from the farthest
    before to the farthest after: (2 * longest - 1,). Half of the buckets are for later subwords;
    half of those for small distances, one for each, and the rest for the logarithm of larger ones,
    up to 128."""
    after = np.arange(1 - longest, longest)
    far, side = np.abs(after), buckets // 2
    near = side // 2
    steps = np.log(np.maximum(far, 1) / np.float32(near), dtype=np.float32)
    steps *= np.float32((side - near) / math.log(128 / near))
    bucket = np.where(far < near, far, np.minimum(near + steps.astype(np.int64), side - 1))
    return np.asarray(bucket + side * (after > 0), np.int64)
