# mypy: allow-untyped-calls
"""Where compiled code is kept, which takes seconds to make: in one of several places on disk.

It is looked for in all of them, and written to the first that can be written to. Somebody else may
have made what lies beside the package, as in a container that is built by one user and run by
another. Where nothing can be written to, code is compiled for this process and forgotten.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    NullCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.runtime.nrt import rtsys

_IS_TRIED = tuple(map(int, numba.__version__.split(".")[:2])) <= (0, 68)
"""Whether this numba is one of those with which code was loaded the short way."""


class _Place:
    """Whether it can be written to is asked when something is to be written, not before."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """A place for this function's code, or None: as numba asks its own."""
        made: Any = cls
        return made(function, file) if cls.there() else None

    @staticmethod
    def there() -> bool:
        """Whether it may be looked at."""
        return True


class _Named(_Place, UserProvidedCacheLocator):
    """The folder that NUMBA_CACHE_DIR names."""

    @staticmethod
    def there() -> bool:
        return bool(getattr(config, "CACHE_DIR", ""))


class _Beside(_Place, InTreeCacheLocator):
    """`__pycache__` beside the file."""


class _Home(_Place, UserWideCacheLocator):
    """The user's cache. A home that is not there is not made."""

    @staticmethod
    def there() -> bool:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~").expanduser().is_dir()


class _Temporary(_Place, InTreeCacheLocator):
    """A folder of this user alone: what is read there is run, so nobody else may write to it."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(_temporary() / self.get_suitable_cache_subpath(file))

    @staticmethod
    def there() -> bool:
        try:
            return _is_private(_temporary())
        except FileNotFoundError:  # it is made when it is needed
            return True

    def ensure_cache_path(self) -> None:
        with suppress(FileExistsError):
            _temporary().mkdir(0o700)
        if not _is_private(_temporary()):
            raise PermissionError(f"{_temporary()} is not this user's own")
        super().ensure_cache_path()


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # on Windows all files are user 0's


def _temporary() -> Path:
    return Path(tempfile.gettempdir(), f"glassrank-compiled-{_user()}")


def _is_private(path: Path) -> bool:
    status = path.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == _user()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


def _kept_in(place: type[_Place]) -> type[FunctionCache]:
    class Files(CompileResultCacheImpl):
        _locator_classes = [place]  # noqa: RUF012

    class Kept(FunctionCache):
        _impl_class = Files

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """Without all that numba gets ready in order to compile: it takes as long as a search,
            and what was compiled needs no more of it than its memory."""
            if not _IS_TRIED:
                return super().load_overload(sig, target_context)
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)

    return Kept


_PLACES = [_kept_in(place) for place in (_Named, _Beside, _Home, _Temporary)]


class CodeCache(NullCache):
    """Of one function, as numba asks for it. Whatever is wrong with a place, there is the next."""

    def __init__(self, function: Callable[..., Any], tell: Callable[[str], None]) -> None:
        self._function = function
        self._tell = tell

    def _places(self) -> Iterator[Any]:
        for place in _PLACES:
            with suppress(RuntimeError, OSError):
                yield place(self._function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code for these types, or None."""
        for place in self._places():
            with suppress(Exception):  # whatever a file may hold that was cut or is not ours
                if (loaded := place.load_overload(sig, target_context)) is not None:
                    return loaded
        self._tell(self._function.__name__)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps what was compiled, where that is possible."""
        for place in self._places():
            with suppress(OSError):
                try:
                    place.save_overload(sig, data)
                except OSError:
                    raise
                except Exception:  # the list of what is kept there was cut, or is not ours
                    place.flush()
                    place.save_overload(sig, data)
                return
