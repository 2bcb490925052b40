"""The registry of model families. Each name has the place of a class, as `module:Class`, which is
imported when it is first needed: most classes need PyTorch, and a search may not."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from inspect import isabstract
from typing import TYPE_CHECKING, Any

from glassrank.errors import InputError
from glassrank.models import is_outside

if TYPE_CHECKING:
    from glassrank.models.torch_models import Ranker

_PAPERS = "glassrank.research.papers"
_BI_ENCODERS = "glassrank.models.bi_encoders"
ENSEMBLE = "ensemble"
LOAD_ENSEMBLE = f"{_PAPERS}.ensemble:load_ensemble"
SUBWORD_TABLE = f"{_PAPERS}.subword_table:SubwordTable"
_CLASSES = {
    "bert": f"{_PAPERS}.bert:BERT",
    "co_pacrr": f"{_PAPERS}.pacrr:CoPACRR",
    "conv_knrm": f"{_PAPERS}.knrm:ConvKNRM",
    "duet": f"{_PAPERS}.duet:Duet",
    "kernel_bert": f"{_BI_ENCODERS}:KernelBERT",
    "knrm": f"{_PAPERS}.knrm:KNRM",
    "matchpyramid": f"{_PAPERS}.matchpyramid:MatchPyramid",
    "maxsim": f"{_BI_ENCODERS}:MaxSim",
    "mores": f"{_PAPERS}.mores:MORES",
    "pacrr": f"{_PAPERS}.pacrr:PACRR",
    "rpacrr": f"{_PAPERS}.rpacrr:RPACRR",
    "single_vector": f"{_BI_ENCODERS}:SingleVector",
    "tk": f"{_PAPERS}.tk:TK",
    "tk_windowed": f"{_PAPERS}.tk:TKWindowed",
    "tkl": f"{_PAPERS}.tkl:TKL",
}
ONNX_MODELS = {
    "kernel_bert": "glassrank.models.onnx_models:OnnxKernelBERT",
    "maxsim": "glassrank.models.onnx_models:OnnxMaxSim",
    "tk": "glassrank.models.onnx_models:OnnxTK",
}
"""Families that ONNX Runtime computes, without PyTorch."""


class _Families(Mapping[str, "type[Ranker]"]):
    """Imports a class when it is first asked for."""

    def __getitem__(self, name: str) -> "type[Ranker]":
        family: type[Ranker] = import_object(_CLASSES[name])
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


MODELS: Mapping[str, "type[Ranker]"] = _Families()
"""The families of this package, as PyTorch computes them."""


def import_object(name: str) -> Any:
    """What `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def find_family(name: str, trusted: Collection[str] = ()) -> "type[Ranker]":
    """The class of a family: a name of `MODELS`, or a class outside of this package as
    `module:Class`. Importing that runs its code, so it must be in `trusted` too."""
    if name in _CLASSES:
        return MODELS[name]
    if not is_outside(name):
        raise InputError(f"{name!r} is not known; {suggest_name(name)}")
    if name not in trusted:
        raise InputError(
            f"{name} is code from outside this package, which is not run unless you ask for it; "
            f"if you trust that module, name the model {name}@FOLDER"
        )
    return _import_outside(name)


def suggest_name(name: str) -> str:
    """The nearest family's name, or all names, for an error message."""
    near = difflib.get_close_matches(name[:100], _CLASSES, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_CLASSES)}"


def name_of(family: "type[Ranker]") -> str:
    """The name by which `find_family` finds a class."""
    place = f"{family.__module__}:{family.__qualname__}"
    return family.info.name if place == _CLASSES.get(family.info.name) else place


def _import_outside(name: str) -> "type[Ranker]":
    from glassrank.models.torch_models import Ranker

    try:
        family = import_object(name)
    except Exception as error:  # foreign code may raise anything
        raise InputError(
            f"{name} cannot be imported: {type(error).__name__}: {error}; its module must be "
            "installed, or in a folder that PYTHONPATH names"
        ) from None
    if not isinstance(family, type) or not issubclass(family, Ranker) or isabstract(family):
        raise InputError(f"{name} is not a whole subclass of glassrank.models.Ranker")
    if not hasattr(family, "info"):
        raise InputError(f"{name} needs an `info`, a glassrank.models.ModelInfo")
    if family.info.name in (*_CLASSES, ENSEMBLE):
        raise InputError(f"{name} needs a name that is not taken, not {family.info.name!r}")
    return family
