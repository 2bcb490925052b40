"""Documents from a file, a folder, or an ir_datasets name.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "docs.tsv")
...     _ = path.write_text("d1\\tOwls hoot.\\nd2\\tCats purr.\\n")
...     [doc.doc_id for doc in read_docs(path)]
['d1', 'd2']
"""

import json
import os
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from glassrank.corpus import irds
from glassrank.corpus.archives import read_trec_car, read_warc
from glassrank.corpus.records import (
    DocRecords,
    check_not_empty,
    read_csv,
    read_jsonl,
    read_text_lines,
    read_tsv,
    try_doc,
)
from glassrank.corpus.trec import read_trec_docs
from glassrank.errors import InputError
from glassrank.storage.files import atomic_write
from glassrank.types import Doc

LocatedDoc = tuple[str, int, Doc | InputError]  # (file or collection, line, document or its error)

SUFFIXES = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    ".tsv": "tsv",
    ".csv": "csv",
    **dict.fromkeys((".trec", ".sgml", ".sgm"), "trec"),
    **dict.fromkeys((".warc", ".wet"), "warc"),
    ".cbor": "car",
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst"), "text"),
}

_HEADING = re.compile(r"^#{1,6}\s++([^\n]++)", re.MULTILINE)


class DocReader:
    """Documents that can be iterated repeatedly; nothing is kept in memory. So duplicate ids are
    not found here, but by the builder of an index, which calls `locate` for the lines."""

    def __init__(
        self,
        name: str,
        records: Callable[[], Iterator[LocatedDoc]],
        n_bytes: int | None = None,
        *,
        skip_bad: bool = False,
    ) -> None:
        self.name = name
        self.n_bytes = n_bytes  # of the file on disk, for a progress bar; None if it is not a file
        self.skipped = 0
        """Bad documents that the last iteration skipped."""
        self.first_skipped = ""
        """The error of the first of them."""
        self._records = records
        self._skip_bad = skip_bad

    def __iter__(self) -> Iterator[Doc]:
        is_empty = True
        self.skipped, self.first_skipped = 0, ""
        for _, _, doc in self._records():
            if not isinstance(doc, InputError):
                is_empty = False
                yield doc
            elif self._skip_bad:
                self.first_skipped = self.first_skipped or str(doc)
                self.skipped += 1
            else:
                raise doc
        if is_empty:
            why = f"; all were skipped, the first: {self.first_skipped}" if self.skipped else ""
            raise InputError(f"{self.name} has no documents{why or '; expected at least one'}")

    def __repr__(self) -> str:
        return f"read_docs({self.name!r})"

    def locate(self, doc_id: str) -> str:
        """The lines of a duplicate id: `docs.jsonl:17 (first at docs.jsonl:3)`."""
        first = ""
        for place, line, doc in self._records():
            if isinstance(doc, Doc) and doc.doc_id == doc_id:
                if first:
                    return f"{place}:{line} (first at {first})"
                first = f"{place}:{line}"
        return first


def read_docs(
    source: str | Path,
    format: str | None = None,  # noqa: A002
    encoding: str = "utf-8",
    *,
    skip_bad: bool = False,
) -> DocReader:
    """Reads documents from a file (or its `.gz`), a folder, or an ir_datasets name.

    `format` is `jsonl`, `tsv`, `csv`, `trec`, `warc` (ClueWeb's pages), `car` (TREC CAR's
    paragraphs), `text` (one document per file) or `irds`; by default the suffix of a file decides.
    In a folder, files with unknown suffixes are skipped. With a `format`, the files of that format
    are read, or all files if none has its suffix, as on TREC's disks.
    An empty or malformed document is an error, or with `skip_bad` skipped and counted.
    """
    name = str(source)
    path = Path(source)
    if format not in (None, "irds", *READERS):
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(READERS)} or irds")
    if irds.is_irds(source, format):
        irds.load(name)  # raises an error for an unknown name now
        return DocReader(name, lambda: ((name, line, doc) for line, doc in irds.irds_docs(name)))
    if path.is_dir():
        return DocReader(name, lambda: _read_folder(path, format, encoding), skip_bad=skip_bad)
    kind = format or format_of_suffix(path)
    if not path.exists():
        raise InputError(f"{name} does not exist; check the path", code="not_found")
    if kind is None:
        raise InputError(
            f"{name} has an unknown extension; expected {', '.join(SUFFIXES)} (or .gz of these); "
            f"rename the file, or name its format: {', '.join(READERS)}"
        )
    size = path.stat().st_size
    return DocReader(name, lambda: _read_file(path, kind, encoding), size, skip_bad=skip_bad)


def write_docs(docs: Iterable[Doc], path: str | Path) -> None:
    """Writes JSON Lines with BEIR's fields and `source`."""
    with atomic_write(path) as file:
        for doc in docs:
            fields = {"_id": doc.doc_id, "title": doc.title, "text": doc.text}
            if doc.source:
                fields["source"] = doc.source
            if doc.metadata:
                fields["metadata"] = dict(doc.metadata)  # type: ignore[assignment]
            file.write(json.dumps(fields, ensure_ascii=False) + "\n")


def format_of_suffix(path: Path) -> str | None:
    """
    >>> format_of_suffix(Path("docs.jsonl.gz")), format_of_suffix(Path("beir/scifact"))
    ('jsonl', None)
    """
    return SUFFIXES.get(_without_gz(path).suffix.lower())


def read_text(path: Path, encoding: str = "utf-8") -> DocRecords:
    """The file as one document; its title is the first Markdown heading or the file name."""
    yield 1, try_doc(_read_text_doc, path, encoding)


def _read_text_doc(path: Path, encoding: str) -> Doc:
    text = read_text_lines(path, encoding)
    check_not_empty(path.name, text, path, 1)
    bare = _without_gz(path)
    heading = _HEADING.search(text) if bare.suffix.lower() in (".md", ".markdown") else None
    title = heading[1].rstrip("#" + string.whitespace) if heading else ""
    return Doc(_id_of(path.name), text, title or bare.stem, path.as_posix())


READERS: dict[str, Callable[[Path, str], DocRecords]] = {
    "jsonl": read_jsonl,
    "tsv": read_tsv,
    "csv": read_csv,
    "trec": read_trec_docs,
    "warc": read_warc,
    "car": read_trec_car,
    "text": read_text,
}


def _read_file(path: Path, kind: str, encoding: str) -> Iterator[LocatedDoc]:
    for line, doc in READERS[kind](path, encoding):
        yield str(path), line, doc


def count_skipped_files(source: str | Path, format: str | None = None) -> Counter[str]:  # noqa: A002
    """The number of skipped files of a folder by suffix; empty for any other source."""
    folder = Path(source)
    if not folder.is_dir() or irds.is_irds(source, format):
        return Counter()
    files = _folder_files(folder, format)
    return Counter(path.suffix.lower() or path.name for path, kind in files if kind is None)


def _folder_files(folder: Path, wanted: str | None) -> Iterator[tuple[Path, str | None]]:
    """The files of a folder with their formats; None for skipped ones."""
    by_suffix = wanted is None or any(format_of_suffix(path) == wanted for path in _files(folder))
    for path in _files(folder):
        kind = format_of_suffix(path) if by_suffix else wanted
        yield path, kind if wanted in (None, kind) else None


def _read_folder(folder: Path, wanted: str | None, encoding: str) -> Iterator[LocatedDoc]:
    for path, kind in _folder_files(folder, wanted):
        if kind is None:
            continue
        for place, line, doc in _read_file(path, kind, encoding):
            if kind == "text" and isinstance(doc, Doc):
                doc_id = _id_of(path.relative_to(folder).as_posix())
                doc = Doc(doc_id, doc.text, doc.title, doc.source)
            yield place, line, doc


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read: {error.strerror}", code="permission_denied")


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, sorted, without hidden ones. A link that leads outside is refused:
    it would let the folder's author index other files of the user."""
    root = folder.resolve()
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or not path.is_file():
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise InputError(
                    f"{path} is a link to a file outside of {folder}; copy the file there, "
                    "or index it on its own"
                )
            yield path


def _id_of(path: str) -> str:
    # A run's columns are separated by spaces, so an id must not have any.
    return "%20".join(path.split())


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path
