"""The families of models by name: each class of the files here that has one is found by it."""

import difflib
import pkgutil
from collections.abc import Collection
from importlib import import_module
from inspect import isabstract
from types import ModuleType

from glassrank import models
from glassrank.backends.threads import pass_on_threads
from glassrank.errors import InputError
from glassrank.models import is_outside
from glassrank.models.contract import Ranker
from glassrank.models.ensemble import Ensemble

pass_on_threads()  # here PyTorch is imported for the first time, where a process does without

_NO_FAMILIES = frozenset(
    "calibration checkpoint contract doc_reader ensemble families fast fast_gpu hub "
    "pretrained ranker saved seal served served_families text_batches "
    "trained transformers_folders weight_files word_tables".split()
)
"""Files here that other files share; some need packages that a machine which trains has not."""


def _in(module: ModuleType) -> dict[str, type[Ranker]]:
    """The models that a file defines, by name."""
    return {
        member.name: member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, Ranker)
        and member.__module__ == module.__name__
        and not isabstract(member)
    }


MODELS: dict[str, type[Ranker]] = {}
"""The families of this package, by name."""
for _file in pkgutil.iter_modules(models.__path__):
    if _file.name not in _NO_FAMILIES:
        MODELS.update(_in(import_module(f"{models.__name__}.{_file.name}")))
MODELS = dict(sorted(MODELS.items()))


def find_family(name: str, trusted: Collection[str] = ()) -> type[Ranker]:
    """A family of this package by its name, or a class outside of it as `module:Class`. That must
    be named among `trusted` too, because it is code, which runs as soon as it is imported."""
    if name in MODELS:
        return MODELS[name]
    if not is_outside(name):
        raise InputError(f"{name!r} is not known; {meant(name)}")
    if name not in trusted:
        raise InputError(
            f"{name} is code from outside this package, which is not run unless you ask for it; "
            f"if you trust that module, name the model {name}@FOLDER"
        )
    return _outside(name)


def meant(name: str) -> str:
    """For whoever asks for a family that there is not."""
    near = difflib.get_close_matches(name[:100], MODELS, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(MODELS)}"


def name_of(family: type[Ranker]) -> str:
    """What `find_family` finds it by."""
    ours = MODELS.get(family.name) is family or family is Ensemble
    return family.name if ours else f"{family.__module__}:{family.__qualname__}"


def _outside(name: str) -> type[Ranker]:
    module, _, attribute = name.partition(":")
    try:
        family = getattr(import_module(module), attribute)
    except Exception as error:  # whatever code may do that is not ours
        raise InputError(
            f"{name} cannot be imported: {type(error).__name__}: {error}; its module must be "
            "installed, or in a folder that PYTHONPATH names"
        ) from None
    if not isinstance(family, type) or not issubclass(family, Ranker) or isabstract(family):
        raise InputError(f"{name} is not a whole subclass of glassrank.models.Ranker")
    missing = [need for need in ("name", "config_type") if not hasattr(family, need)]
    if missing or family.name in (*MODELS, Ensemble.name):
        raise InputError(f"{name} needs a {missing[0] if missing else 'name that is not taken'}")
    return family
