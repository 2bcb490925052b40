"""A disk that fails once: at the n-th thing that is asked of it."""

import errno
import fcntl
import io
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

ERRORS = [errno.ENOSPC, errno.EIO, errno.EACCES]
CALLS = [
    *((os, name) for name in ("open", "mkdir", "stat", "listdir", "fsync", "replace", "rename")),
    *((os, name) for name in ("unlink", "rmdir")),
    *((mmap, "mmap"), (fcntl, "flock")),
]


class FailingDisk:
    """Counts what is asked, and fails at one of them; `failed` says at which."""

    def __init__(self, at: int, code: int) -> None:
        self.calls = 0
        self.failed = ""
        self._at, self._code = at, code

    def ask(self, what: str) -> None:
        self.calls += 1
        if self.calls == self._at:
            self.failed = what
            raise OSError(self._code, os.strerror(self._code))

    def asked(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def asking(*arguments: Any, **named: Any) -> Any:
            self.ask(what)
            return call(*arguments, **named)

        return asking

    @contextmanager
    def used(self) -> Iterator["FailingDisk"]:
        disk = self

        class File(io.FileIO):
            def write(self, data: Any) -> Any:
                disk.ask("write")
                return super().write(data)

            def readinto(self, buffer: Any) -> Any:
                disk.ask("read")
                return super().readinto(buffer)

            def truncate(self, size: Any = None) -> Any:
                disk.ask("truncate")
                return super().truncate(size)

        def fdopen(descriptor: int, mode: str) -> Any:
            reads = mode == "rb"
            file = File(descriptor, mode.replace("b", ""))
            return io.BufferedReader(file) if reads else io.BufferedRandom(file)

        patches = [patch.object(os, "fdopen", fdopen)]
        for module, name in CALLS:
            asking = self.asked(getattr(module, name), name)
            patches.append(patch.object(module, name, asking))
        for one in patches:
            one.start()
        try:
            yield self
        finally:
            for one in patches:
                one.stop()
