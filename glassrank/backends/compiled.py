"""Functions that are compiled once and kept: how they are declared, and who hears of it.

    @compiled
    def add(values: Any) -> Any: ...

Numba is imported when the first of them is called, not before: a process that calls none does not
wait for it. Called with other types of arrays, numba compiles a function once more, which takes
seconds; so arrays are given the same form where they are opened or made (`arrays.frozen`), and
`tests/test_compiled.py` counts. Where the code is kept, `code_cache.py` says.
"""

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

Listener = Callable[[str], None]

FUNCTIONS: list["Compiled"] = []
"""All that are declared so far."""

LOADING = 20_000_000
"""Numbers that plain code looks at in about the time that it takes to load compiled code."""

_lock = threading.RLock()
_looked_at = 0
_listeners: list[Listener] = []


class Compiled:
    """A function that is compiled, or loaded, when it is first called."""

    def __init__(self, function: Callable[..., Any], inner: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.inner = inner
        self._made: Any = None
        FUNCTIONS.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return (self._made or self.dispatcher)(*arguments)

    @property
    def dispatcher(self) -> Any:
        """What numba makes of it."""
        with _lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        import numba

        from glassrank.backends.code_cache import CodeCache

        njit: Any = numba.njit
        if self.inner:
            return njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(self.py_func)
        made = njit(nogil=True)(self.py_func)
        made._cache = CodeCache(self.py_func, _tell)
        return made

    @property
    def _numba_type_(self) -> Any:
        """By which numba knows it inside of other functions."""
        return self.dispatcher._numba_type_


def compiled(function: Callable[..., Any]) -> Compiled:
    """For a function that Python calls."""
    return Compiled(function)


def inner(function: Callable[..., Any]) -> Compiled:
    """For a function of the same file that compiled ones call, and nobody else: its code is part of
    theirs, and not kept apart."""
    return Compiled(function, inner=True)


def on_compile(listener: Listener) -> None:
    """Calls this with a function's name before it is compiled, which takes seconds."""
    _listeners.append(listener)


COMPILING = (
    "compiling for this processor, which takes up to a minute, once; `glassrank warmup` does it "
    "beforehand"
)
_log = logging.getLogger("glassrank")


def _tell(name: str) -> None:
    for listener in _listeners:
        listener(name)
    if not _listeners:
        _log_compiling()


@functools.cache
def _log_compiling() -> None:
    """A warning: who has not set up logging sees it on stderr, and does not think that it hangs."""
    _log.warning(COMPILING)


def is_worth_compiling(numbers: int) -> bool:
    """Whether compiled code is the right form to look at so many numbers: it is once it is loaded,
    and once plain forms have done in this process what takes as long as to load it."""
    global _looked_at
    _looked_at += numbers
    return _looked_at > LOADING or "glassrank.backends.code_cache" in sys.modules


def use_compiled_code() -> None:
    """For a process that is about to do much: from now on compiled code is always used."""
    from glassrank.backends.code_cache import CodeCache  # noqa: F401
