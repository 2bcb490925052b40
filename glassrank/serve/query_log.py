"""The query log of `glassrank serve --log FILE`: what was asked, shown and clicked.

One JSON line for each event, in the words of OpenSearch's User Behavior Insights. No client
appears in it: a `query_id` is drawn anew for each search. A full file becomes `FILE.1`, and so on;
the oldest is removed.

    {"action": "search", "query_id": "6f…", "time": 1700000000, "query": "…", "shown": ["d7", …]}
    {"action": "click", "query_id": "6f…", "time": 1700000003, "doc_id": "d7"}
"""

import json
import logging
import os
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassrank.errors import BusyError, wrap_os_errors
from glassrank.serve.limits import Limits
from glassrank.storage.folders import NO_FOLLOW, Folder

KEPT = 8
"""Files: the current one and the older ones."""
MOST_SHOWN = 100
"""Ids in a line: nobody clicks on what lies below."""

_log = logging.getLogger("glassrank.serve")


class QueryLog:
    """Appends lines; threads and worker processes may share a file."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path.absolute()
        self._most = limits.query_log_bytes
        self._lock = threading.Lock()
        with wrap_os_errors(f"write the query log {path}"):
            self._append(b"")  # before a request has to find out

    def write(self, action: str, query_id: str, **fields: Any) -> None:
        """Appends one event. A disk that fails costs the event, and no request."""
        event = {"action": action, "query_id": query_id, "time": int(time.time()), **fields}
        line = json.dumps(event).encode() + b"\n"
        try:
            with self._lock:
                if self._size() + len(line) > self._most:
                    self._rotate()
                self._append(line)
        except OSError as error:
            _log.warning("the query log cannot be written: %s", error)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:  # another process has just rotated it away
            return 0

    def _append(self, line: bytes) -> None:
        # Opened for each line: another process may have rotated the file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        with (
            suppress(BusyError),  # another process rotates
            Folder.open(self._path.parent) as folder,
            folder.lock(self._path.name),
        ):
            if self._size() < self._most // 2:  # another process has
                return
            paths = list_files(self._path)
            for younger, older in reversed(list(pairwise(paths))):
                if younger.exists():
                    younger.replace(older)


def list_files(path: Path) -> list[Path]:
    """The files of a log, whether they exist or not, the youngest first.

    >>> [file.name for file in list_files(Path("log.jsonl"))][:3]
    ['log.jsonl', 'log.jsonl.1', 'log.jsonl.2']
    """
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEPT))]
