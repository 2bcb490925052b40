"""Save and load prepared arrays: a folder with checksums and one `.npy` file for each array."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from glassrank.errors import InputError, wrap_file_errors
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import check_same_settings, preparation_settings
from glassrank.research.train.prepared import (
    COLUMN_DTYPES,
    PassageOffsets,
    Prepared,
    RunIds,
    Split,
    SubwordRows,
    check_consistent,
)
from glassrank.storage.atomic_folders import (
    ChecksummedFiles,
    read_checksummed_folder,
    write_checksummed_folder,
)
from glassrank.storage.checksummed_json import parse_json
from glassrank.storage.mapped_arrays import Ragged

_KIND = "preparation"
_FILES = ("prepared.json", "words.txt", "*.npy")
_MOST_TEXT = 1 << 30
_MOST_BYTES = 1 << 40
_OPTIONAL = ("teacher", "triples", "folds")


def save_prepared(folder: Path, prepared: Prepared) -> None:
    """Replace the folder atomically."""
    with write_checksummed_folder(folder, _KIND, _FILES) as part:
        text = "".join(f"{word}\n" for word in prepared.words)
        (part / "words.txt").write_text(text, "utf-8")
        _write_array(part, "vectors", prepared.vectors, np.float16)
        _write_array(part, "idf", prepared.idf, np.float32)
        _save_ragged(part, "docs", prepared.docs, np.int32)
        if prepared.passages is not None:
            _write_array(part, "passages.offsets", prepared.passages.offsets, np.int64)
            _write_array(part, "passages.best", np.array([prepared.passages.best]), np.int64)
            _write_array(part, "passages.first", np.array([prepared.passages.first]), np.float64)
        if prepared.ids is not None:
            _save_ragged(part, "query_ids", prepared.ids.queries, np.uint8)
            _save_ragged(part, "doc_ids", prepared.ids.docs, np.uint8)
        if prepared.subwords is not None:
            _write_array(part, "subwords.ngrams", prepared.subwords.ngrams, np.int64)
            _save_ragged(part, "subwords", prepared.subwords.rows, np.int64)
        for name, split in prepared.splits().items():
            _save_ragged(part, f"{name}.queries", split.queries, np.int32)
            _save_ragged(part, f"{name}.docs", split.docs, np.int32)
            for column, dtype in COLUMN_DTYPES.items():
                if getattr(split, column) is not None:
                    _write_array(part, f"{name}.{column}", getattr(split, column), dtype)
        (part / "prepared.json").write_text(json.dumps(prepared.description, indent=1), "utf-8")


def load_prepared(folder: str | Path, config: TrainConfig | None = None) -> Prepared:
    """Load arrays; with `config`, raise an error if they were made with other settings."""
    remedy = "prepare the arrays with: glassrank prepare CONFIG.toml"
    prepared = read_checksummed_folder(Path(folder), _KIND, _load, remedy)
    if config is not None:
        made_with = prepared.description.get("preparation")
        check_same_settings(made_with, preparation_settings(config), str(folder), remedy)
    return prepared


def _load(files: ChecksummedFiles) -> Prepared:
    with wrap_file_errors(files.path, "it has no usable prepared arrays"):
        text = files.read("words.txt", _MOST_TEXT).decode("utf-8")
        passages = _load_passages(files)
        subwords = ids = None
        if "subwords.offsets.npy" in files:
            ngrams = _read_array(files, "subwords.ngrams", np.int64)
            subwords = SubwordRows(_load_ragged(files, "subwords", np.int64), ngrams)
        if "query_ids.offsets.npy" in files:
            names = "query_ids", "doc_ids"
            ids = RunIds(*(_load_ragged(files, name, np.uint8) for name in names))
        prepared = Prepared(
            text.split("\n")[:-1],
            _read_array(files, "vectors", np.float16, axes=2).astype(np.float32),
            _read_array(files, "idf", np.float32),
            _load_ragged(files, "docs", np.int32),
            _load_split(files, "train", passages),
            _load_split(files, "dev", passages),
            parse_json(files.read("prepared.json", _MOST_TEXT)),
            _load_split(files, "test", passages) if "test.queries.offsets.npy" in files else None,
            subwords,
            ids,
            files.fingerprint,
        )
        prepared.check()
        return prepared


def _load_passages(files: ChecksummedFiles) -> PassageOffsets | None:
    if "passages.offsets.npy" not in files:
        return None
    offsets = _read_array(files, "passages.offsets", np.int64)
    best = _read_array(files, "passages.best", np.int64)
    check_consistent(len(best) == 1, "passages.best")
    first = _read_array(files, "passages.first", np.float64)
    check_consistent(len(first) == 1, "passages.first")
    return PassageOffsets(offsets, int(best[0]), float(first[0]))


def _load_split(files: ChecksummedFiles, name: str, passages: PassageOffsets | None) -> Split:
    columns = {
        column: _read_array(files, f"{name}.{column}", dtype, axes=2 if column == "triples" else 1)
        if column not in _OPTIONAL or f"{name}.{column}.npy" in files
        else None
        for column, dtype in COLUMN_DTYPES.items()
    }
    queries = _load_ragged(files, f"{name}.queries", np.int32)
    docs = _load_ragged(files, f"{name}.docs", np.int32)
    return Split(queries=queries, docs=docs, passages=passages, **columns)  # type: ignore[arg-type]


def _save_ragged(folder: Path, name: str, rows: Ragged, dtype: DTypeLike) -> None:
    _write_array(folder, f"{name}.offsets", rows.offsets, np.int64)
    _write_array(folder, f"{name}.values", rows.values, dtype)


def _load_ragged(files: ChecksummedFiles, name: str, dtype: DTypeLike) -> Ragged:
    return Ragged(
        _read_array(files, f"{name}.offsets", np.int64), _read_array(files, f"{name}.values", dtype)
    )


def _write_array(folder: Path, name: str, array: NDArray[Any], dtype: DTypeLike) -> None:
    np.save(folder / f"{name}.npy", np.ascontiguousarray(array, dtype))


def _read_array(
    files: ChecksummedFiles, name: str, dtype: DTypeLike, axes: int = 1
) -> NDArray[Any]:
    """Read an array; its header cannot make it larger than the file."""
    path = files.path / f"{name}.npy"
    with files.open(path.name, _MOST_BYTES) as file:
        try:
            version = npy.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            shape, by_columns, kind = npy.read_array_header_1_0(file)
        except (ValueError, SyntaxError, RecursionError, MemoryError, EOFError) as error:
            raise InputError(f"{path} is not an array: {str(error)[:100]}") from None
        size = files.size(path.name) - file.tell()
        if (
            kind != np.dtype(dtype)
            or len(shape) != axes
            or by_columns
            or min(shape, default=0) < 0
            or math.prod(shape) * kind.itemsize != size
        ):
            raise InputError(
                f"{path} must have {axes} axes of {np.dtype(dtype)}, found {shape} of {kind}"
            )
        array = np.empty(shape, kind)
        content = array.reshape(-1).view(np.uint8).data
        start = file.tell()
        file.seek(0)
        header = file.read(start)
        file.readinto(content)  # type: ignore[attr-defined]
        files.check(path.name, zlib.crc32(content, zlib.crc32(header)))
    return array
