"""Folders from untrusted sources, opened so that nothing in them can lead outside.

A folder is held by its descriptor, and every name in it is looked up there: links are not followed,
a name is plain (no slash, no `..`, no leading dot), a file is a regular file, and a new file really
is new. The path that a user gives may contain links. Windows has no such descriptors: there links
are checked just before a name is used, and who can write to the folder could add one in between.

A missing file is a `FileNotFoundError`, a full disk an `OSError`, with the complete path as its
`filename`; what our writers never write is a `CorruptError`. System-dependent calls are only here
and in `atomic_folders.py`.
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
from typing import IO, Any

from glassrank.errors import BusyError, CorruptError

LOCK = "write.lock"
_PLAIN = re.compile(r"\w[\w.+@ =,-]{0,199}")
_BY_DESCRIPTOR = {os.open, os.stat, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd


def _open_flags(*names: str) -> int:
    """The flags of `os.open` that this system has."""
    return sum(getattr(os, name, 0) for name in names)


_FOLDER = _open_flags("O_RDONLY", "O_DIRECTORY", "O_CLOEXEC")
NO_FOLLOW = _open_flags("O_NOFOLLOW", "O_NONBLOCK")
"""Does not follow links, nor wait for the writer of a pipe."""
_REGULAR_FILE = NO_FOLLOW | _open_flags("O_CLOEXEC", "O_NOCTTY", "O_BINARY", "O_NOINHERIT")
_NOT_REGULAR = {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV}
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_TRIES = 100


def is_plain_name(name: object) -> bool:
    """
    >>> [is_plain_name(name) for name in ("a-1.npy", "..", "a/b", ".hidden", "a\\n", "", 7)]
    [True, False, False, False, False, False, False]
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


class NotDurableError(OSError):
    """A file is in place, but the disk does not confirm it: a power cut may undo it."""


class Folder:
    """An open folder, closed by `with` or `close`; `path` is for messages."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        """`descriptor` is None where the system has none: then the path is used."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def open(cls, path: str | Path, *, follow: bool = True) -> "Folder":
        """Opens a path; it may be a link only with `follow`."""
        path = Path(path)
        if _BY_DESCRIPTOR:
            return cls(path, os.open(path, _FOLDER if follow else _FOLDER | os.O_NOFOLLOW))
        mode = (path.stat() if follow else path.lstat()).st_mode
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return cls(path.absolute(), None)

    def _place(self, name: str) -> str | Path:
        """The argument of a call for a name in this folder, besides `**self._dir_fd`."""
        return self.path / name if self.descriptor is None else name

    @property
    def _dir_fd(self) -> dict[str, int]:
        return {} if self.descriptor is None else {"dir_fd": self.descriptor}

    def _dir_fds(self, into: "Folder") -> dict[str, Any]:
        if self.descriptor is None:
            return {}
        return {"src_dir_fd": self.descriptor, "dst_dir_fd": into.descriptor}

    def child(self, name: str) -> "Folder":
        """Opens a folder inside."""
        with self._check_name(name) as path:
            try:
                if self.descriptor is None:
                    return Folder.open(path, follow=False)
                return Folder(path, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.descriptor))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise CorruptError(
                        f"{path} is a link or a file, expected a folder; remove it"
                    ) from None
                raise

    def make_child(self, name: str, *, exist_ok: bool = False) -> "Folder":
        """Makes and opens a folder inside."""
        with self._check_name(name):
            try:
                self.make_folder(name)
            except FileExistsError:
                if not exist_ok:
                    raise
        return self.child(name)

    def make_folder(self, name: str) -> None:
        """Makes a folder inside; its name may be hidden: for temporary folders."""
        os.mkdir(self._place(name), **self._dir_fd)  # noqa: PTH102

    def rename(self, name: str, new: str, into: "Folder | None" = None) -> None:
        """Renames an entry, possibly a hidden one; replaces nothing except an empty folder."""
        other = into or self
        os.rename(self._place(name), other._place(new), **self._dir_fds(other))  # noqa: PTH104

    def names(self) -> list[str]:
        """All entries, sorted, plain or not."""
        with self._add_path(self.path):
            place = self.path if self.descriptor is None else self.descriptor
            return sorted(os.listdir(place))  # noqa: PTH208

    def kind(self, name: str) -> str | None:
        """`file`, `folder`, `link` or `other`; None if there is no such entry."""
        with self._add_path(self.path / name):
            try:
                mode = self._stat(name).st_mode
            except FileNotFoundError:
                return None
        return _KINDS.get(stat.S_IFMT(mode), "other")

    def open_file(self, name: str) -> IO[bytes]:
        """Opens a regular file for reading."""
        with self._check_name(name):
            return self._open(name, os.O_RDONLY, "rb")

    def create(self, name: str) -> IO[bytes]:
        """Creates a file for writing and reading."""
        with self._check_name(name):
            return self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, "w+b")

    def reopen(self, name: str) -> IO[bytes]:
        """Opens an existing file for writing, unless it has another hard link."""
        with self._check_name(name):
            file = self._open(name, os.O_RDWR, "r+b")
        if os.fstat(file.fileno()).st_nlink != 1:
            file.close()
            raise CorruptError(f"{self.path / name} has a second name (a hard link); remove it")
        return file

    def read(self, name: str, limit: int) -> bytes:
        """The content of a file of at most `limit` bytes."""
        with self.open_file(name) as file, self._add_path(self.path / name):
            content = file.read(limit + 1)
        if len(content) > limit:
            raise CorruptError(
                f"{self.path / name} is damaged: expected at most {limit:,} bytes; "
                "restore it from a copy"
            )
        return content

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file by one durable rename: readers see the old content or the new."""
        part = f".{name}.part"
        with self._check_name(name):
            self.remove_hidden(part)
            try:
                with self._open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, "w+b") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                places = self._place(part), self._place(name)
                os.replace(*places, **self._dir_fds(self))  # noqa: PTH105
            finally:
                with suppress(OSError):
                    self.remove_hidden(part)
            try:
                self.sync()
            except OSError as error:
                raise NotDurableError(error.errno, error.strerror) from error

    def remove(self, name: str) -> None:
        """Removes a file or a link, if it exists."""
        with self._check_name(name):
            self.remove_hidden(name)

    def remove_hidden(self, name: str) -> None:
        """As `remove`; for temporary files, whose names may be hidden."""
        with suppress(FileNotFoundError):
            os.unlink(self._place(name), **self._dir_fd)

    def remove_child(
        self, name: str, is_ours: Callable[[str], bool], keep: Collection[str] = ()
    ) -> None:
        """Removes the files of a folder inside that `is_ours` accepts, and then the folder. Files
        in `keep` stay, and the folder with them. Errors of the disk only cost space: ignored."""
        with suppress(OSError, CorruptError):
            with self.child(name) as child:
                for file in child.names():
                    is_part = file.startswith(".") and file.endswith(".part")  # of a killed `write`
                    if file not in keep and is_ours(file[1:-5] if is_part else file):
                        with suppress(OSError):
                            child.remove_hidden(file)
            if not keep:
                os.rmdir(self._place(name), **self._dir_fd)

    def take(self, other: "Folder", name: str, new: str) -> None:
        """Moves a folder from another folder, on the same disk, here under a new name."""
        with self._check_name(new), other._check_name(name):
            other.rename(name, new, self)

    def sync(self) -> None:
        """Makes the names here durable, where the system can do that."""
        if self.descriptor is not None:
            with self._add_path(self.path):
                os.fsync(self.descriptor)

    @contextmanager
    def lock(self, child: str | None = None) -> Iterator[None]:
        """Locks this folder, or a child that is replaced as a whole, for one writer."""
        name = LOCK if child is None else f".{child}.lock"
        with self._lock_file(name, self.path if child is None else self.path / child):
            try:
                yield
            finally:
                if child is not None:
                    with suppress(OSError):
                        self.remove_hidden(name)

    def _lock_file(self, name: str, what: Path) -> IO[bytes]:
        for _ in range(_TRIES):
            with self._add_path(self.path / name), ExitStack() as stack:
                file = stack.enter_context(self._open(name, os.O_RDWR | os.O_CREAT, "r+b"))
                if not _try_lock(file):
                    break
                with suppress(FileNotFoundError):  # its owner removed it before we locked it
                    status = self._stat(name)
                    if os.path.samestat(status, os.fstat(file.fileno())):
                        stack.pop_all()
                        return file
        raise BusyError(f"another process is writing to {what}; try again when it is done")

    def is_current(self) -> bool:
        """Whether the path still leads here: another folder may have replaced it."""
        try:
            at = self.descriptor
            return at is None or os.path.samestat(self.path.stat(), os.fstat(at))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes the descriptor; may be called again."""
        if self.descriptor is not None and self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str, flags: int, mode: str) -> IO[bytes]:
        not_regular = CorruptError(
            f"{self.path / name} is damaged: expected a regular file, not a link, a folder or a "
            "device; restore it from a copy or remove it"
        )
        if self.descriptor is None and self.kind(name) not in (None, "file"):
            raise not_regular
        try:
            descriptor = os.open(self._place(name), flags | _REGULAR_FILE, 0o666, **self._dir_fd)
        except OSError as error:
            if error.errno in _NOT_REGULAR:
                raise not_regular from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise not_regular
        return os.fdopen(descriptor, mode)

    def _stat(self, name: str) -> os.stat_result:
        return os.stat(self._place(name), **self._dir_fd, follow_symlinks=False)  # noqa: PTH116

    @contextmanager
    def _check_name(self, name: str) -> Iterator[Path]:
        if not is_plain_name(name):
            raise CorruptError(
                f"{self.path} names a file {str(name)[:80]!r}, which is not a plain name"
            )
        with self._add_path(self.path / name):
            yield self.path / name

    @contextmanager
    def _add_path(self, path: Path) -> Iterator[None]:
        """Adds the complete path to errors: the system knows only the name within the folder."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = str(path), None
            raise


def _try_lock(file: IO[bytes]) -> bool:
    """Whether the file is locked now. The system unlocks it when it is closed."""
    is_windows = find_spec("fcntl") is None
    locks: Any = import_module("msvcrt" if is_windows else "fcntl")
    with suppress(OSError if is_windows else BlockingIOError):
        if is_windows:
            file.seek(0)
            locks.locking(file.fileno(), locks.LK_NBLCK, 1)
        else:
            locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
        return True
    return False
