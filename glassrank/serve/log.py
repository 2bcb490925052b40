"""Limits the log, so that clients cannot fill a disk with it."""

import logging
import time
from collections.abc import Callable


class LogLimit(logging.Filter):
    """Passes `per_minute` records in each minute; the next record says how many were dropped.

    >>> limit = LogLimit(1, clock=lambda: 0.0)
    >>> record = logging.makeLogRecord({"msg": "an error"})
    >>> limit.filter(record), limit.filter(record)
    (True, False)
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._clock = clock
        self._minute, self._passed, self._dropped = 0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            if self._dropped:
                record.msg = f"{record.msg} ({self._dropped} lines before it were dropped)"
            self._minute, self._passed, self._dropped = minute, 0, 0
        if self._passed >= self._per_minute:
            self._dropped += 1
            return False
        self._passed += 1
        return True
