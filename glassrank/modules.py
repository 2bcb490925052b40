"""Packages that can be called: `glassrank.rank` holds the code for ranking, and
`glassrank.rank(query, texts)` ranks, as people expect who never look inside."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Calling the module of this name calls the function."""

    class CallableModule(ModuleType):
        __doc__ = function.__doc__

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    sys.modules[name].__class__ = CallableModule
