"""Small model folders of every kind, to be damaged, and loading under a watch."""

import json
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from model_cases import SMALL, SMALL_PIECES

from glassrank.errors import GlassrankError
from glassrank.models import MODELS, EmbeddingTable
from glassrank.models.io.load import load_for_inference, load_model
from glassrank.models.io.model_folder import SavedModel, Usage, fingerprint
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.ensemble import save_ensemble
from glassrank.research.papers.subword_table import SubwordTable
from glassrank.settings import from_plain
from glassrank.storage.atomic_folders import FORMAT, MANIFEST
from glassrank.storage.checksummed_json import checksum_file, write_json
from glassrank.storage.folders import Folder

WORDS = ["<pad>", "<unk>", *(f"w{i}" for i in range(18))]
FILES = ("config.json", "weights.safetensors", "vocabulary.txt", "checksums.json")
PIECES = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *(f"p{i}" for i in range(36))]


def word_model(folder: Path, name: str = "tk", vectors: str = "float32", seed: int = 0) -> Path:
    torch.manual_seed(seed)
    family = MODELS[name]
    model = family(
        from_plain(family.info.config_type, SMALL[name]),
        EmbeddingTable(torch.randn(20, 12), torch.rand(20)),
    )
    save_model(folder, model, Usage(6, 14), WORDS, "# a card\n", vectors)
    return folder


def subword_model(folder: Path) -> Path:
    """Words are means of rows: each its own, and two of the five that n-grams share."""
    torch.manual_seed(0)
    rows = torch.tensor([row for i in range(20) for row in (i, 20 + i % 5, 20 + (i + 1) % 5)])
    table = SubwordTable(
        torch.randn(25, 12), torch.arange(0, 61, 3), rows, torch.tensor([5, 3, 4]), torch.rand(20)
    )
    model = MODELS["knrm"](from_plain(MODELS["knrm"].info.config_type, SMALL["knrm"]), table)
    save_model(folder, model, Usage(6, 14), WORDS, "# a card\n")
    return folder


def piece_model(folder: Path, name: str, layers: str = "float32") -> Path:
    torch.manual_seed(0)
    family = MODELS[name]
    model = family(from_plain(family.info.config_type, SMALL_PIECES[name]))
    save_model(folder, model, Usage(6, 14), PIECES, "# a card\n", layers=layers)
    return folder


def ensemble(folder: Path) -> Path:
    members = [word_model(folder.with_name(f"member{i}"), seed=i) for i in range(2)]
    save_ensemble(folder, members, Usage(6, 14), "# both\n")
    return folder


def copied(make: Callable[..., Path], folder: Path, *given: str) -> Path:
    """The folder that `make(folder, *given)` writes, which is made once and for all."""
    for name, content in _files(make, *given).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@cache
def _files(make: Callable[..., Path], *given: str) -> dict[Path, bytes]:
    with TemporaryDirectory() as parent:
        folder = make(Path(parent) / "model", *given)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return {path.relative_to(folder): path.read_bytes() for path in files}


KINDS: dict[str, Callable[[Path], Path]] = {
    "words": word_model,
    "int8": lambda folder: word_model(folder, vectors="int8"),
    "subwords": subword_model,
    "bert": lambda folder: piece_model(folder, "bert"),
    "mores": lambda folder: piece_model(folder, "mores"),
    "kernel_bert": lambda folder: piece_model(folder, "kernel_bert"),
    "ensemble": ensemble,
}


@contextmanager
def watched(seconds: int = 30, memory: int = 1 << 30) -> Iterator[None]:
    """Ends what hangs, and what asks for far more memory than a small model needs."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"still busy after {seconds} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(folder: Path) -> str:
    """What loading gives: the model's fingerprint, or the sentence; anything else is a fault. Who
    loads it to serve it gets the same."""
    trained, served = (_loaded(folder, load) for load in (load_model, load_for_inference))
    assert (served == trained) or min(len(served), len(trained)) > 32, (served, trained)
    return trained


def _loaded(folder: Path, load: Callable[[Path], SavedModel]) -> str:
    with watched():
        try:
            return fingerprint(load(folder).model)
        except GlassrankError as error:
            message = str(error)
            assert message and "\n" not in message and len(message) < 600, message
            return message


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


def raw_weights(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def sealed(folder: Path, **records: tuple[int, int]) -> Path:
    """With right checksums again, or whatever `records` says."""
    with Folder.open(folder) as opened:
        names = [name for name in FILES if name != MANIFEST and opened.kind(name)]
        files = {n: records.get(n.partition(".")[0]) or checksum_file(opened, n) for n in names}
        write_json(opened, MANIFEST, {"format": FORMAT, "kind": "model", "files": files})
    return folder
