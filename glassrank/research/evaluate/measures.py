"""Measures by ir-measures' names, and their formulas.

Most have one shape: the relevant documents in the first k places each add a gain, and the sum is
divided by a norm.

    RR    1/rank for the first relevant document                          norm 1
    P     1 for each relevant document                                    norm k
    R     1 for each relevant document                                    norm number of relevant
    AP    precision at its rank, for each relevant document               norm number of relevant
    nDCG  grade / log2(rank + 1)                                          norm the best DCG possible
          with dcg=exp-log2, 2^grade - 1 in the place of grade, as gdeval has it
    ERR   chance of stopping here, having passed all before, over rank    norm 1
    RBP   (1 - p) p^(rank - 1) for each relevant document, p = 0.8        norm 1

Others ask for more than where relevant documents stand: Rprec is P at the number of relevant
documents, Bpref what share of the judged others stands below a relevant one, Judged the share of
the first k that somebody judged.

Gains are computed along the last axis, so they serve one ranking, (Q, H), and the rankings at
many depths, (Q, depths, H), alike.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.research.evaluate.judged import Judged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_CUTOFF = np.iinfo(np.int64).max
"""Any finite rank is within it, the rank of a document not found (inf) is not."""

ERR_MAX_GRADE = 4
"""gdeval's, fixed rather than taken from the data, so that values compare between collections."""

BINARY = ("RR", "AP", "P", "R", "RBP", "Rprec")
GRADED = ("nDCG", "ERR")
POOLED = ("Bpref", "Judged")
NAMES = (*BINARY, *GRADED, *POOLED)
OF_LISTS = ("Rprec", *POOLED)
"""These are measured of whole lists, not at every cutoff or re-ranking depth at once."""
DCG = ("log2", "exp-log2")
"""ir-measures' names for gains of nDCG: the grade itself (trec_eval), or 2^grade - 1 (gdeval, which
the PACRR papers report)."""


_NOTATION = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*(?:@\s*(\d+))?\s*")
_SETTING = re.compile(
    r"\s*(?:rel\s*=\s*(?P<rel>\d+)|p\s*=\s*(?P<p>[\d.]+)|dcg\s*=\s*['\"]?(?P<dcg>[\w-]+)['\"]?)\s*"
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure, for the binary ones with the lowest grade that counts as relevant.

    >>> Measure("RR", cutoff=10)
    RR@10
    >>> Measure.parse("AP(rel=2)"), Measure.parse("nDCG(dcg='exp-log2')@20")
    (AP(rel=2), nDCG(dcg='exp-log2')@20)
    """

    name: str
    cutoff: int | None = None
    rel: int = 1
    dcg: str = "log2"
    p: float = 0.8
    """How likely a reader of RBP goes on to the next place."""

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InputError(_describe_unknown(self.name))
        if self.name in ("Rprec", "Bpref") and self.cutoff is not None:
            raise InputError(f"{self.name} is of the whole list and takes no cutoff")
        if not 0 < self.p < 1 or (self.p != 0.8 and self.name != "RBP"):
            raise InputError(f"p is of RBP alone, between 0 and 1, found {self.p}")
        if self.cutoff is not None and self.cutoff < 1:
            raise InputError(f"{self.name} needs a cutoff of at least 1, found {self.cutoff}")
        if self.rel < 1:
            raise InputError(f"{self.name} needs rel of at least 1, found {self.rel}")
        if self.rel != 1 and self.name in GRADED + POOLED:
            raise InputError(
                f"{self.name} reads the grades themselves and takes no rel; "
                f"rel is for {', '.join(BINARY)}"
            )
        if self.dcg not in DCG or (self.dcg != DCG[0] and self.name != "nDCG"):
            raise InputError(f"dcg is {' or '.join(DCG)}, and of nDCG alone, found {self.dcg!r}")

    @classmethod
    def parse(cls, text: "str | Measure") -> "Measure":
        """From its name in ir-measures' notation: `nDCG@10`."""
        if isinstance(text, Measure):
            return text
        match = _NOTATION.fullmatch(text)
        parts = (match[2] or "rel=1").split(",") if match else ()
        settings = [setting for setting in map(_SETTING.fullmatch, parts) if setting]
        if not match or len(settings) < len(parts):
            raise InputError(
                f"{text!r} is not a measure; expected a name with an optional lowest relevant "
                "grade and cutoff, such as nDCG@10, AP, RR(rel=2)@10 or nDCG(dcg='exp-log2')@20"
            )
        given = {name: text for s in settings for name, text in s.groupdict().items() if text}
        try:
            cutoff = int(match[3]) if match[3] else None
            rel, p = int(given.get("rel", 1)), float(given.get("p", 0.8))
            return cls(match[1], cutoff, rel, given.get("dcg", DCG[0]), p)
        except ValueError:
            raise InputError(f"{text!r}: p is no number; write it as RBP(p=0.8)") from None

    def __str__(self) -> str:
        given = [f"rel={self.rel}"] if self.rel != 1 else []
        given += [f"dcg={self.dcg!r}"] if self.dcg != DCG[0] else []
        given += [f"p={self.p}"] if self.p != 0.8 else []
        settings = f"({','.join(given)})" if given else ""
        cutoff = f"@{self.cutoff}" if self.cutoff is not None else ""
        return f"{self.name}{settings}{cutoff}"

    __repr__ = __str__


def _describe_unknown(name: str) -> str:
    names = {known.lower(): known for known in NAMES}
    names |= {"mrr": "RR", "map": "AP", "precision": "P", "recall": "R"}  # ir-measures' aliases
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {names[near[0]]}? " if near else ""
    return f"measure {name!r} is not known; {hint}measures are {', '.join(NAMES)}"


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
        case "RBP":
            added = relevant * (1 - measure.p) * measure.p ** (ranks - 1)
        case "AP":
            added = relevant * relevant.cumsum(-1) / ranks
        case "nDCG":
            added = _dcg_gain(measure, grades) / np.log2(ranks + 1)
        case _:
            added = _err_gains(ranks, grades)
    return added


def _dcg_gain(measure: Measure, grades: Ints) -> Floats:
    gain: Floats = grades.astype(np.float64)
    return np.exp2(gain) - 1 if measure.dcg == "exp-log2" else gain


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
            best = (_dcg_gain(measure, judged.ideal) / np.log2(places + 1)).cumsum(1)  # (Q, J)
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


def value_of_lists(measure: Measure, judged: Judged) -> Floats:
    """One of `OF_LISTS`, for each query, as trec_eval and ir-measures have them."""  # (Q,)
    if measure.name == "Judged":
        deepest = np.minimum(judged.retrieved, measure.cutoff or NO_CUTOFF)
        there = sum((ranks <= deepest[:, None]).sum(1) for ranks in (judged.ranks, judged.others))
        # Of a list that is shorter than the cutoff, what is there.
        return divide(np.asarray(there, np.float64), deepest.astype(np.float64))
    relevant = (judged.ideal >= measure.rel).sum(1)  # (Q,)
    by = relevant.astype(np.float64)
    if measure.name == "Rprec":
        within = (judged.grades >= measure.rel) & (judged.ranks <= relevant[:, None])
        return divide(within.sum(1, dtype=np.float64), by)
    above = (judged.others[:, None, :] < judged.ranks[:, :, None]).sum(2)  # (Q, H)
    most = np.maximum(np.minimum(relevant, judged.judged_others), 1)
    lost = np.minimum(above, relevant[:, None]) / most[:, None]
    added = np.where(np.isfinite(judged.ranks), 1 - np.where(above > 0, lost, 0.0), 0.0)
    return divide(added.sum(1), by)
