# mypy: allow-untyped-calls
"""A disk cache for compiled code: it is looked for in several folders, and written to the first
that is writable. Numba's `cache=True` reads no folder that it cannot write to, as in a container,
fails where it finds none, and prepares its compiler before it loads code, which takes 0.2 s.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

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


class _CacheFolder:
    """A locator, as numba calls it. It checks whether it is writable when something is written."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """A locator for this function's code, or None: the interface of numba's locators."""
        made: Any = cls
        return made(function, file) if cls.is_usable() else None

    @staticmethod
    def is_usable() -> bool:
        """Whether it may be read."""
        return True


class _Configured(_CacheFolder, UserProvidedCacheLocator):
    """The folder that NUMBA_CACHE_DIR names."""

    @staticmethod
    def is_usable() -> bool:
        return bool(getattr(config, "CACHE_DIR", ""))


class _BesideSource(_CacheFolder, InTreeCacheLocator):
    """`__pycache__` beside the file."""


class _UserCache(_CacheFolder, UserWideCacheLocator):
    """The user's cache folder, where there is a home."""

    @staticmethod
    def is_usable() -> bool:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~").expanduser().is_dir()


class _Temporary(_CacheFolder, InTreeCacheLocator):
    """A folder that only this user can write to: code that is read there is run."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(_temporary() / self.get_suitable_cache_subpath(file))

    @staticmethod
    def is_usable() -> bool:
        try:
            return _is_private(_temporary())
        except FileNotFoundError:  # it is created when it is needed
            return True

    def ensure_cache_path(self) -> None:
        with suppress(FileExistsError):
            _temporary().mkdir(0o700)
        if not _is_private(_temporary()):
            raise PermissionError(f"{_temporary()} is writable by others")
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


def _make_cache(folder: type[_CacheFolder]) -> type[FunctionCache]:
    class Files(CompileResultCacheImpl):
        _locator_classes = [folder]  # noqa: RUF012

    class Cache(FunctionCache):
        _impl_class = Files

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """Does not prepare the compiler: loaded code needs only numba's memory manager. Tested
            with each version of numba that pyproject.toml admits."""
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)

    return Cache


_CACHES = [_make_cache(f) for f in (_Configured, _BesideSource, _UserCache, _Temporary)]


class CodeCache(NullCache):
    """The cache of one function. Whatever is wrong with a folder, the next one is tried."""

    def __init__(self, function: Callable[..., Any], notify: Callable[[str], None]) -> None:
        self._function = function
        self._notify = notify

    def _caches(self) -> Iterator[Any]:
        for cache in _CACHES:
            with suppress(RuntimeError, OSError):
                yield cache(self._function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code for these types, or None."""
        for cache in self._caches():
            with suppress(Exception):  # a file may be cut, or foreign
                if (loaded := cache.load_overload(sig, target_context)) is not None:
                    return loaded
        self._notify(self._function.__name__)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Saves compiled code in the first writable folder."""
        for cache in self._caches():
            with suppress(OSError):
                try:
                    cache.save_overload(sig, data)
                except OSError:
                    raise
                except Exception:  # its index file is cut, or foreign
                    cache.flush()
                    cache.save_overload(sig, data)
                return
