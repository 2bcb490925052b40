"""Folders that may come from strangers, opened so that nothing in them can lead outside.

A folder is held by its descriptor and every name in it is looked up there: a link is never
followed, a name is plain (no slash, no `..`, no dot in front), a file is a plain file and not a
pipe or a device, and what is new is really new. The path that a user gives may go through links.

    with Folder.open(path) as folder, folder.lock():
        content = folder.read("config.json", limit=1 << 20)   # a small file, whole
        with folder.child("part") as part, part.open_file("weights.bin") as file: ...
        with folder.create("new.bin") as file: ...            # must not be there yet
        folder.write("config.json", content)                  # old or new, durable: the commit
        folder.remove("old.bin")

What is not there is a `FileNotFoundError` and a full disk an `OSError`, whose `filename` is the
whole path; `errors.wrap_os_errors` makes one sentence of them. What no writer of ours would make is
a `CorruptError`. Systems differ in all this: such calls stand here and in `sealed.py` alone.

Windows has no descriptors of folders. There a folder is known by its path, and a link is looked for
just before a name is used: somebody who can write to the folder could put one there in between.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from glassrank.errors import BusyError, CorruptError

LOCK = "write.lock"
_PLAIN = re.compile(r"\w[\w.+@ =,-]{0,199}")
_BY_DESCRIPTOR = {os.open, os.stat, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd


def flags_of(*names: str) -> int:
    """Of `os.open`, as far as this system has them."""
    return sum(getattr(os, name, 0) for name in names)


_FOLDER = flags_of("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
NO_FOLLOW = flags_of("O_NOFOLLOW", "O_NONBLOCK")
"""A pipe without a writer must not wait."""
_PLAIN_FILE = NO_FOLLOW | flags_of("O_CLOEXEC", "O_NOCTTY", "O_BINARY", "O_NOINHERIT")
_NO_PLAIN_FILE = {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV}
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_TRIES = 100


def is_plain_name(name: object) -> bool:
    """
    >>> [is_plain_name(name) for name in ("a-1.npy", "..", "a/b", ".hidden", "a\\n", "", 7)]
    [True, False, False, False, False, False, False]
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


class NotDurableError(OSError):
    """A file is in its place, but the disk does not confirm it: a power cut may undo it."""


class Folder:
    """An open folder, closed by `with` or `close`; `path` is for messages."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        """Without a descriptor, where the system has none, it is known by its path."""
        self.path = path
        self._at = descriptor

    @property
    def descriptor(self) -> int | None:
        """As the system's own calls take it."""
        return self._at

    @classmethod
    def open(cls, path: str | Path, *, follow: bool = True) -> "Folder":
        """By its path, which may end in a link only if it is to be followed."""
        path = Path(path)
        if _BY_DESCRIPTOR:
            return cls(path, os.open(path, _FOLDER if follow else _FOLDER | os.O_NOFOLLOW))
        mode = (path.stat() if follow else path.lstat()).st_mode
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return cls(path.absolute(), None)

    def _place(self, name: str) -> str | Path:
        """What a call takes for a name in this folder, beside `**self._dir_fd`."""
        return self.path / name if self._at is None else name

    @property
    def _dir_fd(self) -> dict[str, int]:
        return {} if self._at is None else {"dir_fd": self._at}

    def child(self, name: str) -> "Folder":
        """A folder inside."""
        with self._named(name) as path:
            try:
                if self._at is None:
                    return Folder.open(path, follow=False)
                return Folder(path, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._at))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise CorruptError(f"{path} is not a folder of its own; remove it") from None
                raise

    def make_child(self, name: str, *, exist_ok: bool = False) -> "Folder":
        """A new folder inside."""
        with self._named(name):
            try:
                self.make_folder(name)
            except FileExistsError:
                if not exist_ok:
                    raise
        return self.child(name)

    def make_folder(self, name: str) -> None:
        """A new folder inside, whose name may be a hidden one: for what this process makes."""
        os.mkdir(self._place(name), **self._dir_fd)  # noqa: PTH102

    def rename(self, name: str, new: str, into: "Folder | None" = None) -> None:
        """Of a name inside, which may be a hidden one; what is there already is not replaced, but
        for an empty folder."""
        other = into or self
        fds = {} if self._at is None else {"src_dir_fd": self._at, "dst_dir_fd": other._at}
        os.rename(self._place(name), other._place(new), **fds)  # noqa: PTH104

    def names(self) -> list[str]:
        """Everything that lies here, plain or not."""
        with self._failing(self.path):
            return sorted(os.listdir(self.path if self._at is None else self._at))  # noqa: PTH208

    def kind(self, name: str) -> str | None:
        """`file`, `folder`, `link` or `other`; None if nothing has this name."""
        with self._failing(self.path / name):
            try:
                mode = self._stat(name).st_mode
            except FileNotFoundError:
                return None
        return _KINDS.get(stat.S_IFMT(mode), "other")

    def open_file(self, name: str) -> IO[bytes]:
        """A plain file, to read."""
        with self._named(name):
            return self._open(name, os.O_RDONLY, "rb")

    def create(self, name: str) -> IO[bytes]:
        """A new file, to write and read."""
        with self._named(name):
            return self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, "w+b")

    def reopen(self, name: str) -> IO[bytes]:
        """A file that is there, to go on writing; one that has a second name elsewhere is not."""
        with self._named(name):
            file = self._open(name, os.O_RDWR, "r+b")
        if os.fstat(file.fileno()).st_nlink != 1:
            file.close()
            raise CorruptError(f"{self.path / name} has a second name (a hard link); remove it")
        return file

    def read(self, name: str, limit: int) -> bytes:
        """A whole file of at most `limit` bytes."""
        with self.open_file(name) as file, self._failing(self.path / name):
            content = file.read(limit + 1)
        if len(content) > limit:
            raise CorruptError(
                f"{self.path / name} is damaged: expected at most {limit:,} bytes; "
                "restore it from a copy"
            )
        return content

    def write(self, name: str, content: bytes) -> None:
        """Puts a file in its place, whole and durable: until the rename it is the old one."""
        part = f".{name}.part"
        with self._named(name):
            self._unlink(part)
            try:
                with self._open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, "w+b") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                fds = {} if self._at is None else {"src_dir_fd": self._at, "dst_dir_fd": self._at}
                os.replace(self._place(part), self._place(name), **fds)  # noqa: PTH105
            finally:
                with suppress(OSError):
                    self._unlink(part)
            try:
                self.sync()
            except OSError as error:
                raise NotDurableError(error.errno, error.strerror) from error

    def remove(self, name: str) -> None:
        """A file, or a link, or nothing."""
        with self._named(name):
            self._unlink(name)

    def remove_hidden(self, name: str) -> None:
        """The same of what this process made, whose name may be a hidden one."""
        self._unlink(name)

    def remove_child(
        self, name: str, ours: Callable[[str], bool], keep: Collection[str] = ()
    ) -> None:
        """What a writer made in a folder inside, and then the folder; all else is left alone.

        `ours` knows the names that a writer gives; those in `keep` stay, and the folder with them.
        A disk that fails here has cost some room, no more.
        """
        with suppress(OSError, CorruptError):
            with self.child(name) as child:
                for file in child.names():
                    made = file[1:-5] if _is_part(file) else file
                    if file not in keep and ours(made):
                        with suppress(OSError):
                            child._unlink(file)
            if not keep:
                os.rmdir(self._place(name), **self._dir_fd)

    def take(self, other: "Folder", name: str, new: str) -> None:
        """A folder inside of another one, on the same disk, comes here under a new name."""
        if not is_plain_name(new):
            raise _not_a_name(new, self.path)
        with other._named(name):
            other.rename(name, new, self)

    def sync(self) -> None:
        """Makes the names here durable, as `fsync` does for a file's content, where the system can
        be told to."""
        if self._at is not None:
            with self._failing(self.path):
                os.fsync(self._at)

    @contextmanager
    def lock(self, child: str | None = None) -> Iterator[None]:
        """One writer at a time, of this folder, or of a child that is replaced as a whole."""
        name = LOCK if child is None else f".{child}.lock"
        with self._lock_file(name, self.path if child is None else self.path / child):
            try:
                yield
            finally:
                if child is not None:
                    with suppress(OSError):
                        self._unlink(name)

    def _lock_file(self, name: str, what: Path) -> IO[bytes]:
        for _ in range(_TRIES):
            with self._failing(self.path / name), ExitStack() as stack:
                file = stack.enter_context(self._open(name, os.O_RDWR | os.O_CREAT, "r+b"))
                if not _try_lock(file):
                    break
                with suppress(FileNotFoundError):  # removed by its owner before it was ours
                    status = self._stat(name)
                    if os.path.samestat(status, os.fstat(file.fileno())):
                        stack.pop_all()
                        return file
        raise BusyError(f"another process is writing to {what}; try again when it is done")

    def is_current(self) -> bool:
        """Whether the path still leads here: another folder may have taken its place."""
        try:
            return self._at is None or os.path.samestat(self.path.stat(), os.fstat(self._at))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Lets go of the descriptor; once more does nothing."""
        if self._at is not None and self._at >= 0:
            os.close(self._at)
            self._at = -1

    def __enter__(self) -> "Folder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, name: str, flags: int, mode: str) -> IO[bytes]:
        if self._at is None and self.kind(name) not in (None, "file"):
            raise _no_plain_file(self.path / name)
        try:
            descriptor = os.open(self._place(name), flags | _PLAIN_FILE, 0o666, **self._dir_fd)
        except OSError as error:
            if error.errno in _NO_PLAIN_FILE:
                raise _no_plain_file(self.path / name) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _no_plain_file(self.path / name)
        return os.fdopen(descriptor, mode)

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._place(name), **self._dir_fd)

    def _stat(self, name: str) -> os.stat_result:
        place = self._place(name)
        return os.stat(place, **self._dir_fd, follow_symlinks=False)  # noqa: PTH116

    @contextmanager
    def _named(self, name: str) -> Iterator[Path]:
        if not is_plain_name(name):
            raise _not_a_name(name, self.path)
        with self._failing(self.path / name):
            yield self.path / name

    @contextmanager
    def _failing(self, path: Path) -> Iterator[None]:
        """Errors name the whole path: the system knows only the name within the folder."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = str(path), None
            raise


def _is_part(name: str) -> bool:
    """Whether `Folder.write` was killed over it."""
    return name.startswith(".") and name.endswith(".part")


def _not_a_name(name: object, folder: Path) -> CorruptError:
    return CorruptError(f"{folder} names a file {str(name)[:80]!r}, which is no plain name")


def _no_plain_file(path: Path) -> CorruptError:
    return CorruptError(
        f"{path} is damaged: expected a plain file, not a link, a folder or a device; "
        "restore it from a copy or remove it"
    )


def _try_lock(file: IO[bytes]) -> bool:
    """Whether only we hold it now. The system takes it back when the file is closed."""
    locks: Any
    if find_spec("fcntl") is None:  # as on Windows
        locks = import_module("msvcrt")
        file.seek(0)
        with suppress(OSError):
            locks.locking(file.fileno(), locks.LK_NBLCK, 1)
            return True
        return False
    locks = import_module("fcntl")
    with suppress(BlockingIOError):
        locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
        return True
    return False
