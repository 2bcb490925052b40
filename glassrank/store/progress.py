"""How far encoding has come, how fast, and what it made."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassrank.store.manifest import IDS, Manifest


@dataclass(frozen=True)
class Progress:
    """In the middle of the work: `total` is what the store lacked when the work began."""

    documents: int
    total: int
    per_second: float
    bytes_per_document: float
    seconds_left: float


@dataclass(frozen=True)
class Report:
    """Documents, words and bytes are the whole store's; `encoded` and `reused` are this run's."""

    path: Path
    dtype: str
    documents: int
    words: int
    bytes: int
    bytes_per_document: float
    of_float32: float | None
    """Bytes, as a share of what plain float32 vectors take; none where ids are stored."""
    encoded: int
    reused: int
    cut: int
    """Of those encoded, how many are longer than what the model reads of them."""
    seconds: float
    per_second: float


class Tally:
    """Counts documents as they are done, and tells whoever wants to know."""

    def __init__(self, tell: Callable[[Progress], None] | None) -> None:
        self.total = 0
        self._tell = tell
        self._started = time.perf_counter()
        self._encoded = self._reused = self._resumed = self._cut = self._bytes = 0

    def resumed(self, docs: int) -> None:
        """Done by a run that was interrupted: they count, but not as this one's speed."""
        self._resumed += docs

    def reused(self, docs: int, size: int) -> None:
        self._reused += docs
        self._add(size)

    def encoded(self, docs: int, size: int, cut: int) -> None:
        self._encoded += docs
        self._cut += cut
        self._add(size)

    def _add(self, size: int) -> None:
        self._bytes += size
        done = self._encoded + self._reused
        if self._tell is not None and done:
            pace = (time.perf_counter() - self._started) / done
            left = self.total - self._resumed - done
            self._tell(
                Progress(
                    self._resumed + done, self.total, 1 / pace, self._bytes / done, left * pace
                )
            )

    def report(self, path: Path, manifest: Manifest) -> Report:
        layout, parts = manifest.layout, manifest.parts
        documents, words = sum(part.docs for part in parts), sum(part.rows for part in parts)
        size = sum(part.bytes for part in parts)
        plain = 0 if layout.dtype == IDS else 4 * layout.width * words
        seconds = time.perf_counter() - self._started
        return Report(
            path=path,
            dtype=layout.dtype,
            documents=documents,
            words=words,
            bytes=size,
            bytes_per_document=size / max(1, documents),
            of_float32=size / plain if plain else None,
            encoded=self._encoded,
            reused=self._reused,
            cut=self._cut,
            seconds=seconds,
            per_second=(self._encoded + self._reused) / seconds,
        )
