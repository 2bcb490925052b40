"""Collections of ir_datasets by name, such as `beir/scifact`. The package is optional.

ir_datasets downloads a collection when it is first read.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from glassrank.errors import InputError
from glassrank.types import Doc, Qrel, Query

Item = TypeVar("Item")
PREFIX = "irds:"

# The names in ir_datasets for the fields of topic files.
_TOPIC_FIELDS = {
    "title": ("text", "title", "query"),
    "desc": ("description",),
    "narr": ("narrative",),
}


def is_dataset_name(source: str | Path) -> bool:
    """Whether `source` is the name of a dataset: no file exists, and it has no suffix of a file.

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


def is_irds(source: str | Path, format: str | None) -> bool:  # noqa: A002
    """Whether a source is to be read from ir_datasets."""
    return format == "irds" or (format is None and is_dataset_name(source))


def resolve_source(folder: Path, source: str) -> str:
    """Resolves a source relative to a folder, unless it is the name of a dataset.

    >>> resolve_source(Path("configs"), "docs.tsv")
    'configs/docs.tsv'
    >>> resolve_source(Path("configs"), "irds:beir/scifact")
    'irds:beir/scifact'
    """
    path = folder / source
    is_name = source.startswith(PREFIX) or (is_dataset_name(source) and is_dataset_name(path))
    return source if is_name else str(path)


def load(name: str) -> Any:
    """The dataset of a name, with or without `irds:` in front."""
    dataset_id = name.removeprefix(PREFIX)
    try:
        import ir_datasets
    except ImportError:
        code, problem = "missing_package", f"{name} needs ir_datasets, which is not installed"
        if not name.startswith(PREFIX):
            code = "not_found"
            problem = (
                f"{name} does not exist; if it is a collection of ir_datasets, that package is "
                "not installed"
            )
        raise InputError(f"{problem}: pip install 'glassrank[hub]'", code=code) from None
    try:
        return ir_datasets.load(dataset_id)
    except KeyError:
        given = "is not" if name.startswith(PREFIX) else "is neither a file or folder nor"
        raise InputError(
            f"{name} {given} the name of an ir_datasets collection; check the spelling",
            code="not_found",
        ) from None


def irds_docs(name: str) -> Iterator[tuple[int, Doc]]:
    """(position, document) of a dataset; empty texts are kept."""
    dataset = _load_with(name, "docs")
    for number, doc in enumerate(_read(name, dataset.docs_iter()), 1):
        fields = doc._asdict()
        text = fields.get("text") or fields.get("body")
        text = text if isinstance(text, str) else doc.default_text()
        title, url = fields.get("title") or "", fields.get("url") or ""
        yield number, Doc(doc.doc_id, text, title, url)


def irds_queries(name: str, field: str) -> Iterator[Query]:
    """The queries of a dataset."""
    for query in _read(name, _load_with(name, "queries").queries_iter()):
        fields = query._asdict()
        texts = [fields[key] for key in _TOPIC_FIELDS[field] if isinstance(fields.get(key), str)]
        if not texts:
            raise InputError(
                f"the queries of {name} have no field {field!r}, only {', '.join(fields)}; "
                "choose another field"
            )
        yield Query(query.query_id, texts[0])


def irds_qrels(name: str) -> Iterator[Qrel]:
    """The judgments of a dataset."""
    for qrel in _read(name, _load_with(name, "qrels").qrels_iter()):
        yield Qrel(qrel.query_id, qrel.doc_id, qrel.relevance)


def _read(name: str, items: Iterable[Item]) -> Iterator[Item]:
    """Names the dataset in errors of a download or a missing package: the writer of an index takes
    an OSError for an error of its disk."""
    try:
        yield from items
    except ImportError as error:
        raise InputError(
            f"{name} needs a package that is not installed: {_shorten(error)}; for TREC CAR: "
            "pip install 'glassrank[hub]'",
            code="missing_package",
        ) from None
    except FileNotFoundError as error:
        raise InputError(
            f"{name} cannot be downloaded freely: put its files where ir_datasets looks for them, "
            f"{error.filename or error}",
            code="not_found",
        ) from None
    except (OSError, RuntimeError) as error:  # what `requests` raises is an OSError
        raise InputError(
            f"{name} could not be downloaded or read: {_shorten(error)}; check the connection "
            "and try again"
        ) from None


def _shorten(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _load_with(name: str, part: str) -> Any:
    dataset = load(name)
    if not getattr(dataset, f"has_{part}")():
        raise InputError(
            f"{name} has no {part}; ir_datasets keeps them in a subset such as "
            f"{name.rstrip('/')}/test, or in its parent"
        )
    return dataset
