"""Measures by ir-measures' names, and their formulas.

All six have one shape: the relevant documents in the first k places each add a gain, and the sum
is divided by a norm.

    RR    1/rank for the first relevant document                          norm 1
    P     1 for each relevant document                                    norm k
    R     1 for each relevant document                                    norm number of relevant
    AP    precision at its rank, for each relevant document               norm number of relevant
    nDCG  grade / log2(rank + 1)                                          norm the best DCG possible
    ERR   chance of stopping here, having passed all before, over rank    norm 1

Gains are computed along the last axis, so they serve one ranking, (Q, H), and the rankings at
many depths, (Q, depths, H), alike.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.measure.judged import Judged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_CUTOFF = np.iinfo(np.int64).max
"""Any finite rank is within it, the rank of a document not found (inf) is not."""

ERR_MAX_GRADE = 4
"""gdeval's, fixed rather than taken from the data, so that values compare between collections."""

BINARY = ("RR", "AP", "P", "R")
GRADED = ("nDCG", "ERR")


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure, for the binary ones with the lowest grade that counts as relevant.

    >>> Measure("RR", cutoff=10)
    RR@10
    >>> Measure.parse("AP(rel=2)")
    AP(rel=2)
    """

    name: str
    cutoff: int | None = None
    rel: int = 1

    def __post_init__(self) -> None:
        if self.name not in BINARY + GRADED:
            raise InputError(_unknown(self.name))
        if self.cutoff is not None and self.cutoff < 1:
            raise InputError(f"{self.name} needs a cutoff of at least 1, found {self.cutoff}")
        if self.rel < 1:
            raise InputError(f"{self.name} needs rel of at least 1, found {self.rel}")
        if self.rel != 1 and self.name in GRADED:
            raise InputError(
                f"{self.name} reads the grades themselves and takes no rel; "
                f"rel is for {', '.join(BINARY)}"
            )

    @classmethod
    def parse(cls, text: "str | Measure") -> "Measure":
        """From its name in ir-measures' notation: `nDCG@10`."""
        if isinstance(text, Measure):
            return text
        match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*rel\s*=\s*(\d+)\s*\))?\s*(?:@\s*(\d+))?\s*", text)
        if not match:
            raise InputError(
                f"{text!r} is not a measure; expected a name with an optional lowest relevant "
                "grade and cutoff, such as nDCG@10, AP or RR(rel=2)@10"
            )
        name, rel, cutoff = match.groups()
        return cls(name, int(cutoff) if cutoff else None, int(rel) if rel else 1)

    def __str__(self) -> str:
        rel = f"(rel={self.rel})" if self.rel != 1 else ""
        cutoff = f"@{self.cutoff}" if self.cutoff is not None else ""
        return f"{self.name}{rel}{cutoff}"

    __repr__ = __str__


def _unknown(name: str) -> str:
    names = {known.lower(): known for known in BINARY + GRADED}
    names |= {"mrr": "RR", "map": "AP", "precision": "P", "recall": "R"}  # ir-measures' aliases
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {names[near[0]]}? " if near else ""
    return f"measure {name!r} is not known; {hint}measures are {', '.join(BINARY + GRADED)}"


def gains(measure: Measure, ranks: Floats, grades: Ints) -> Floats:
    """What each document found adds.

    `ranks` ascend along the last axis, inf where there is no document.
    """  # (..., H)
    relevant = grades >= measure.rel
    added: Floats
    match measure.name:
        case "RR":
            added = (relevant & (relevant.cumsum(-1) == 1)) / ranks
        case "P" | "R":
            added = relevant.astype(np.float64)
        case "AP":
            added = relevant * relevant.cumsum(-1) / ranks
        case "nDCG":
            added = grades / np.log2(ranks + 1)
        case _:
            added = _err_gains(ranks, grades)
    return added


def _err_gains(ranks: Floats, grades: Ints) -> Floats:
    stop = (2.0**grades - 1) / 2**ERR_MAX_GRADE  # chance that this document satisfies
    passed = np.cumprod(1 - stop, axis=-1)  # chance that none up to here did
    before = np.ones_like(stop)
    before[..., 1:] = passed[..., :-1]
    added: Floats = stop * before / ranks
    return added


def norm(measure: Measure, judged: Judged, cutoffs: Ints) -> Floats:
    """What the sum of gains is divided by at each cutoff."""  # (C, Q), or (C, 1) or (1, Q)
    by: Floats
    match measure.name:
        case "P" if cutoffs[0] == NO_CUTOFF:  # then of all that was retrieved
            by = judged.retrieved[None, :].astype(np.float64)
        case "P":
            by = cutoffs[:, None].astype(np.float64)
        case "R" | "AP":
            by = (judged.ideal >= measure.rel).sum(1, dtype=np.float64)[None, :]
        case "nDCG":
            places = np.arange(1, judged.ideal.shape[1] + 1)
            best = np.cumsum(judged.ideal / np.log2(places + 1), axis=1)  # (Q, J)
            by = best[:, np.minimum(cutoffs, len(places)) - 1].T
        case "ERR" if judged.ideal.max() > ERR_MAX_GRADE:
            raise InputError(f"ERR takes grades up to {ERR_MAX_GRADE}, found {judged.ideal.max()}")
        case _:
            by = np.ones((1, 1))
    return by


def divide(sums: Floats, by: Floats) -> Floats:
    """A query with nothing to find has no gains and scores 0, as in trec_eval."""
    return sums / np.where(by > 0, by, 1)


def value(measure: Measure, ranks: Floats, grades: Ints, by: Floats) -> Floats:
    """The measure at its own cutoff."""  # (...), from ranks and grades (..., H)
    within = ranks <= (measure.cutoff or NO_CUTOFF)
    return divide((gains(measure, ranks, grades) * within).sum(-1), by)
