"""Collections of ir_datasets by name, such as `beir/scifact`; an extra, imported where it is used.

Reading one for the first time lets ir_datasets download it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from glassrank.errors import InputError
from glassrank.types import Doc, Qrel, Query

Item = TypeVar("Item")
PREFIX = "irds:"

# ir_datasets' names for what topic files call title, desc and narr.
_TOPIC_FIELDS = {
    "title": ("text", "title", "query"),
    "desc": ("description",),
    "narr": ("narrative",),
}


def is_dataset_name(source: str | Path) -> bool:
    """Whether `source` must be a dataset's name: no such file, and no suffix as files have one.

    >>> is_dataset_name("beir/scifact"), is_dataset_name("car/v1.5"), is_dataset_name("missing.tsv")
    (True, True, False)
    """
    if str(source).startswith(PREFIX):
        return True
    path = Path(source)
    try:
        return not path.exists() and not path.suffix[1:2].isalpha()
    except (OSError, ValueError) as error:  # too long a name, a NUL in it
        raise InputError(f"{str(source)!r} cannot be read: {error}") from None


def resolve_source(folder: Path, source: str) -> str:
    """What `source` means in a file of this folder: a path from there, or a dataset's name.

    >>> resolve_source(Path("configs"), "docs.tsv")
    'configs/docs.tsv'
    >>> resolve_source(Path("configs"), "irds:beir/scifact")
    'irds:beir/scifact'
    """
    path = folder / source
    is_path = not source.startswith(PREFIX) and not (
        is_dataset_name(source) and is_dataset_name(path)
    )
    return str(path) if is_path else source


def load(name: str) -> Any:
    """The dataset of a name, with or without `irds:` in front."""
    dataset_id = name.removeprefix(PREFIX)
    try:
        import ir_datasets
    except ImportError:
        given = (
            f"{name} is read with ir_datasets, which is not installed"
            if name.startswith(PREFIX)
            else f"{name} does not exist; if it is the name of an ir_datasets collection, that "
            "package is not installed"
        )
        raise InputError(f"{given}: pip install 'glassrank[hub]'") from None
    try:
        return ir_datasets.load(dataset_id)
    except KeyError:
        given = "is not" if name.startswith(PREFIX) else "is neither a file or folder nor"
        raise InputError(
            f"{name} {given} the name of an ir_datasets collection; check the spelling"
        ) from None


def irds_docs(name: str) -> Iterator[tuple[int, Doc]]:
    """(position, document); texts are as the collection has them, empty ones included."""
    dataset = _with(name, "docs")
    for number, doc in enumerate(_read(name, dataset.docs_iter()), 1):
        fields = doc._asdict()
        text = fields.get("text") or fields.get("body")
        yield (
            number,
            Doc(
                doc.doc_id,
                text if isinstance(text, str) else doc.default_text(),
                fields.get("title") or "",
                fields.get("url") or "",
            ),
        )


def irds_queries(name: str, field: str) -> Iterator[Query]:
    """The queries of a dataset of ir_datasets."""
    for query in _read(name, _with(name, "queries").queries_iter()):
        fields = query._asdict()
        texts = [fields[key] for key in _TOPIC_FIELDS[field] if isinstance(fields.get(key), str)]
        if not texts:
            raise InputError(
                f"the queries of {name} have no field {field!r}, only {', '.join(fields)}; "
                "choose another field"
            )
        yield Query(query.query_id, texts[0])


def irds_qrels(name: str) -> Iterator[Qrel]:
    """Its judgments."""
    for qrel in _read(name, _with(name, "qrels").qrels_iter()):
        yield Qrel(qrel.query_id, qrel.doc_id, qrel.relevance)


def _read(name: str, items: Iterable[Item]) -> Iterator[Item]:
    """What comes of a download, or of a package that one collection alone needs, is said as such:
    to whoever writes an index, an error of the system's is one of the disk's."""
    try:
        yield from items
    except ImportError as error:
        raise InputError(
            f"{name} takes a package that is not installed: {_short(error)}; what TREC CAR takes "
            "comes with: pip install 'glassrank[hub]'"
        ) from None
    except FileNotFoundError as error:
        raise InputError(
            f"{name} is no free download: put its files where ir_datasets looks for them, "
            f"{error.filename or error}"
        ) from None
    except (OSError, RuntimeError) as error:  # what `requests` raises is an OSError
        raise InputError(
            f"{name} could not be downloaded or read: {_short(error)}; check the connection "
            "and try again"
        ) from None


def _short(error: Exception) -> str:
    """One line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _with(name: str, part: str) -> Any:
    dataset = load(name)
    if not getattr(dataset, f"has_{part}")():
        raise InputError(
            f"{name} has no {part}; ir_datasets keeps them in a subset such as "
            f"{name.rstrip('/')}/test, or in its parent"
        )
    return dataset
