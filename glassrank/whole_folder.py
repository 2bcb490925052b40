"""A folder that is replaced as a whole: readers see the old one or the new one, never neither.

with whole_folder(path) as part:      # a new folder beside, to write into
    ...                               # then all is synced, and the two change places
model = read_whole(path, load)        # a reader that begins again if it was overtaken
"""

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from glassrank.errors import GlassrankError, InputError, disk_error
from glassrank.folders import Folder, is_plain

T = TypeVar("T")

_EXCHANGE = 2  # Linux's RENAME_EXCHANGE
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_TRIES = 1000


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, which takes its name, and another's place, when it is complete."""
    path = path.absolute()
    name, part, old = path.name, _part(path.name), _old(path.name)
    if not is_plain(name):
        raise InputError(f"{path} cannot be written: its last part is no plain name")
    in_place = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Folder.open(path.parent) as parent, parent.lock(name):
            _settle(parent, name)
            os.mkdir(part, dir_fd=parent.descriptor)
            try:
                yield path.with_name(part)
                _sync_tree(parent, part)
                _exchange(parent, part, name)
                in_place = True
                parent.sync()
            finally:
                remove_tree(parent, part)
                if in_place:
                    remove_tree(parent, old)
    except OSError as error:
        if in_place:
            raise disk_error(error, f"make {path} durable", "it is written all the same") from error
        hint = "what was there before is unchanged"
        raise disk_error(error, f"write the folder {path}", hint) from error


def read_whole(path: str | Path, read: Callable[[Folder], T]) -> T:
    """What `read` makes of a folder; again, if that was replaced meanwhile and so has gone."""
    path = Path(path)
    for _ in range(_TRIES):
        with _opened(path) as folder:
            try:
                return read(folder)
            except (OSError, GlassrankError):
                if folder.is_current():
                    raise
    raise GlassrankError(f"{path} is replaced faster than it can be read; try again later")


def _opened(path: Path) -> Folder:
    """Where two folders cannot change places, the old one is aside for a moment, or since a kill;
    only a writer may put it back."""
    with suppress(FileNotFoundError):
        return Folder.open(path)
    with suppress(OSError):
        return Folder.open(path.with_name(_old(path.name)), follow=False)
    return Folder.open(path)  # there by now, or not at all


def _part(name: str) -> str:
    return f".{name}.part"


def _old(name: str) -> str:
    return f".{name}.old"


def _settle(parent: Folder, name: str) -> None:
    """Finishes what a killed writer began."""
    at = parent.descriptor
    if parent.kind(name) is None and parent.kind(_old(name)) == "folder":
        os.rename(_old(name), name, src_dir_fd=at, dst_dir_fd=at)
    if parent.kind(name) not in (None, "folder"):
        raise InputError(f"{parent.path / name} is a file or a link; choose another name")
    remove_tree(parent, _old(name))
    remove_tree(parent, _part(name))


def _sync_tree(parent: Folder, name: str) -> None:
    """Makes durable what is in a folder that was just written."""
    for _, _, files, at in os.fwalk(name, dir_fd=parent.descriptor):
        for file in files:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(file, flags, dir_fd=at)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.fsync(at)


def _exchange(parent: Folder, part: str, name: str) -> None:
    """In one step where the system can do that, else in two."""
    at = parent.descriptor
    try:
        os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)  # if nothing is there yet
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchanged(at, part, name):
            os.rename(name, _old(name), src_dir_fd=at, dst_dir_fd=at)
            os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)


def remove_tree(parent: Folder, name: str) -> None:
    """Whatever has this name, with all inside, as far as that can be removed; links are removed,
    not followed. Only for what this process made: a hidden name is allowed."""
    with suppress(OSError, RecursionError):
        try:
            os.unlink(name, dir_fd=parent.descriptor)
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent.descriptor)


def _exchanged(at: int, first: str, second: str) -> bool:
    """Whether two names changed places; False if this system, or this disk, cannot do it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(at, os.fsencode(first), at, os.fsencode(second), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code))
