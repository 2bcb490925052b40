"""Functions that numba compiles once and caches on disk (`code_cache.py`); numba is imported when
the first of them is called.

Each new combination of argument types is compiled again, which takes seconds; so arrays are given
one form where they are opened or made, and a test counts the combinations.
"""

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

Listener = Callable[[str], None]

FUNCTIONS: list["Compiled"] = []
"""All functions declared so far."""

LOADING = 20_000_000
"""Values that plain code reads in about the time that it takes to load compiled code."""

_lock = threading.RLock()
_values_read = 0
_listeners: list[Listener] = []


class Compiled:
    """A function that is compiled, or loaded, when it is first called."""

    def __init__(
        self, function: Callable[..., Any], inner: bool = False, fastmath: Any = False
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.inner, self._fastmath = inner, fastmath
        self._dispatcher: Any = None
        FUNCTIONS.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return (self._dispatcher or self.dispatcher)(*arguments)

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher."""
        with _lock:
            if self._dispatcher is None:
                self._dispatcher = self._make()
            return self._dispatcher

    def _make(self) -> Any:
        import numba

        from glassrank.backends.code_cache import CodeCache

        njit: Any = numba.njit
        if self.inner:
            return njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(self.py_func)
        dispatcher = njit(nogil=True, fastmath=self._fastmath)(self.py_func)
        dispatcher._cache = CodeCache(self.py_func, _notify)
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        """Lets other compiled functions call this one."""
        return self.dispatcher._numba_type_


def compiled(function: Callable[..., Any]) -> Compiled:
    """Declares a function that Python calls."""
    return Compiled(function)


def compiled_sums(function: Callable[..., Any]) -> Compiled:
    """The same for sums of floats in any order: these are vectorized."""
    return Compiled(function, fastmath={"reassoc", "contract"})


def inner(function: Callable[..., Any]) -> Compiled:
    """Declares a function that only compiled functions of the same file call; it is not cached."""
    return Compiled(function, inner=True)


def on_compile(listener: Listener) -> None:
    """Registers a listener, which gets a function's name before it is compiled."""
    _listeners.append(listener)


COMPILING = (
    "compiling for this processor, which takes up to a minute, once; `glassrank warmup` does it "
    "beforehand"
)
_log = logging.getLogger("glassrank")


def _notify(name: str) -> None:
    for listener in _listeners:
        listener(name)
    if not _listeners:
        _warn_once()


@functools.cache
def _warn_once() -> None:
    """Warns once; on stderr where logging is not set up, so that nobody thinks the program
    hangs."""
    _log.warning(COMPILING)


def is_worth_compiling(values: int) -> bool:
    """Whether to read so many values by compiled code: yes once it is loaded, and once plain code
    has read as many in this process as take as long as loading it."""
    global _values_read
    _values_read += values
    return _values_read > LOADING or "glassrank.backends.code_cache" in sys.modules


def use_compiled_code() -> None:
    """Uses compiled code from now on, however little there is to do."""
    from glassrank.backends.code_cache import CodeCache  # noqa: F401
